{{/* The lease: kube-scheduler's own where ksched takes its place, so that the two never schedule at the same time. */}}
{{- define "ksched.lease" -}}
{{ if eq .Values.mode "instead" }}kube-scheduler{{ else }}ksched{{ end }}
{{- end }}

{{- define "ksched.schedulerName" -}}
{{ if eq .Values.mode "instead" }}default-scheduler{{ else }}ksched{{ end }}
{{- end }}

{{/* The manifests name the namespace, as those of kustomize do. */}}
{{- define "ksched.checked" -}}
{{- if ne .Release.Namespace "kube-system" }}
{{- fail (printf "namespace: got %s, wanted kube-system" .Release.Namespace) }}
{{- end }}
{{- end }}

{{- define "ksched.probe" -}}
httpGet:
  path: {{ . }}
  port: metrics
  scheme: HTTPS
{{- end }}
