{{- /* The name of all objects, and what it begins with. */}}
{{- define "lb-stream.name" -}}
{{- $release := contains "lb-stream" .Release.Name | ternary .Release.Name (printf "%s-lb-stream" .Release.Name) -}}
{{- .Values.fullnameOverride | default $release | trunc 45 | trimSuffix "-" -}}
{{- end }}

{{- define "lb-stream.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "lb-stream.name" .) -}}
{{- end }}

{{- define "lb-stream.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What selects the pods of a component. Takes: root, component. */}}
{{- define "lb-stream.selector" -}}
app.kubernetes.io/name: lb-stream
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lb-stream.labels" -}}
{{ include "lb-stream.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* Metadata of a component's pods. They are replaced when the settings change. */}}
{{- define "lb-stream.podMetadata" -}}
labels:
  {{- include "lb-stream.selector" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ include "lb-stream.data" .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* "true" if tables or checkpoint are on the volume. */}}
{{- define "lb-stream.onVolume" -}}
{{- if or (hasPrefix "/data/" .Values.storage.tables) (hasPrefix "/data/" .Values.storage.checkpoint) -}}
true
{{- end -}}
{{- end }}

{{- /* "true" if only pods of one node reach the volume. */}}
{{- define "lb-stream.onOneNode" -}}
{{- $volume := .Values.storage.volume -}}
{{- if and (include "lb-stream.onVolume" .) (not $volume.existingClaim) (not (has "ReadWriteMany" $volume.accessModes)) -}}
true
{{- end -}}
{{- end }}

{{- define "lb-stream.claim" -}}
{{- .Values.storage.volume.existingClaim | default (include "lb-stream.name" .) -}}
{{- end }}

{{- /* What stands in a pod beside its containers. Takes: root, component, data (whether it reads the tables), and perhaps
volumes (more of them). */}}
{{- define "lb-stream.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "lb-stream.serviceAccount" .root }}
automountServiceAccountToken: {{ and (eq .component "job") (gt (int $values.executors.instances) 0) }}
enableServiceLinks: false
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq .component "job" }}
affinity: # a standby helps most on another node
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "lb-stream.selector" . | nindent 14 }}
{{- else if and .data (include "lb-stream.onOneNode" .root) }}
affinity: # the volume is on the job's node
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "lb-stream.selector" (dict "root" .root "component" "job") | nindent 12 }}
{{- end }}
volumes:
  - name: settings
    configMap: {name: {{ include "lb-stream.name" .root }}}
  - name: tmp
    emptyDir: {}
  {{- if and .data (include "lb-stream.onVolume" .root) }}
  - name: data
    persistentVolumeClaim: {claimName: {{ include "lb-stream.claim" .root }}}
  {{- end }}
  {{- with $values.kafka.tls.secret }}
  - name: kafka-tls
    secret: {secretName: {{ . }}, defaultMode: 288} # 0440
  {{- end }}
  {{- with .volumes }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* What all containers have. Takes: root, data, and perhaps login (the Secret of the component's Kafka login), env, mounts. */}}
{{- define "lb-stream.container" -}}
{{- $values := .root.Values -}}
{{- $kafka := $values.kafka -}}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: HOME, value: /tmp}
  {{- if .data }}
  # As in lb.toml, which the image's own variables would override.
  - {name: LB_STREAM__TABLES, value: {{ $values.storage.tables | quote }}}
  - {name: LB_STREAM__CHECKPOINT, value: {{ $values.storage.checkpoint | quote }}}
  - {name: LB_STREAM__METRICS_ADDRESS, value: "0.0.0.0:9474"}
  {{- end }}
  {{- $login := .login | default $kafka.login.secret }}
  {{- if $login }}
  {{- with $kafka.login.usernameKey }}
  - name: LB_KAFKA__OPTIONS__SASL_PLAIN_USERNAME
    valueFrom: {secretKeyRef: {name: {{ $login }}, key: {{ . }}}}
  {{- end }}
  - name: LB_KAFKA__OPTIONS__SASL_PLAIN_PASSWORD
    valueFrom: {secretKeyRef: {name: {{ $login }}, key: {{ $kafka.login.passwordKey }}}}
  {{- end }}
  {{- if $kafka.tls.keyPasswordKey }}
  - name: LB_KAFKA__OPTIONS__SSL_PASSWORD
    valueFrom: {secretKeyRef: {name: {{ $kafka.tls.secret }}, key: {{ $kafka.tls.keyPasswordKey }}}}
  {{- end }}
  {{- with .env }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if and .data $values.storage.credentialsSecret }}
envFrom:
  - secretRef: {name: {{ $values.storage.credentialsSecret }}}
{{- end }}
volumeMounts:
  - {name: settings, mountPath: /etc/lb-stream, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if and .data (include "lb-stream.onVolume" .root) }}
  - {name: data, mountPath: /data}
  {{- end }}
  {{- if $kafka.tls.secret }}
  - {name: kafka-tls, mountPath: /etc/lb-kafka, readOnly: true}
  {{- end }}
  {{- with .mounts }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Settings of a server's TLS. Takes: tls (values), folder. */}}
{{- define "lb-stream.serverTls" -}}
tls_cert: {{ printf "%s/%s" .folder .tls.certKey | quote }}
tls_key: {{ printf "%s/%s" .folder .tls.keyKey | quote }}
{{- with get .tls "clientCaKey" }}
client_ca: {{ printf "%s/%s" $.folder . | quote }}
{{- end }}
{{- end }}

{{- /* Options of lbctl that name the files of settings. */}}
{{- define "lb-stream.configArgs" -}}
- --config=/etc/lb-stream/lb.toml
{{- if .Values.brokerConf }}
- --broker-conf=/etc/lb-stream/broker.conf
{{- end }}
{{- end }}

{{- /* Sections of lb.toml that follow from values, as YAML; `settings` has the others. */}}
{{- define "lb-stream.ownSettings" -}}
kafka:
  bootstrap_servers: {{ .Values.kafka.bootstrapServers | quote }}
  {{- $options := deepCopy .Values.kafka.options }}
  {{- if .Values.kafka.tls.secret }}
  {{- range $option, $key := dict "ssl_cafile" .Values.kafka.tls.caKey "ssl_certfile" .Values.kafka.tls.certKey "ssl_keyfile" .Values.kafka.tls.keyKey }}
  {{- if $key }}
  {{- $_ := set $options $option (printf "/etc/lb-kafka/%s" $key) }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with $options }}
  options:
    {{- toYaml . | nindent 4 }}
  {{- end }}
stream:
  tables: {{ .Values.storage.tables | quote }}
  checkpoint: {{ .Values.storage.checkpoint | quote }}
  metrics_address: "0.0.0.0:9474"
  {{- with .Values.storage.options }}
  store_options:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.console.tls }}
{{- if .secret }}
console:
  {{- include "lb-stream.serverTls" (dict "tls" . "folder" "/etc/lb-console-tls") | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.monitoring.tls }}
{{- if .secret }}
metrics:
  {{- include "lb-stream.serverTls" (dict "tls" . "folder" "/etc/lb-metrics-tls") | nindent 2 }}
{{- end }}
{{- end }}
{{- if .Values.notify.targets }}
notify:
  state_file: {{ if include "lb-stream.onVolume" . }}/data{{ else }}/tmp{{ end }}/notify.json
{{- end }}
{{- end }}

