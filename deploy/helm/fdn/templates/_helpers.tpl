{{/* What names begin with. */}}
{{- define "fdn.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The labels that select the pods of a component: they never change. Arguments: root, component. */}}
{{- define "fdn.selector" -}}
app.kubernetes.io/name: fdn
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels of an object. Arguments: root, component. */}}
{{- define "fdn.labels" -}}
{{ include "fdn.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Name, namespace and labels of an object. Arguments: root, component, name. */}}
{{- define "fdn.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "fdn.labels" . | nindent 2 }}
{{- end }}

{{/* The image of a program. Arguments: root, program. */}}
{{- define "fdn.image" -}}
{{- $image := .root.Values.image -}}
{{- $digest := get $image.digests .program -}}
{{ $image.registry }}/{{ .program }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What all pods have in common. Arguments: root, values (of the component), lowPorts (whether a port below 1024 is listened on). */}}
{{- define "fdn.pod" -}}
# No variables for services: FDN_… are settings.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .root.Values.user }}
  runAsGroup: {{ .root.Values.user }}
  fsGroup: {{ .root.Values.user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
  {{- if .lowPorts }}
  sysctls:
    # Of the pod's own network: its user may listen below 1024.
    - name: net.ipv4.ip_unprivileged_port_start
      value: "0"
  {{- end }}
{{- end }}

{{/* What all containers of a program have in common. Arguments: root, program. */}}
{{- define "fdn.container" -}}
image: {{ include "fdn.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Arguments: root, component, values. */}}
{{- define "fdn.spread" -}}
{{- with .values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- include "fdn.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* How a program logs: a variable, because the image has it too, which counts over settings. */}}
{{- define "fdn.logFormat" -}}
- { name: FDN_LOG__FORMAT, value: {{ .Values.log.format }} }
{{- end }}

{{/* The controllers' API, where machines join. */}}
{{- define "fdn.centreUrl" -}}
{{- $url := .Values.centre.url -}}
{{- if and (not $url) .Values.controllers.enabled -}}
{{- $url = printf "%s://%s-controller.%s.svc.%s:8600" (ternary "https" "http" (ne .Values.controllers.tls.secret "")) (include "fdn.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}
{{- if not $url }}{{ fail "centre.url is needed: where DNS servers and agents find the controllers, such as https://controller.example.org" }}{{ end -}}
{{- if and (hasPrefix "http://" $url) (not .Values.centre.allowPlainHttp) -}}
{{- fail (printf "machines would join at %s, which is not encrypted: set controllers.tls.secret or an https centre.url, or centre.allowPlainHttp where nobody else can change what is on the way" $url) -}}
{{- end -}}
{{- $url }}
{{- end }}

{{/* Where each controller of this release is reached by machines of this Kubernetes cluster, as a list. */}}
{{- define "fdn.controllersHere" -}}
{{- $name := include "fdn.name" . -}}
{{- range $at := until (int .Values.controllers.replicas) }}
- {{ $name }}-controller-{{ $at }}.{{ $name }}-controllers.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:8601
{{- end }}
{{- end }}

{{/* Where machines that join are told to find the controllers, as a list. */}}
{{- define "fdn.advertised" -}}
{{- with .Values.controllers.edge }}
{{- if .advertise }}
{{- toYaml .advertise }}
{{- else if eq .type "ClusterIP" }}
{{- include "fdn.controllersHere" $ }}
{{- else }}
{{- fail (printf "controllers.edge.advertise is needed with controllers.edge.type=%s: HOST:PORT at which machines reach the controllers' edge listeners" .type) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the machines of this release find the controllers, as a list; nothing if they are to keep to what they were told. */}}
{{- define "fdn.centreControllers" -}}
{{- if .Values.centre.controllers }}
{{- toYaml .Values.centre.controllers }}
{{- else if .Values.controllers.enabled }}
{{- include "fdn.controllersHere" . }}
{{- end }}
{{- end }}

{{/* What a machine's container that joins is told beside its name and address. */}}
{{- define "fdn.joinArguments" -}}
- {{ include "fdn.centreUrl" . }}
- --token-file=/etc/fdn/join/token
{{- if .Values.centre.allowPlainHttp }}
- --allow-plain-http
{{- end }}
{{- if .Values.centre.ca }}
- --ca-file=/etc/fdn/config/centre-ca.pem
{{- end }}
{{- end }}

{{/* A Secret as a volume. Arguments: name (of the volume), secret, items (path by key), optional. */}}
{{- define "fdn.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0400
    {{- if .optional }}
    optional: true
    {{- end }}
    items:
      {{- range $key, $path := .items }}
      - { key: {{ $key | quote }}, path: {{ $path }} }
      {{- end }}
{{- end }}

{{/* A claim's class, if one is named. */}}
{{- define "fdn.storageClass" -}}
{{- with . }}
storageClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Ports of a Service: how it is reached from elsewhere. Argument: the values of the Service. */}}
{{- define "fdn.service" -}}
type: {{ .type }}
{{- if ne .type "ClusterIP" }}
# Clients' addresses arrive as they are.
externalTrafficPolicy: Local
{{- end }}
{{- if eq .type "LoadBalancer" }}
{{- with .sourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A port's own number on nodes, if one is given. Argument: the values of the Service. */}}
{{- define "fdn.nodePort" -}}
{{- if and .nodePort (ne .type "ClusterIP") }}
nodePort: {{ .nodePort }}
{{- end }}
{{- end }}
