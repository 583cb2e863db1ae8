{{- define "slurm.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- /* ClusterName of slurm.conf. */}}
{{- define "slurm.cluster" -}}
{{ .Values.controller.spec.clusterName | default (include "slurm.name" .) }}
{{- end }}

{{- define "slurm.labels" -}}
app.kubernetes.io/part-of: {{ include "slurm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "slurm.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}{{ end }}
{{- end }}

{{- /* An object of ours: (list $ kind name values spec), spec being the values' with what is missing filled in. */}}
{{- define "slurm.object" -}}
{{- $top := index . 0 }}{{ $values := index . 3 -}}
apiVersion: slurmtide.io/v1alpha1
kind: {{ index . 1 }}
metadata:
  name: {{ index . 2 }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "slurm.labels" $top | nindent 4 }}
    {{- with $values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec: {{- toYaml (index . 4) | nindent 2 }}
{{- end }}

{{- /* Secrets to pull with, in a pod's template. */}}
{{- define "slurm.template" -}}
{{- with .Values.imagePullSecrets }}
template:
  spec:
    imagePullSecrets: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* The container slurmd of a NodeSet: (list $ values). slurmd wants the key of auth/slurm as a file. */}}
{{- define "slurm.slurmd" -}}
{{- $top := index . 0 }}{{ $slurmd := (index . 1).slurmd | default dict }}
{{- $key := $top.Values.controller.spec.slurmKeyRef | default (dict "name" (printf "%s-auth-slurm" (include "slurm.name" $top)) "key" "slurm.key") }}
{{- $env := list (dict "name" "SLURM_KEY" "valueFrom" (dict "secretKeyRef" $key)) }}
{{- $keep := `(umask 077; printf %s "$SLURM_KEY" >/etc/slurm/slurm.key); unset SLURM_KEY; exec "$@"` }}
{{- $ours := dict "name" "slurmd" "image" (include "slurm.image" $top) "imagePullPolicy" $top.Values.image.pullPolicy "command" (list "/bin/sh" "-c" $keep "sh") }}
{{- toYaml (merge (dict "env" (concat $env ($slurmd.env | default list))) $slurmd $ours) }}
{{- end }}
