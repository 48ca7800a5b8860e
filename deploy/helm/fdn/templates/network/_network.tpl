{{/* A policy's beginning. Arguments: root, component. */}}
{{- define "fdn.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "fdn.metadata" (dict "root" .root "component" .component "name" (printf "%s-%s" (include "fdn.name" .root) .component)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "fdn.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}

{{/* One rule. With peers, those and the named components, as far as they run in this release; without, everybody. Arguments: root, way (from or to), peers, components, ports,
     protocol. */}}
{{- define "fdn.rule" -}}
{{- $root := .root -}}
- ports:
    {{- $protocol := .protocol | default "TCP" }}
    {{- range .ports }}
    - { protocol: {{ $protocol }}, port: {{ . }} }
    {{- end }}
  {{- if .peers }}
  {{ .way }}:
    {{- toYaml .peers | nindent 4 }}
    {{- range .components }}
    {{- $values := get $root.Values (dict "controller" "controllers" "test" "controllers" "dns" "dns" "edge-agent" "agents" | dig . "") }}
    {{- if $values.enabled }}
    - podSelector:
        matchLabels:
          {{- include "fdn.selector" (dict "root" $root "component" .) | nindent 10 }}
    {{- end }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Asking the cluster's own DNS. */}}
{{- define "fdn.clusterDns" -}}
{{- range list "UDP" "TCP" }}
{{ include "fdn.rule" (dict "root" $ "way" "to" "peers" $.Values.networkPolicies.clusterDns "ports" (list 53 5353) "protocol" .) }}
{{- end }}
{{- end }}
