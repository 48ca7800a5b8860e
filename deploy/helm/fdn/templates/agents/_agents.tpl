{{/* What the chart sets of deploy/config/edge-agent.toml; the node's name and where it is reached come from its pod. */}}
{{- define "fdn.agents.settings" -}}
{{- $values := .Values.agents -}}
{{- $data := "/var/lib/fdn/edge-agent" -}}
node: named-by-the-command-line
cluster: {{ required "agents.cluster is needed: the FDN cluster that the nodes are of" $values.cluster | quote }}
region: {{ required "agents.region is needed: the region of the FDN cluster" $values.region | quote }}
{{- with $values.location }}
location: { lat: {{ .lat }}, lon: {{ .lon }} }
{{- end }}
data: {{ $data }}
log:
  filter: {{ .Values.log.filter | quote }}
gateway:
  listen: "0.0.0.0:{{ $values.ports.gateway }}"
  {{- if $values.gateway.tlsSecret }}
  tls:
    listen: "0.0.0.0:{{ $values.ports.gatewayTls }}"
    certificates:
      - { certificate_file: /etc/fdn/tls/tls.crt, key_file: /etc/fdn/tls/tls.key }
  {{- end }}
admin:
  listen: "0.0.0.0:{{ $values.ports.admin }}"
controller:
  url: {{ include "fdn.centreUrl" . | quote }}
  {{- if .Values.centre.ca }}
  ca_file: /etc/fdn/config/centre-ca.pem
  {{- end }}
centre:
  controllers:
    {{- required "centre.controllers is needed: the controllers' edge listeners, as HOST:PORT" (include "fdn.centreControllers" .) | nindent 4 }}
network:
  token_file: {{ $data }}/identity/node.token
tls:
  ca: {{ $data }}/identity/ca.pem
  certificate: {{ $data }}/identity/node.pem
  key: {{ $data }}/identity/node.key
peers:
  enabled: {{ $values.peers.enabled }}
  {{- if $values.peers.enabled }}
  cluster:
    listen: "0.0.0.0:{{ $values.ports.peers }}"
    seeds: {{ required "agents.peers.seeds is needed: addresses of one or two nodes that last, as IP:8443 (or agents.peers.enabled=false)" ($values.peers.seeds | default "") | toJson }}
  {{- end }}
workflows:
  enabled: {{ $values.workflows.enabled }}
  listen: "0.0.0.0:{{ $values.ports.stages }}"
capacity:
  cpu_milli: {{ $values.capacity.cpuMilli }}
  memory: {{ $values.capacity.memory }}
kubernetes:
  enabled: {{ $values.kubernetes.enabled }}
  {{- if $values.kubernetes.enabled }}
  namespace: {{ $values.kubernetes.namespace }}
  network_policies: {{ $values.kubernetes.networkPolicies }}
  image_pull_secrets: {{ toJson $values.kubernetes.imagePullSecrets }}
  {{- end }}
{{- end }}

{{/* Name and number of each port of a node, and whether clients reach it (else the network's own machines), as a list. */}}
{{- define "fdn.agents.listeners" -}}
{{- $values := .Values.agents -}}
- { name: gateway, port: {{ $values.ports.gateway }}, for: clients }
{{- if $values.gateway.tlsSecret }}
- { name: gateway-tls, port: {{ $values.ports.gatewayTls }}, for: clients }
{{- end }}
- { name: admin, port: {{ $values.ports.admin }}, for: centre }
{{- if $values.peers.enabled }}
- { name: peers, port: {{ $values.ports.peers }}, for: nodes }
{{- end }}
- { name: stages, port: {{ $values.ports.stages }}, for: certificates }
{{- end }}

{{/* What a node is called, and where it is. */}}
{{- define "fdn.agents.names" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: HOST_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
{{- end }}
