{{- define "sarit.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sarit.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sarit.labels" -}}
{{ include "sarit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sarit.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "sarit.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "sarit.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "sarit.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sarit.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "sarit.httpNames" -}}
{{- $root := index . "root" -}}
{{- range $service := index . "services" -}}
{{- range $name := list $service (printf "%s.%s" $service $root.Release.Namespace) (printf "%s.%s.svc" $service $root.Release.Namespace) (printf "%s.%s.svc.%s" $service $root.Release.Namespace $root.Values.clusterDomain) }}
- --http-name={{ $name }}
{{- end -}}
{{- end -}}
{{- range $name := $root.Values.httpNames }}
- --http-name={{ $name }}
{{- end -}}
{{- end -}}

{{- define "sarit.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- with .Values.s3.existingSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_ACCESS_KEY_ID}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_SECRET_ACCESS_KEY}}
{{- end }}
{{- with .Values.s3.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.s3.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.security }}
{{- if .existingSecret }}
- name: SARIT_TLS_CERT
  value: /etc/sarit-security/tls.crt
- name: SARIT_TLS_KEY
  value: /etc/sarit-security/tls.key
- name: SARIT_TLS_CA
  value: /etc/sarit-security/ca.crt
{{- if .users }}
- name: SARIT_USERS
  value: /etc/sarit-security/users
- name: SARIT_TOKEN_KEYS
  value: /etc/sarit-security/token-keys
{{- end }}
{{- if .zookeeperAuth }}
- name: SARIT_ZOOKEEPER_AUTH
  value: /etc/sarit-security/zookeeper-auth
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A restart mends a process that stands still, and nothing else: liveness asks whether its event loop turns. */}}
{{- define "sarit.probes" -}}
startupProbe:
  {{- if .Values.security.existingSecret }}
  exec: {command: [sarit-probe, livez]}
  {{- else }}
  httpGet: {path: /livez, port: http}
  {{- end }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- if .Values.security.existingSecret }}
  exec: {command: [sarit-probe, livez]}
  {{- else }}
  httpGet: {path: /livez, port: http}
  {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- if .Values.security.existingSecret }}
  exec: {command: [sarit-probe, readyz]}
  {{- else }}
  httpGet: {path: /readyz, port: http}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{/* What all pods have: a dict with root, part ("node", "store", "controller") and grace. */}}
{{- define "sarit.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "sarit.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false  # a service named sarit-store would make the variable SARIT_STORE_PORT
terminationGracePeriodSeconds: {{ .grace }}
securityContext:
  {{- include "sarit.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne .part "node" }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sarit.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $.part }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "sarit.podMetadata" -}}
annotations:
  checksum/config: {{ include (print .root.Template.BasePath "/configmap.yaml") .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
labels:
  {{- include "sarit.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "sarit.mounts" -}}
- {name: config, mountPath: /etc/sarit, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.security.existingSecret }}
- {name: security, mountPath: /etc/sarit-security, readOnly: true}
{{- end }}
{{- end -}}

{{- define "sarit.volumes" -}}
- name: config
  configMap: {name: {{ include "sarit.fullname" . }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.temporary.sizeLimit }}}
{{- with .Values.security.existingSecret }}
- name: security
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "sarit.check" -}}
{{- if eq .Values.mode "cluster" -}}
{{- range $key := list "zookeeper" "log" "storage" -}}
{{- if not (index $.Values.cluster $key) -}}
{{- fail (printf "mode cluster needs cluster.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
