{{- define "rwkv-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 36 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "rwkv-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rwkv-operator.labels" -}}
{{ include "rwkv-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "rwkv-operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "rwkv-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What the operator does inside of namespaces; tests compare it with the operator's own table. */}}
{{- define "rwkv-operator.namespacedRules" -}}
- apiGroups: [serving.rwkv.dev]
  resources: [rwkvdeployments]
  verbs: [get, list, watch]
- apiGroups: [serving.rwkv.dev]
  resources: [rwkvdeployments/status]
  verbs: [patch]
- apiGroups: [serving.rwkv.dev]
  resources: [rwkvdeployments/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, create, patch, delete]
# Made once and never read: the operator can't see the keys of anybody's Secret.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end -}}

{{/* Stacks and nodes have no namespace. Without the catalogue nobody's stacks are written. */}}
{{- define "rwkv-operator.stackRules" -}}
- apiGroups: [serving.rwkv.dev]
  resources: [rwkvhardwarestacks]
  verbs: [get, list, watch{{ if .Values.catalogue.enabled }}, create, patch{{ end }}]
{{- if not .Values.watchNamespace }}
- apiGroups: [serving.rwkv.dev]
  resources: [rwkvhardwarestacks/status]
  verbs: [patch]
{{- end }}
# Labels and devices of nodes are compared with what a stack asks for.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end -}}
