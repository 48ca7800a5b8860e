{{/* A table of settings as TOML: values first, then tables. Numbers of values.yaml arrive as floats, so whole ones are written as integers, which the
     programs take for either. Arguments: at (the table's own name, empty for the outermost), table. */}}
{{- define "fdn.toml" -}}
{{- $at := .at -}}
{{- range $key, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "fdn.tomlKey" $key }} = {{ include "fdn.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}
{{- $path := include "fdn.tomlKey" $key }}
{{- if $at }}{{ $path = printf "%s.%s" $at $path }}{{ end }}

[{{ $path }}]
{{- include "fdn.toml" (dict "at" $path "table" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "fdn.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toRawJson . }}{{ end }}
{{- end }}

{{- define "fdn.tomlValue" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{- $pairs = append $pairs (printf "%s = %s" (include "fdn.tomlKey" $key) (include "fdn.tomlValue" $value)) -}}
{{- end }}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}
{{- $items = append $items (include "fdn.tomlValue" .) -}}
{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else -}}
{{- toRawJson . }}
{{- end }}
{{- end }}

{{/* What the chart sets and, over it, what the values set, as the text of a settings file. Arguments: chart (YAML), values. */}}
{{- define "fdn.settings" -}}
{{- $all := mergeOverwrite (fromYaml .chart) (deepCopy .values) -}}
{{- if hasKey $all "Error" }}{{ fail $all.Error }}{{ end -}}
{{- trim (include "fdn.toml" (dict "at" "" "table" $all)) }}
{{- end }}

{{/* A text as a block in YAML, without spaces at the ends of lines. Arguments: text, by (how far it is indented). */}}
{{- define "fdn.block" -}}
{{- regexReplaceAll "(?m)[ ]+$" (indent (int .by) .text) "" }}
{{- end }}
