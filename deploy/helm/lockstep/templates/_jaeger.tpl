{{/* Jaeger 2 with its memory storage: OTLP over HTTP in, its page and API out. */}}
{{- define "lockstep.jaeger.config" -}}
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_storage:
    backends:
      memory:
        memory: {max_traces: {{ .Values.jaeger.traces }}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "0.0.0.0:16686"}
    grpc: {endpoint: "127.0.0.1:16685"}
receivers:
  otlp:
    protocols:
      http: {endpoint: "0.0.0.0:4318"}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
{{- end }}
