{{/* A role and who has it; {root, component, kind, title, namespace, account, rules, annotations}. */}}
{{- define "lockstep.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:{{ include "lockstep.role.metadata" . | nindent 2 }}
rules:{{ toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:{{ include "lockstep.role.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .title }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "lockstep.role.metadata" -}}
name: {{ .title }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:{{ include "lockstep.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:{{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
