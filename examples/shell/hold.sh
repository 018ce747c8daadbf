#!/bin/bash
# Asks for a hold on one worker and prints the answers up to the outcome: hold.sh USER CLUSTER WORKER ID REASON
# Exit code 0: drained. The same ID again is the same request. Names are letters, digits and dashes here.
set -euo pipefail
user=$1 cluster=$2 worker=$3 id=$4 reason=$5
subject="lockstep.request.hold.v1.$user.$cluster.$id"
body=$(jq -nc --arg id "$id" --arg cluster "$cluster" --arg worker "$worker" --arg reason "$reason" \
	'{verb: "hold.v1", id: $id, cluster: $cluster, name: $id, spec: {workers: {names: [$worker]}, reason: $reason}}')
nats pub --jetstream --quiet --header "Nats-Msg-Id:$subject" "$subject" "$body"

coproc answers { exec nats sub --raw --stream LOCKSTEP_EVENTS --all "lockstep.event.request.*.*.$cluster.$id"; }
trap 'kill "$answers_PID"' EXIT
while read -r answer <&"${answers[0]}"; do
	jq -r '"\(.type | split(".")[1]): \(.fault // .outcome // "\(.drained // 0) of \(.selected // .workers // 0) workers drained")"' <<<"$answer"
	case $(jq -r '"\(.type) \(.outcome)"' <<<"$answer") in
	"request.done.v1 drained") exit 0 ;;
	request.done.* | request.refused.*) exit 1 ;;
	esac
done
exit 1
