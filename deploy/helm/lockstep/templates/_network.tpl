{{/* Rules of a NetworkPolicy. */}}

{{/* Peers and ports that may be reached; no peers is anywhere; {to, ports}. */}}
{{- define "lockstep.reach" -}}
{{- with .to }}
to:{{ toYaml . | nindent 2 }}
{{- end }}
ports:
{{- range .ports }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}

{{/* The same for who may come. */}}
{{- define "lockstep.from" -}}
{{- with .from }}
from:{{ toYaml . | nindent 2 }}
{{- end }}
ports:
{{- range .ports }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}

{{/* The ports of addresses, each once, as a JSON list. */}}
{{- define "lockstep.ports" -}}
{{- $usual := dict "http" 80 "https" 443 "ws" 80 "wss" 443 "nats" 4222 "tls" 4222 -}}
{{- $found := list -}}
{{- range . -}}
{{- $url := urlParse (trim .) -}}
{{- $found = append $found (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (get $usual $url.scheme) | int) -}}
{{- end -}}
{{ $found | uniq | toJson }}
{{- end }}
