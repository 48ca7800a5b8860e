{{- define "fdn.keysSecret" -}}
{{- .Values.controllers.keys.existingSecret | default (printf "%s-keys" (include "fdn.name" .)) }}
{{- end }}

{{- define "fdn.artifactsClaim" -}}
{{- .Values.controllers.artifacts.volume.existingClaim | default (printf "%s-artifacts" (include "fdn.name" .)) }}
{{- end }}

{{/* What the chart sets of deploy/config/controller.toml; database.url, broker.url and edge.name come from the environment. */}}
{{- define "fdn.controllers.settings" -}}
{{- $values := .Values.controllers -}}
listen: "0.0.0.0:8600"
zone: {{ required "controllers.zone is needed: the zone under which apps get their host names, such as fn.example.org" $values.zone | quote }}
gateway_port: {{ .Values.agents.ports.gateway }}
log:
  filter: {{ .Values.log.filter | quote }}
network:
  token_file: /etc/fdn/keys/network.token
  key_file: /etc/fdn/keys/network.key
secrets:
  master_key_file: /etc/fdn/keys/master.key
accounts:
  admin: {{ $values.admin | quote }}
  initial_password_file: /etc/fdn/keys/admin.password
edge:
  listen: "0.0.0.0:8601"
  controllers:
    {{- include "fdn.advertised" . | nindent 4 }}
singletons:
  # Longer than it takes until no Service leads here any more.
  linger: 10s
{{- if $values.database.passwordKey }}
database:
  password_file: /etc/fdn/database/password
{{- end }}
{{- if $values.broker.passwordKey }}
broker:
  password_file: /etc/fdn/broker/password
{{- end }}
artifacts:
  {{- if eq $values.artifacts.store "s3" }}
  {{- with $values.artifacts.s3 }}
  s3:
    bucket: {{ required "controllers.artifacts.s3.bucket is needed with controllers.artifacts.store=s3" .bucket | quote }}
    region: {{ .region | quote }}
    {{- with .endpoint }}
    endpoint: {{ . | quote }}
    {{- end }}
    prefix: {{ .prefix | quote }}
    access_key_file: /etc/fdn/s3/access
    secret_key_file: /etc/fdn/s3/secret
    allow_http: {{ .allowHttp }}
  {{- end }}
  {{- else }}
  local: /var/lib/fdn/artifacts
  {{- end }}
api:
  trusted_proxies: {{ toJson $values.trustedProxies }}
  {{- if $values.tls.secret }}
  tls:
    certificates:
      - { certificate_file: /etc/fdn/tls/tls.crt, key_file: /etc/fdn/tls/tls.key }
  {{- end }}
{{- end }}
