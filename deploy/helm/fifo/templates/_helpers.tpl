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

{{/* The address of a node's port: of the pod `at`, below the name that outlives it. */}}
{{- define "fifo.address" -}}
{{ include "fifo.name" .top }}-{{ .at }}.{{ include "fifo.domain" .top }}:{{ .port }}
{{- end -}}

{{/* A cluster.toml that names the `nodes`, by their numbers, and members to `join` at. */}}
{{- define "fifo.file" -}}
{{- $top := .top -}}
{{- $name := include "fifo.name" $top -}}
[cluster]
name = {{ $top.Values.clusterName | quote }}
secret_file = "secret/cluster.secret"
{{- if $top.Values.usersInLog }}
users = "log"
{{- end }}
{{- with $top.Values.balancers }}
balancers = {{ toJson . }}
{{- end }}
{{- with .join }}
join = {{ toJson . }}
{{- end }}
{{- range $at := .nodes }}

[[node]]
name = "{{ $name }}-{{ $at }}"
client = "{{ include "fifo.address" (dict "top" $top "at" $at "port" 7101) }}"
peer = "{{ include "fifo.address" (dict "top" $top "at" $at "port" 7102) }}"
http = "{{ include "fifo.address" (dict "top" $top "at" $at "port" 7103) }}"
data_dir = "/var/lib/fifo/{{ $name }}-{{ $at }}"
{{- end }}
{{- with $top.Values.raft }}

[raft]
{{- range $key, $value := . }}
{{ $key }} = {{ include "fifo.toml" $value }}
{{- end }}
{{- end }}
{{- with $top.Values.limits }}

[limits]
{{- range $key, $value := . }}
{{ $key }} = {{ include "fifo.toml" $value }}
{{- end }}
{{- end }}
{{- if or $top.Values.tls.enabled $top.Values.peerTls.enabled }}

[tls]
{{- if $top.Values.tls.enabled }}
client_cert = "tls/tls.crt"
client_key = "tls/tls.key"
{{- end }}
{{- if and $top.Values.peerTls.enabled $top.Values.peerTls.csiDriver }}
peer_cert = "/run/fifo/peer/tls.crt"
peer_key = "/run/fifo/peer/tls.key"
peer_ca = "/run/fifo/peer/ca.crt"
{{- else if $top.Values.peerTls.enabled }}
peer_cert = "peers/{node}/tls.crt"
peer_key = "peers/{node}/tls.key"
peer_ca = "peers/{{ $name }}-0/ca.crt"
{{- end }}
{{- end }}
{{- range $top.Values.users }}

[[user]]
{{- range $key, $value := . }}
{{ $key }} = {{ include "fifo.toml" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The file with which the cluster began: what it says does not change with the number of pods. */}}
{{- define "fifo.beginning" -}}
{{ include "fifo.file" (dict "top" . "nodes" (until (int .Values.founders)) "join" list) }}
{{- end -}}
