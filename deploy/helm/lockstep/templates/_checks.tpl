{{/* What no schema can tell: fails with the value's name and what is wanted. */}}
{{- define "lockstep.checks" -}}
{{- $names := list -}}
{{- range .Values.clusters -}}
{{- if has .name $names -}}{{- fail (printf "clusters: two are called %q" .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $ends := list -}}
{{- range $i, $end := .Values.forward -}}
{{- if has .name $ends -}}{{- fail (printf "forward: two are called %q" .name) -}}{{- end -}}
{{- $ends = append $ends .name -}}
{{- range .clusters -}}
{{- if not (has . $names) -}}{{- fail (printf "forward[%d].clusters: %q is no cluster; want one of %s" $i . (join ", " $names)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $right := .Values.requests.allow -}}
{{- range .clusters -}}
{{- if not (has . (append $names "*")) -}}{{- fail (printf "requests.allow[%d].clusters: %q is no cluster; want * or one of %s" $i . (join ", " $names)) -}}{{- end -}}
{{- end -}}
{{- if and $.Values.nats.enabled (not (regexMatch "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$" .user)) -}}
{{- fail (printf "requests.allow[%d].user: %q: a user of the chart's NATS has small letters, digits and dashes, at most 40" $i .user) -}}
{{- end -}}
{{- end -}}
{{- $poll := .Values.poll -}}
{{- if gt (float64 ($poll.min_interval_s | default 0.25)) (float64 ($poll.max_interval_s | default 5)) -}}
{{- fail (printf "poll.min_interval_s: %v is more than poll.max_interval_s" $poll.min_interval_s) -}}
{{- end -}}
{{- $nats := .Values.nats -}}
{{- if $nats.enabled -}}
{{- $asking := list -}}
{{- range .Values.requests.allow -}}{{- $asking = append $asking .user -}}{{- end -}}
{{- $users := concat (include "lockstep.services" . | fromJsonArray) (uniq $asking) $nats.auth.readers $nats.auth.admins -}}
{{- range $user := uniq $users -}}
{{- $others := $users -}}
{{- range uniq $users -}}{{- if ne . $user -}}{{- $others = without $others . -}}{{- end -}}{{- end -}}
{{- if gt (len $others) 1 -}}{{- fail (printf "nats.auth: the user %q has two roles; want one of service, requests.allow, readers, admins" $user) -}}{{- end -}}
{{- end -}}
{{- if $nats.url -}}{{- fail "nats.url: is for an existing NATS; set nats.enabled: false with it" -}}{{- end -}}
{{- if and $nats.storage.existingClaim (gt (int $nats.replicas) 1) -}}
{{- fail "nats.storage.existingClaim: one claim cannot serve three servers; want nats.replicas: 1" -}}
{{- end -}}
{{- $room := include "lockstep.nats.room" . | int64 -}}
{{- $want := add (int64 $nats.events_max_bytes) 872415232 -}}
{{- if lt $room $want -}}
{{- fail (printf "nats.storage.size: %s is too little: the streams may take %d MiB of its nine tenths" $nats.storage.size (div $want 1048576)) -}}
{{- end -}}
{{- else -}}
{{- if not $nats.url -}}{{- fail "nats.url: is missing; nats.enabled is false" -}}{{- end -}}
{{- if ne (empty $nats.user) (empty $nats.passwordSecretRef) -}}{{- fail "nats.user: goes together with nats.passwordSecretRef" -}}{{- end -}}
{{- if and $nats.user $nats.credsSecretRef -}}{{- fail "nats.credsSecretRef: want either this or nats.user, not both" -}}{{- end -}}
{{- end -}}
{{- end }}
