{{/* The settings as `lockstep` reads them, and where the files that they name come from. */}}

{{/* Where a cluster's key is: what was given, or else as Slinky's chart calls it; JSON, `null` where there is a token. */}}
{{- define "lockstep.key" -}}
{{- if .tokenSecretRef }}null
{{- else }}{{ .keySecretRef | default (dict "name" (printf "%s-auth-jwt" .name) "key" "jwt.key") | toJson }}{{ end }}
{{- end }}

{{- define "lockstep.cluster" -}}
{{- $namespace := .namespace | default "slurm" -}}
{{- toYaml (omit . "keySecretRef" "tokenSecretRef" "namespace" "url") }}
namespace: {{ $namespace }}
url: {{ .url | default (printf "http://%s-restapi.%s:6820" .name $namespace) }}
{{- if .tokenSecretRef }}
token_file: /var/run/lockstep/slurm/{{ .name }}/token
{{- else }}
key_file: /var/run/lockstep/slurm/{{ .name }}/key
{{- end }}
{{- end }}

{{- define "lockstep.endpoint" -}}
{{- toYaml (omit . "secretRef" "headersSecretRef" "caSecretRef") }}
{{- range $setting, $ref := dict "secret" .secretRef "headers" .headersSecretRef "ca" .caSecretRef }}
{{- if $ref }}
{{ $setting }}_file: /var/run/lockstep/forward/{{ $.name }}/{{ $setting }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where NATS is: the chart's server, each of its three servers, or another. */}}
{{- define "lockstep.nats.url" -}}
{{- $name := printf "%s-nats" (include "lockstep.fullname" .) -}}
{{- $scheme := ternary "tls" "nats" (not (empty .Values.nats.tls.secretName)) -}}
{{- if not .Values.nats.enabled -}}
{{ .Values.nats.url }}
{{- else if eq (int .Values.nats.replicas) 1 -}}
{{ printf "%s://%s.%s.svc:4222" $scheme $name .Release.Namespace }}
{{- else -}}
{{- range $i := until (int .Values.nats.replicas) -}}
{{ if $i }},{{ end }}{{ printf "%s://%s-%d.%s-headless.%s.svc:4222" $scheme $name $i $name $.Release.Namespace }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What a service needs for NATS as files, and in which Secret each is, as a JSON object: password, creds, ca, cert, key;
{root, service}. */}}
{{- define "lockstep.nats.files" -}}
{{- $nats := .root.Values.nats -}}
{{- $files := dict -}}
{{- if $nats.enabled -}}
{{- $own := dict "name" (printf "%s-nats-%s" (include "lockstep.fullname" .root) .service) "key" "password" -}}
{{- with $nats.auth.existingSecret -}}{{- $own = dict "name" . "key" $.service -}}{{- end -}}
{{- $_ := set $files "password" $own -}}
{{- with $nats.tls.secretName -}}{{- $_ := set $files "ca" (dict "name" . "key" "ca.crt") -}}{{- end -}}
{{- else -}}
{{- with $nats.passwordSecretRef -}}{{- $_ := set $files "password" . -}}{{- end -}}
{{- with $nats.credsSecretRef -}}{{- $_ := set $files "creds" . -}}{{- end -}}
{{- with $nats.caSecretRef -}}{{- $_ := set $files "ca" . -}}{{- end -}}
{{- with $nats.clientCertificate -}}
{{- $_ := set $files "cert" (dict "name" . "key" "tls.crt") -}}
{{- $_ := set $files "key" (dict "name" . "key" "tls.key") -}}
{{- end -}}
{{- end -}}
{{ $files | toJson }}
{{- end }}

{{/* settings.yaml. Who a service is on NATS is in its environment, since that is not the same for all. */}}
{{- define "lockstep.settings" -}}
clusters:
{{- range .Values.clusters }}
  - {{ include "lockstep.cluster" . | nindent 4 | trim }}
{{- end }}
{{- range $part := list "policy" "poll" "requests" "kube" "log" }}
{{- with index $.Values $part }}
{{ $part }}:{{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
jobs: {{ .Values.jobs | quote }}
nats:
  url: {{ include "lockstep.nats.url" . | quote }}
  events_max_bytes: {{ .Values.nats.events_max_bytes | int64 }}
  events_max_age_s: {{ .Values.nats.events_max_age_s | int64 }}
  replicas: {{ .Values.nats.replicas }}
  {{- range $file, $_ := include "lockstep.nats.files" (dict "root" . "service" "any") | fromJson }}
  {{ $file }}_file: /var/run/lockstep/nats/{{ $file }}
  {{- end }}
{{- $tracing := .Values.tracing }}
{{- if .Values.jaeger.enabled }}
{{- $endpoint := printf "http://%s-jaeger.%s.svc:4318" (include "lockstep.fullname" .) .Release.Namespace }}
{{- $tracing = merge (dict) $tracing (dict "endpoint" $endpoint) }}
{{- end }}
{{- with $tracing }}
tracing:{{ toYaml . | nindent 2 }}
{{- end }}
lease:
  namespace: {{ .Release.Namespace }}
  duration_s: {{ .Values.lease.duration_s }}
health:
  host: 0.0.0.0
  port: 8080
  deployment: {{ include "lockstep.fullname" . }}-slurm-poller
{{- with .Values.forward }}
forward:
{{- range . }}
  - {{ include "lockstep.endpoint" . | nindent 4 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secrets that one service reads, as projections of one volume; {root, service}. All may be missing: then the file is,
and the service says so. */}}
{{- define "lockstep.secrets" -}}
{{- $values := .root.Values -}}
{{- $found := list -}}
{{- if has .service (list "slurm-poller" "reconciler" "cleanup") -}}
{{- range $values.clusters -}}
{{- $key := include "lockstep.key" . | fromJson -}}
{{- $found = append $found (ternary (dict "ref" .tokenSecretRef "path" (printf "slurm/%s/token" .name)) (dict "ref" $key "path" (printf "slurm/%s/key" .name)) (not (empty .tokenSecretRef))) -}}
{{- end -}}
{{- end -}}
{{- if eq .service "forward" -}}
{{- range $end := $values.forward -}}
{{- range $file, $ref := dict "secret" .secretRef "headers" .headersSecretRef "ca" .caSecretRef -}}
{{- if $ref -}}{{- $found = append $found (dict "ref" $ref "path" (printf "forward/%s/%s" $end.name $file)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne .service "cleanup" -}}
{{- range $file, $ref := include "lockstep.nats.files" . | fromJson -}}
{{- $found = append $found (dict "ref" $ref "path" (printf "nats/%s" $file)) -}}
{{- end -}}
{{- end -}}
{{- range $found }}
- secret:
    name: {{ .ref.name }}
    optional: true
    items:
      - key: {{ .ref.key | replace "{service}" $.service | quote }}
        path: {{ .path }}
{{- end }}
{{- end }}
