#!/bin/sh
# One line for each event, from now on: watch.sh [FILTER] [more options of `nats sub`]
set -eu
filter=${1:-lockstep.event.>}
[ $# -gt 0 ] && shift
exec nats sub --raw "$filter" "$@" | jq --unbuffered -r '"\(.at[0:19])  \(if .worker then "\(.worker.cluster)/\(.worker.name)" else .node // .source // "-" end)  \(.type)"'
