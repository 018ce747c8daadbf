{{/* The chart's own NATS. */}}

{{/* How many bytes the streams may take on each server. */}}
{{- define "lockstep.nats.room" -}}
{{- $size := .Values.nats.storage.size -}}
{{- $unit := get (dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[A-Za-z]+$" $size) -}}
{{ div (mul (regexFind "^[0-9]+" $size | int64) $unit 9) 10 }}
{{- end }}

{{/* Every user and its role, as a JSON object: services, and whoever was given a right. */}}
{{- define "lockstep.nats.users" -}}
{{- $users := dict -}}
{{- range .Values.nats.auth.readers -}}{{- $_ := set $users . "reader" -}}{{- end -}}
{{- range .Values.requests.allow -}}{{- $_ := set $users .user (or .override (eq (get $users .user) "overrider") | ternary "overrider" "requester") -}}{{- end -}}
{{- range .Values.nats.auth.admins -}}{{- $_ := set $users . "admin" -}}{{- end -}}
{{- range include "lockstep.services" . | fromJsonArray -}}{{- $_ := set $users . . -}}{{- end -}}
{{ $users | toJson }}
{{- end }}

{{/* What each user may publish and read. The passwords are in a file of their own, from a Secret. */}}
{{- define "lockstep.nats.permissions" -}}
{{- $table := .Files.Get "files/nats-users.json" | fromJson -}}
authorization {
  # Seconds for the whole of it. Passwords take a while to check, and after a restart everybody comes at once.
  timeout: 30
  users: [
  {{- range $user, $role := include "lockstep.nats.users" . | fromJson }}
    {{- $may := index $table $role }}
    {
      user: {{ $user | quote }}, password: ${{ $user | replace "-" "_" }}_password
      permissions: {
        publish: {{ toRawJson $may.publish | replace "{user}" $user }}
        subscribe: {{ toRawJson $may.subscribe | replace "{user}" $user }}
      }
    }
  {{- end }}
  ]
}
{{- end }}

{{- define "lockstep.nats.tls" -}}
tls {
  cert_file: /etc/nats/tls/tls.crt
  key_file: /etc/nats/tls/tls.key
  ca_file: /etc/nats/tls/ca.crt
}
{{- end }}

{{/* The server's configuration. A cluster of NATS takes what a single server has stored for an orphan and deletes it; so each
has a folder of its own, and going back finds everything as it was. */}}
{{- define "lockstep.nats.config" -}}
{{- $name := printf "%s-nats" (include "lockstep.fullname" .) -}}
server_name: $POD_NAME
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
max_payload: 1MB
jetstream {
  store_dir: /data/{{ ternary "one" "three" (eq (int .Values.nats.replicas) 1) }}
  max_memory_store: 64MB
  max_file_store: {{ include "lockstep.nats.room" . }}
}
include passwords.conf
{{ include "lockstep.nats.permissions" . }}
{{- if .Values.nats.tls.secretName }}
{{ include "lockstep.nats.tls" . }}
{{- end }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: {{ $name }}
  listen: 0.0.0.0:6222
  no_advertise: true
  authorization { user: routes, password: $routes_password }
  routes: $routes
  {{- if .Values.nats.tls.secretName }}
  {{ include "lockstep.nats.tls" . | nindent 2 | trim }}
  {{- end }}
}
{{- end }}
{{- end }}
