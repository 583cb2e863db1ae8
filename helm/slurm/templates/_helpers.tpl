{{- define "slurm.name" -}}
{{- $name := .Values.name | default .Release.Name }}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$" $name) }}
{{- fail (printf "the release is called %s, and so would the Controller be, whose name must be at most 40 lower-case letters, digits and '-', a letter first: set name" $name) }}
{{- end }}
{{- $name }}
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
  name: {{ index . 2 | quote }}
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

{{- /* The Accounting that the Controller refers to; empty if there is none. */}}
{{- define "slurm.accounting" -}}
{{- if .Values.accounting.enabled }}{{ include "slurm.name" . }}{{ else }}{{ dig "accountingRef" "name" "" .Values.controller.spec }}{{ end }}
{{- end }}

{{- /* Where the key of auth/slurm, or auth/jwt, is: (list $ field of the spec, what names of Secrets that are made end in, its key there). It is the
Controller's unless the Accounting, which it has in common with others, names another. */}}
{{- define "slurm.key" -}}
{{- $top := index . 0 }}{{ $field := index . 1 }}
{{- $accounting := $top.Values.accounting.enabled | ternary (get $top.Values.accounting.spec $field) "" }}
{{- $owner := $top.Values.accounting.enabled | ternary (include "slurm.name" $top) (include "slurm.accounting" $top | default (include "slurm.name" $top)) }}
{{- toYaml (get $top.Values.controller.spec $field | default $accounting | default (dict "name" (printf "%s-%s" $owner (index . 2)) "key" (index . 3))) }}
{{- end }}

{{- /* The container slurmd of a NodeSet: (list $ values). slurmd wants the key of auth/slurm as a file. */}}
{{- define "slurm.slurmd" -}}
{{- $top := index . 0 }}{{ $slurmd := (index . 1).slurmd | default dict }}
{{- $key := include "slurm.key" (list $top "slurmKeyRef" "auth-slurm" "slurm.key") | fromYaml }}
{{- $env := list (dict "name" "SLURM_KEY" "valueFrom" (dict "secretKeyRef" $key)) }}
{{- $keep := `(umask 077; printf %s "$SLURM_KEY" >/etc/slurm/slurm.key); unset SLURM_KEY; init=$(command -v tini) && set -- "$init" -s -- "$@"; exec "$@"` }}
{{- $ours := dict "name" "slurmd" "image" (include "slurm.image" $top) "imagePullPolicy" $top.Values.image.pullPolicy "command" (list "/bin/sh" "-c" $keep "sh") }}
{{- toYaml (merge (dict "env" (concat $env ($slurmd.env | default list))) $slurmd $ours) }}
{{- end }}

{{- /* The groups of a file of alerts, each metric with matchers before its own: (list $ file matchers). */}}
{{- define "slurm.alerts" -}}
{{- $ours := list }}
{{- range $label, $value := index . 2 }}{{ $ours = append $ours (printf "%s=%q" $label $value) }}{{ end }}
{{- $ours = join "," $ours | replace "$" "$$" }}
{{- $text := (index . 0).Files.Get (printf "alerts/%s.yaml" (index . 1)) }}
{{- $text = regexReplaceAll `(slurm[a-z_]*\{)([a-z])` $text (printf "${1}%s,${2}" $ours) }}
{{- $text = regexReplaceAll `(slurm[a-z_]*)\{\}` $text (printf "${1}{%s}" $ours) }}
{{- regexReplaceAll `(?s)^.*\ngroups:\n` $text "" | trim }}
{{- end }}
