{{/* One service: its account, its Deployment, its budget; {root, service}. */}}
{{- define "lockstep.service" -}}
{{- $root := .root -}}
{{- $title := printf "%s-%s" (include "lockstep.fullname" $root) .service -}}
{{- $about := dict "root" $root "component" .service -}}
{{- $selector := include "lockstep.selector" $about -}}
{{- $pods := mergeOverwrite (deepCopy $root.Values.pods) (index $root.Values.services .service | default dict | deepCopy) -}}
{{- $settings := include "lockstep.settings" $root -}}
{{- $secrets := include "lockstep.secrets" . -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $title }}
  namespace: {{ $root.Release.Namespace }}
  labels:{{ include "lockstep.labels" $about | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $title }}
  namespace: {{ $root.Release.Namespace }}
  labels:{{ include "lockstep.labels" $about | nindent 4 }}
spec:
  replicas: {{ $pods.replicas }}
  revisionHistoryLimit: 3
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:{{ $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- mergeOverwrite (deepCopy $pods.podLabels) (include "lockstep.podlabels" $about | fromYaml) | toYaml | nindent 8 }}
      annotations:
        checksum/settings: {{ sha256sum $settings }}
        kubectl.kubernetes.io/default-container: {{ .service }}
        {{- with $pods.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ $title }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- include "lockstep.placement" (dict "root" $root "pods" $pods "selector" $selector) | trim | nindent 6 }}
      containers:
        - name: {{ .service }}
          image: {{ include "lockstep.image" (dict "image" $root.Values.image "version" $root.Chart.AppVersion) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [lockstep-{{ .service }}, --config, /etc/lockstep/settings.yaml]
          env:
            - {name: LOCKSTEP_CONFIG, value: /etc/lockstep/settings.yaml}
            {{- with include "lockstep.nats.user" . }}
            - {name: LOCKSTEP_NATS_USER, value: {{ . | quote }}}
            {{- end }}
            {{- with $pods.extraEnv }}{{ toYaml . | nindent 12 }}{{ end }}
          ports:
            - {name: http, containerPort: 8080}
          startupProbe:
            httpGet: {path: /livez, port: http}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /livez, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 3
            timeoutSeconds: 5
          securityContext:{{ include "lockstep.confined" . | nindent 12 }}
          {{- with $pods.resources }}
          resources:{{ toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - {name: settings, mountPath: /etc/lockstep, readOnly: true}
            {{- if $secrets }}
            - {name: secrets, mountPath: /var/run/lockstep, readOnly: true}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ include "lockstep.fullname" $root }}-settings}
        {{- with $secrets }}
        - name: secrets
          projected:
            defaultMode: 0440
            sources: {{- . | trim | nindent 14 }}
        {{- end }}
{{- if $root.Values.podDisruptionBudget.enabled }}
---
{{ include "lockstep.budget" (merge (dict "title" $title) $about) }}
{{- end }}
{{- end }}

{{/* Who a service is on NATS; empty where a credentials file says it; {root, service}. */}}
{{- define "lockstep.nats.user" -}}
{{- $nats := .root.Values.nats -}}
{{ ternary .service (replace "{service}" .service $nats.user) $nats.enabled }}
{{- end }}
