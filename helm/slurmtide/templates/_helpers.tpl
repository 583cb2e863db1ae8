{{- define "slurmtide.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if not (regexMatch "^[a-z][a-z0-9-]*$" .Release.Name) }}
{{- fail (printf "no Service can be called after the release %s: set fullnameOverride to lower-case letters, digits and '-', a letter first" .Release.Name) }}
{{- else if contains "slurmtide" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-slurmtide" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Labels that selectors use: (list $ component). They must never change. */}}
{{- define "slurmtide.selector" -}}
app.kubernetes.io/name: slurmtide
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "slurmtide.labels" -}}
{{- $top := index . 0 }}
{{- include "slurmtide.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ $top.Chart.Name }}-{{ $top.Chart.Version }}
{{- with $top.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "slurmtide.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- /* The account of a daemon: (list $ component). */}}
{{- define "slurmtide.account" -}}
{{- $top := index . 0 }}{{ $component := index . 1 }}
{{- $account := (index $top.Values $component).serviceAccount }}
{{- if $account.name }}{{ $account.name }}{{ else if $account.create }}{{ include "slurmtide.name" $top }}-{{ $component }}{{ else }}default{{ end }}
{{- end }}

{{- /* What both daemons' pods have: (list $ component). */}}
{{- define "slurmtide.pod" -}}
{{- $top := index . 0 }}{{ $component := index . 1 }}{{ $daemon := index $top.Values $component -}}
serviceAccountName: {{ include "slurmtide.account" . }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- with $top.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $daemon.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $daemon.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $daemon.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $daemon.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "slurmtide.spread" -}}
{{- $selector := index . 1 | fromYaml }}
{{- with index . 0 }}
topologySpreadConstraints:
{{- range . }}
{{- $default := dict "labelSelector" (dict "matchLabels" $selector) }}
- {{ toYaml (merge (deepCopy .) $default) | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the daemons' containers have: (list $ component https), which are their probes'. */}}
{{- define "slurmtide.container" -}}
{{- $top := index . 0 }}{{ $component := index . 1 }}{{ $daemon := index $top.Values $component }}{{ $tls := index . 2 -}}
image: {{ include "slurmtide.image" $top | quote }}
imagePullPolicy: {{ $top.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
livenessProbe:
  httpGet:
    path: /livez
    port: metrics
    {{- if $tls }}
    scheme: HTTPS
    {{- end }}
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
    {{- if $tls }}
    scheme: HTTPS
    {{- end }}
{{- with $daemon.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $daemon.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* How a PodMonitor reads metrics: (list interval tls). */}}
{{- define "slurmtide.endpoint" -}}
- port: metrics
  interval: {{ index . 0 }}
  {{- with index . 1 }}
  {{- if .secretName }}
  scheme: https
  {{- with .podMonitor }}
  tlsConfig: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* The groups of a file of alerts, each metric with matchers before its own: (list $ file matchers). */}}
{{- define "slurmtide.alerts" -}}
{{- $ours := list }}
{{- range $label, $value := index . 2 }}{{ $ours = append $ours (printf "%s=%q" $label $value) }}{{ end }}
{{- $ours = join "," $ours | replace "$" "$$" }}
{{- $text := (index . 0).Files.Get (printf "alerts/%s.yaml" (index . 1)) }}
{{- $text = regexReplaceAll `(slurm[a-z_]*\{)([a-z])` $text (printf "${1}%s,${2}" $ours) }}
{{- $text = regexReplaceAll `(slurm[a-z_]*)\{\}` $text (printf "${1}{%s}" $ours) }}
{{- regexReplaceAll `(?s)^.*\ngroups:\n` $text "" | trim }}
{{- end }}