{{- /* A table of TOML and those in it. Helm's own toToml writes whole numbers as floating-point ones; JSON's scalars and lists
are TOML. Takes: path, table. */}}
{{- define "lb-stream.toml" -}}
[{{ .path }}]
{{- $path := .path }}
{{- range $key, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ regexMatch "^[A-Za-z0-9_-]+$" $key | ternary $key (toJson $key) }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}
{{ include "lb-stream.toml" (dict "path" (printf "%s.%s" $path (regexMatch "^[A-Za-z0-9_-]+$" $key | ternary $key (toJson $key))) "table" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Data of the ConfigMap. */}}
{{- define "lb-stream.data" -}}
lb.toml: |
  {{- $settings := mergeOverwrite (deepCopy .Values.settings) (fromYaml (include "lb-stream.ownSettings" .)) }}
  {{- range $section, $table := $settings }}
  {{- include "lb-stream.toml" (dict "path" $section "table" $table) | nindent 2 }}
  {{- end }}
{{- with .Values.brokerConf }}
broker.conf: |
  {{- . | nindent 2 }}
{{- end }}
{{- if gt (int .Values.executors.instances) 0 }}
executor.yaml: |
  apiVersion: v1
  kind: Pod
  metadata:
    labels:
      {{- include "lb-stream.selector" (dict "root" . "component" "executor") | nindent 6 }}
  spec:
    {{- with .Values.podSecurityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: executor
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        env:
          - {name: HOME, value: /tmp}
        {{- with .Values.storage.credentialsSecret }}
        envFrom:
          - secretRef: {name: {{ . }}}
        {{- end }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- if include "lb-stream.onVolume" . }}
          - {name: data, mountPath: /data}
          {{- end }}
    volumes:
      - name: tmp
        emptyDir: {}
      {{- if include "lb-stream.onVolume" . }}
      - name: data
        persistentVolumeClaim: {claimName: {{ include "lb-stream.claim" . }}}
      {{- end }}
{{- end }}
{{- end }}

{{- /* Refuses values that contradict each other: key, value, what to do. What concerns one value alone is in
values.schema.json. */}}
{{- define "lb-stream.check" -}}
{{- $values := .Values -}}
{{- $kafka := $values.kafka -}}
{{- if not $kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is empty: give Kafka's addresses, as --set kafka.bootstrapServers=kafka-1:9092" -}}
{{- end -}}
{{- range $option := keys $kafka.options | sortAlpha -}}
{{- if has $option (list "sasl_plain_password" "ssl_password") -}}
{{- fail (printf "kafka.options.%s is a secret: put it into a Secret, and name that in kafka.%s" $option (eq $option "ssl_password" | ternary "tls.secret and its key in kafka.tls.keyPasswordKey" "login.secret")) -}}
{{- end -}}
{{- end -}}
{{- $protocol := get $kafka.options "security_protocol" | default "PLAINTEXT" -}}
{{- if and $kafka.login.secret (not (hasPrefix "SASL_" $protocol)) -}}
{{- fail (printf "kafka.login.secret is %s, but kafka.options.security_protocol is %s: set it to SASL_SSL or SASL_PLAINTEXT, or leave the login out" $kafka.login.secret $protocol) -}}
{{- end -}}
{{- if and (not $kafka.login.secret) (has (get $kafka.options "sasl_mechanism" | default "") (list "PLAIN" "SCRAM-SHA-256" "SCRAM-SHA-512")) -}}
{{- fail (printf "kafka.options.sasl_mechanism is %s, but kafka.login.secret is empty: name the Secret with user name and password" $kafka.options.sasl_mechanism) -}}
{{- end -}}
{{- if and $kafka.login.secret $kafka.login.usernameKey (hasKey $kafka.options "sasl_plain_username") -}}
{{- fail (printf "kafka.options.sasl_plain_username is %s, but kafka.login.usernameKey takes the name from a Secret: set that to \"\"" $kafka.options.sasl_plain_username) -}}
{{- end -}}
{{- if and $kafka.tls.secret (not (has $protocol (list "SSL" "SASL_SSL"))) -}}
{{- fail (printf "kafka.tls.secret is %s, but kafka.options.security_protocol is %s: set it to SSL or SASL_SSL" $kafka.tls.secret $protocol) -}}
{{- end -}}
{{- if and (not $kafka.tls.secret) (or $kafka.tls.certKey $kafka.tls.keyKey $kafka.tls.keyPasswordKey) -}}
{{- fail "kafka.tls has keys, but kafka.tls.secret is empty: name the Secret with the certificates" -}}
{{- end -}}
{{- range $option := keys $values.storage.options | sortAlpha -}}
{{- if regexMatch "(secret|password|token|access_key|account_key|credential|sas_key)" $option -}}
{{- fail (printf "storage.options.%s is a secret: put it into a Secret as an environment variable (%s), and name that in storage.credentialsSecret" $option (upper $option)) -}}
{{- end -}}
{{- end -}}
{{- $own := dict -}}
{{- $_ := set $own "kafka.bootstrap_servers" "give kafka.bootstrapServers" -}}
{{- $_ = set $own "kafka.options" "give kafka.options" -}}
{{- $_ = set $own "stream.tables" "give storage.tables" -}}
{{- $_ = set $own "stream.checkpoint" "give storage.checkpoint" -}}
{{- $_ = set $own "stream.store_options" "give storage.options" -}}
{{- $_ = set $own "stream.metrics_address" "leave it out" -}}
{{- range $key := list "tls_cert" "tls_key" "tls_passphrase" -}}
{{- $_ := set $own (printf "console.%s" $key) "give console.tls" -}}
{{- $_ = set $own (printf "metrics.%s" $key) "give monitoring.tls" -}}
{{- end -}}
{{- $_ = set $own "metrics.client_ca" "give monitoring.tls" -}}
{{- if and $values.monitoring.tls.clientCaKey (not $values.monitoring.tls.secret) -}}
{{- fail (printf "monitoring.tls.clientCaKey is %s, but monitoring.tls.secret is empty: name the Secret with the certificates" $values.monitoring.tls.clientCaKey) -}}
{{- end -}}
{{- if and $values.monitoring.serviceMonitor.tlsConfig (not $values.monitoring.tls.secret) -}}
{{- fail "monitoring.serviceMonitor.tlsConfig is set, but monitoring.tls.secret is empty: name the Secret with the certificate, or leave tlsConfig out" -}}
{{- end -}}
{{- $_ = set $own "notify.targets" "give notify.targets" -}}
{{- $_ = set $own "notify.state_file" "leave it out" -}}
{{- range $section, $keys := $values.settings -}}
{{- if kindIs "map" $keys -}}
{{- range $key := keys $keys | sortAlpha -}}
{{- $name := printf "%s.%s" $section $key -}}
{{- if hasKey $own $name -}}
{{- fail (printf "settings.%s is set by the chart: %s" $name (get $own $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $stream := get $values.settings "stream" | default dict -}}
{{- $pods := int $values.job.replicas -}}
{{- $executors := int $values.executors.instances -}}
{{- if include "lb-stream.onOneNode" . -}}
{{- if gt $pods 1 -}}
{{- fail (printf "storage.volume.accessModes is %s, but job.replicas is %d: standbys on other nodes need ReadWriteMany or an object store; or set job.replicas to 1" (join ", " $values.storage.volume.accessModes) $pods) -}}
{{- end -}}
{{- if gt $executors 0 -}}
{{- fail (printf "storage.volume.accessModes is %s, but executors.instances is %d: executors on other nodes need ReadWriteMany or an object store; or set executors.instances to 0" (join ", " $values.storage.volume.accessModes) $executors) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $stream "tick_interval_ms") (eq (int $stream.tick_interval_ms) 0) -}}
{{- fail "settings.stream.tick_interval_ms is 0, but pods of the job follow each other's ticks: leave it out" -}}
{{- end -}}
{{- if and (gt $executors 0) (not (hasKey $stream "shuffle_partitions")) -}}
{{- fail (printf "executors.instances is %d, but settings.stream.shuffle_partitions is not set: set it to the cores of all executors (%d); the first checkpoint fixes it" $executors (mul $executors (int $values.executors.cores))) -}}
{{- end -}}
{{- $clusters := list -}}
{{- range $values.agents.clusters -}}
{{- if has .cluster $clusters -}}
{{- fail (printf "agents.clusters has %s twice: give all its URLs in one entry" .cluster) -}}
{{- end -}}
{{- $clusters = append $clusters .cluster -}}
{{- end -}}
{{- end }}
