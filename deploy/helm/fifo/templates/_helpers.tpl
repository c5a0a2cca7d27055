{{- define "fifo.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "fifo.labels" -}}
app.kubernetes.io/name: fifo
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "fifo.selector" -}}
app.kubernetes.io/name: fifo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fifo.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "fifo.domain" -}}
{{ include "fifo.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "fifo.secretName" -}}
{{ .Values.secret.existingSecret | default (printf "%s-secret" (include "fifo.name" .)) }}
{{- end -}}

{{/* A value as TOML has it: JSON's strings, numbers, booleans and lists are TOML's. */}}
{{- define "fifo.toml" -}}
{{- if kindIs "float64" . -}}{{ int64 . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}
