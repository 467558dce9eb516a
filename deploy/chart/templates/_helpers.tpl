{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "penstock.secret" -}}
{{ required "existingSecret is empty: name a Secret with database-url, worker-token, operator-token, admin-token and viewer-token" .Values.existingSecret }}
{{- end }}

{{- define "penstock.environment" -}}
- { name: DW_AUTH_BACKWARD_COMPATIBLE, value: "false" }
- { name: DW_LOG_FORMAT, value: json }
- { name: DW_INSECURE_HTTP, value: {{ .Values.insecureHttp | quote }} }
{{- if .Values.hosts }}
- { name: DW_ALLOWED_HOSTS, value: {{ join "," .Values.hosts | quote }} }
{{- end }}
{{- if .Values.trustedProxies }}
- { name: DW_TRUSTED_PROXIES, value: {{ join "," .Values.trustedProxies | quote }} }
{{- end }}
- { name: DW_DATABASE_URL, valueFrom: { secretKeyRef: { name: {{ include "penstock.secret" . }}, key: database-url } } }
- { name: DW_WORKER_TOKEN, valueFrom: { secretKeyRef: { name: {{ include "penstock.secret" . }}, key: worker-token } } }
- { name: DW_OPERATOR_TOKEN, valueFrom: { secretKeyRef: { name: {{ include "penstock.secret" . }}, key: operator-token } } }
- { name: DW_ADMIN_TOKEN, valueFrom: { secretKeyRef: { name: {{ include "penstock.secret" . }}, key: admin-token } } }
- { name: DW_VIEWER_TOKEN, valueFrom: { secretKeyRef: { name: {{ include "penstock.secret" . }}, key: viewer-token } } }
{{- range $name, $value := .Values.settings }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end }}

{{- define "penstock.container" -}}
image: {{ include "penstock.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "penstock.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile: { type: RuntimeDefault }
volumes:
  - { name: tmp, emptyDir: {} }
{{- end }}
