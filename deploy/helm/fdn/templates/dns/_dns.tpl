{{/* What the chart sets of deploy/config/dns.toml; each server's name comes from its pod. */}}
{{- define "fdn.dns.settings" -}}
{{- $values := .Values.dns -}}
server: named-by-the-command-line
data_dir: /var/lib/fdn-dns
listen: ["0.0.0.0:{{ $values.port }}"]
admin: "{{ $values.adminAddress | default (ternary "127.0.0.1" "0.0.0.0" $values.hostNetwork) }}:8602"
log:
  filter: {{ .Values.log.filter | quote }}
zone:
  name: {{ required "dns.zone is needed: the zone that the servers answer for, the controllers' own" $values.zone | quote }}
  servers: {{ required "dns.servers is needed: the name servers with their public addresses, such as [{name: ns1.fn.example.org, addresses: [192.0.2.53]}]" ($values.servers | default "") | toJson }}
  {{- if $values.dnssec.secret }}
  dnssec:
    key_file: /etc/fdn/dnssec/dnssec.keys
    master_key_file: /etc/fdn/dnssec/master.key
  {{- end }}
{{- with include "fdn.centreControllers" . }}
centre:
  controllers:
    {{- . | nindent 4 }}
{{- end }}
{{- if $values.encrypted.secret }}
encrypted:
  {{- with $values.encrypted.tlsPort }}
  tls: ["0.0.0.0:{{ . }}"]
  {{- end }}
  {{- with $values.encrypted.httpsPort }}
  https: ["0.0.0.0:{{ . }}"]
  {{- end }}
  certificate_file: /etc/fdn/tls/tls.crt
  key_file: /etc/fdn/tls/tls.key
{{- end }}
{{- end }}

{{/* Name, port and protocol of each listener for clients, and the Service's port of it, as a list. */}}
{{- define "fdn.dns.listeners" -}}
{{- $values := .Values.dns -}}
- { name: dns-udp, protocol: UDP, port: {{ $values.port }}, service: 53 }
- { name: dns-tcp, protocol: TCP, port: {{ $values.port }}, service: 53 }
{{- if $values.encrypted.secret }}
{{- with $values.encrypted.tlsPort }}
- { name: dns-tls, protocol: TCP, port: {{ . }}, service: 853 }
{{- end }}
{{- with $values.encrypted.httpsPort }}
- { name: dns-https, protocol: TCP, port: {{ . }}, service: 443 }
{{- end }}
{{- end }}
{{- end }}

{{/* What a server is called, and where it is. */}}
{{- define "fdn.dns.names" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
