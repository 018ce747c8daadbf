{{/* What all pods of this chart have in common. */}}

{{/* Where and how a pod may run; {root, pods, selector}. */}}
{{- define "lockstep.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:{{ toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.nodeSelector }}
nodeSelector:{{ toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.tolerations }}
tolerations:{{ toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
affinity:
{{- if .pods.affinity }}
  {{- toYaml .pods.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:{{ .selector | nindent 14 }}
{{- end }}
{{- if .pods.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range .pods.topologySpreadConstraints }}
  - {{ toYaml (merge (dict) . (dict "labelSelector" (dict "matchLabels" ($.selector | fromYaml)))) | nindent 4 | trim }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "lockstep.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A budget: at most one pod of a component at a time; {root, component, name, title}. */}}
{{- define "lockstep.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .title }}
  namespace: {{ .root.Release.Namespace }}
  labels:{{ include "lockstep.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:{{ include "lockstep.selector" . | nindent 6 }}
{{- end }}
