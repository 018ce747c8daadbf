{{/* Names and labels. */}}

{{- define "lockstep.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* What the names of all objects begin with; short enough for what is put behind it. */}}
{{- define "lockstep.fullname" -}}
{{- $name := include "lockstep.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{ .Values.fullnameOverride | default $full | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The labels that select the pods of one component; {root, component, name}. */}}
{{- define "lockstep.selector" -}}
app.kubernetes.io/name: {{ .name | default "lockstep" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* The labels of a component's pods, which change only with what runs in them; {root, component, name, version}. */}}
{{- define "lockstep.podlabels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .version | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lockstep
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* All labels of an object; as above. */}}
{{- define "lockstep.labels" -}}
{{ include "lockstep.podlabels" . }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The services that run here, as a JSON list. */}}
{{- define "lockstep.services" -}}
{{- $services := list "pod-watcher" "slurm-poller" "drain" "reconciler" -}}
{{ .Values.forward | empty | ternary $services (append $services "forward") | toJson }}
{{- end }}

{{/* The namespaces of the clusters, each once, as a JSON list. */}}
{{- define "lockstep.namespaces" -}}
{{- $found := list -}}
{{- range .Values.clusters -}}{{- $found = append $found (.namespace | default "slurm") -}}{{- end -}}
{{ $found | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The image of one component; {image, version}. */}}
{{- define "lockstep.image" -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .version }}{{ end }}
{{- end }}
