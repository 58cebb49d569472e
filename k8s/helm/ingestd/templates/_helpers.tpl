{{/* The settings file: the values, with the folder of the rules that are given beside them. */}}
{{- define "ingestd.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if .Values.rules -}}
{{- $settings = mergeOverwrite $settings (dict "rules" (dict "url" "/etc/ingestd-rules")) -}}
{{- end -}}
{{ toYaml $settings }}
{{- end }}
