package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controller is a Slurm cluster's slurmctld with its configuration, its keys and the bridge beside it. NodeSets of its namespace whose
// clusterRef is its cluster name are in its slurm.conf. Deleting it deletes slurmctld and the keys that were made for it; the
// claim with slurmctld's state stays.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=controllers,singular=controller,shortName=slurmctld,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.clusterName`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.conditions[?(@.type=="ConfigInForce")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name must be at most 40 lower-case letters, digits and '-', a letter first: slurmctld's host is named after it"
type Controller struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ControllerSpec `json:"spec"`
	// +optional
	Status ControllerStatus `json:"status,omitempty"`
}

// ControllerList is a list of Controllers.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ControllerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Controller `json:"items"`
}

// ControllerSpec is how slurmctld runs, and what it is told.
//
// +kubebuilder:validation:XValidation:rule="has(self.external) || has(self.slurmctld)",message="spec.slurmctld.image is missing: name an image with slurmctld, slurmrestd and scontrol, or set spec.external for a slurmctld elsewhere"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || has(self.slurmKeyRef) && has(self.jwtKeyRef)",message="spec.external needs slurmKeyRef and jwtKeyRef: a slurmctld elsewhere has its keys already"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.jwksKeyRef)",message="spec.jwksKeyRef is for a slurmctld that is started here; remove it: the slurm.conf of spec.external has its own"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.metrics) || !has(self.metrics.enabled) || !self.metrics.enabled",message="spec.metrics is for a slurmctld that is started here; remove it: the slurm.conf of spec.external has its own MetricsType"
// +kubebuilder:validation:XValidation:rule="has(self.external) == has(oldSelf.external)",message="spec.external cannot be added or removed: make a new Controller"
// +kubebuilder:validation:XValidation:rule="has(self.clusterName) == has(oldSelf.clusterName)",message="spec.clusterName cannot be added or removed: slurmctld's state belongs to one cluster name"
// +kubebuilder:validation:XValidation:rule="has(self.slurmKeyRef) == has(oldSelf.slurmKeyRef)",message="spec.slurmKeyRef cannot be added or removed: every daemon would have to change its key at once"
// +kubebuilder:validation:XValidation:rule="has(self.jwtKeyRef) == has(oldSelf.jwtKeyRef)",message="spec.jwtKeyRef cannot be added or removed: all tokens would be worthless at once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.accountingRef) || !has(self.accountingRef) || self.accountingRef == oldSelf.accountingRef || has(self.slurmKeyRef) && has(self.jwtKeyRef)",message="spec.accountingRef cannot be changed unless slurmKeyRef and jwtKeyRef are given: the Controller's keys may be the Accounting's"
// +kubebuilder:validation:XValidation:rule="!has(self.backups) || self.backups == 0 || !has(self.external)",message="spec.backups is for slurmctlds that are started here; remove it: the slurm.conf of spec.external has its own"
// +kubebuilder:validation:XValidation:rule="!has(self.backups) || self.backups == 0 || has(self.persistence) && (!has(self.persistence.enabled) || self.persistence.enabled) && (has(self.persistence.existingClaim) || has(self.persistence.accessModes) && 'ReadWriteMany' in self.persistence.accessModes)",message="spec.backups needs slurmctld's state on a volume that all of them write to: set spec.persistence.accessModes to [ReadWriteMany], with a storage class that has it, or name such a claim in existingClaim; a Controller that has neither has to be made anew"
type ControllerSpec struct {
	// ClusterName of slurm.conf, to which the clusterRef of NodeSets refers. Default: the Controller's name. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterName cannot be changed: slurmctld's state belongs to one cluster name"
	ClusterName string `json:"clusterName,omitempty"`

	// The key of auth/slurm, 16 to 1024 bytes. Default: the Accounting's; without accountingRef one is made, in the Secret <name>-auth-slurm under slurm.key. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.slurmKeyRef cannot be changed: every daemon would have to change its key at once"
	SlurmKeyRef *KeyRef `json:"slurmKeyRef,omitempty"`

	// The HS256 key of auth/jwt. Default: the Accounting's; without accountingRef one is made, in the Secret <name>-auth-jwths256 under jwt_hs256.key. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.jwtKeyRef cannot be changed: all tokens would be worthless at once"
	JWTKeyRef *KeyRef `json:"jwtKeyRef,omitempty"`

	// A JSON Web Key Set: tokens that its keys have signed are taken, too. Those of kty RSA and alg RS256 count. A change is handled like one of extraConf.
	//
	// +optional
	JWKSKeyRef *FileRef `json:"jwksKeyRef,omitempty"`

	// The Accounting whose slurmdbd keeps the records of jobs. Keys that are not named here are then that Accounting's; those that are must be the same.
	// slurmctld is told of it when slurmdbd answers, and works on while it does not.
	//
	// +optional
	AccountingRef *ObjectRef `json:"accountingRef,omitempty"`

	// Where slurmctld is if it runs elsewhere: then nothing is started, and RestApis and Tokens of it work all the same.
	//
	// +optional
	External *ExternalController `json:"external,omitempty"`

	// slurmctld's container. The image must also have slurmrestd and scontrol, of the same version.
	//
	// +optional
	Slurmctld *DaemonOptions `json:"slurmctld,omitempty"`

	// The bridge's container. Default image: the one that slurmtide controller was told to use.
	//
	// +optional
	Bridge *BridgeOptions `json:"bridge,omitempty"`

	// The slurmrestd that the bridge asks.
	//
	// +optional
	Slurmrestd *SidecarOptions `json:"slurmrestd,omitempty"`

	// The container that tries configurations, and the one that does so at the start: the slurmctld of a trial runs in it, and needs the memory that slurmctld starts with.
	//
	// +optional
	Reconfigure *SidecarOptions `json:"reconfigure,omitempty"`

	// Settings of the pod.
	//
	// +optional
	Template PodOptions `json:"template,omitempty"`

	// Lines for slurm.conf. A key that Slurmtide writes, too, takes the place of its line; the words of lists such as SlurmctldParameters are
	// merged. A change is tried by a slurmctld of its own before it reaches the one that runs: if that refuses
	// it, the old configuration stays in force and the condition ConfigInForce says why.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	ExtraConf string `json:"extraConf,omitempty"`

	// ConfigMaps whose files lie beside slurm.conf: cgroup.conf, gres.conf, topology.yaml, ... Files of later ones win. A change is
	// handled like one of extraConf.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	ConfigFileRefs []ObjectRef `json:"configFileRefs,omitempty"`

	// ConfigMaps whose files are run before jobs on their nodes (Prolog), in the order of their names.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	PrologScriptRefs []ObjectRef `json:"prologScriptRefs,omitempty"`

	// The same after jobs (Epilog).
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	EpilogScriptRefs []ObjectRef `json:"epilogScriptRefs,omitempty"`

	// The same before jobs beside slurmctld (PrologSlurmctld), beside the start gate.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	PrologSlurmctldScriptRefs []ObjectRef `json:"prologSlurmctldScriptRefs,omitempty"`

	// The same after jobs beside slurmctld (EpilogSlurmctld).
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	EpilogSlurmctldScriptRefs []ObjectRef `json:"epilogSlurmctldScriptRefs,omitempty"`

	// slurmctld's own metrics.
	//
	// +optional
	Metrics ControllerMetrics `json:"metrics,omitzero"`

	// How many slurmctlds stand by. The first of them that is left takes over when the one in control has been silent for SlurmctldTimeout (extraConf; 120 s
	// unless it says otherwise), and gives control back when that is there again. All share the state: spec.persistence needs access mode ReadWriteMany, or an
	// existingClaim that has it. A change starts them anew one by one; jobs run on.
	//
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	Backups int32 `json:"backups,omitempty"`

	// Where slurmctld's state lies.
	//
	// +optional
	// +kubebuilder:default={enabled: true}
	Persistence Persistence `json:"persistence,omitempty"`
}

// ControllerMetrics are slurmctld's own metrics.
type ControllerMetrics struct {
	// Have slurmctld answer them at /metrics of its port (MetricsType=metrics/openmetrics). An older Slurm than 25.11 refuses the configuration then.
	//
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
}

// KeyRef names a key of a Secret of the same namespace.
type KeyRef struct {
	// The Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its key.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// FileRef names a file of a ConfigMap of the same namespace.
type FileRef struct {
	// The ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its key.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ObjectRef names an object of the same namespace.
type ObjectRef struct {
	// Its name.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ExternalController is a slurmctld outside.
type ExternalController struct {
	// Name or address of its host, as pods reach it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:-]+$`
	Host string `json:"host"`

	// SlurmctldPort.
	//
	// +optional
	// +kubebuilder:default=6817
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// BridgeOptions are the settings of the bridge.
type BridgeOptions struct {
	ContainerOptions `json:",inline"`

	// Run it. Without it nodes of mode Cloud have to be powered up by others.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// A page for browsers that shows nodes, boots, jobs that wait, and their stories. It changes nothing.
	//
	// +optional
	Page *BridgePage `json:"page,omitempty"`

	// Serve its metrics and its page with TLS.
	//
	// +optional
	TLS *ServerTLS `json:"tls,omitempty"`

	// OpenTelemetry traces of boots.
	//
	// +optional
	Tracing *BridgeTracing `json:"tracing,omitempty"`
}

// BridgePage is where the bridge's page is served, on port 9445.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scalerTLS) || has(self.scaler) && self.scaler.startsWith('https://')",message="spec.bridge.page.scalerTLS is for a scaler at https://: give page.scaler such a URL, or leave scalerTLS out"
type BridgePage struct {
	// Serve it.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Serve it to all that reach the pod, by the Service <name>-controller, too: like metrics as plain HTTP without a password, unless tls is given. Otherwise it listens on
	// 127.0.0.1, and whoever may use kubectl port-forward reaches it.
	//
	// +optional
	Exposed bool `json:"exposed,omitempty"`

	// Where the scaler serves its metrics, http://slurmtide-scaler.slurmtide-system:9443 for example: the page shows what pending jobs ask for. Default: it does not.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^\s@?#]+$`
	Scaler string `json:"scaler,omitempty"`

	// How the scaler is known, and the bridge to the scaler, where that serves its metrics with TLS. Default: by the CAs of the image, and not at all.
	//
	// +optional
	ScalerTLS *ClientTLS `json:"scalerTLS,omitempty"`
}

// ClientTLS is whom a client believes, and what it shows.
type ClientTLS struct {
	// A Secret with ca.crt, the CA of the server's certificate. It may be replaced at any time.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`

	// Show the server tls.crt of that Secret, with its tls.key, as cert-manager makes them.
	//
	// +optional
	Certificate bool `json:"certificate,omitempty"`
}

// ServerTLS is what a server shows, and what it wants to see.
type ServerTLS struct {
	// A Secret with tls.crt and tls.key, as cert-manager makes them. They may be replaced at any time.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`

	// Clients must show a certificate of the CA in ca.crt of that Secret.
	//
	// +optional
	ClientCA bool `json:"clientCA,omitempty"`
}

// BridgeTracing is where traces of boots are sent.
type BridgeTracing struct {
	// http://host:port or https://host:port of an OpenTelemetry collector that takes OTLP over HTTP. What it asks for stands in headersRef.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^\s@?#]+$`
	Endpoint string `json:"endpoint"`

	// Headers for the collector, as in OTEL_EXPORTER_OTLP_HEADERS: authorization=Bearer%20TOKEN. A change counts when the pod is started anew.
	//
	// +optional
	HeadersRef *KeyRef `json:"headersRef,omitempty"`
}

// Persistence is where slurmctld's state lies.
//
// +kubebuilder:validation:XValidation:rule="has(self.enabled) == has(oldSelf.enabled) && (!has(self.enabled) || self.enabled == oldSelf.enabled)",message="spec.persistence.enabled cannot be changed: a StatefulSet keeps its claims; make a new Controller"
// +kubebuilder:validation:XValidation:rule="has(self.existingClaim) == has(oldSelf.existingClaim) && (!has(self.existingClaim) || self.existingClaim == oldSelf.existingClaim)",message="spec.persistence.existingClaim cannot be changed: slurmctld would start without its state"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="spec.persistence.storageClassName cannot be changed: a volume stays in its class; make a new Controller"
// +kubebuilder:validation:XValidation:rule="has(self.accessModes) == has(oldSelf.accessModes) && (!has(self.accessModes) || self.accessModes == oldSelf.accessModes)",message="spec.persistence.accessModes cannot be changed: a volume keeps them; make a new Controller"
// +kubebuilder:validation:XValidation:rule="!has(self.existingClaim) || !has(self.storageClassName) && !has(self.resources)",message="spec.persistence: storageClassName and resources are for a new claim; remove them or existingClaim"
type Persistence struct {
	// Keep it on a volume. Without it all jobs are lost with the pod: for tries only. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// A PersistentVolumeClaim that exists. Default: one is made, and kept when the Controller is deleted. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ExistingClaim string `json:"existingClaim,omitempty"`

	// Storage class of the new claim. Default: the cluster's. Cannot be changed.
	//
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// Access modes of the new claim. Backups want [ReadWriteMany]. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:default={ReadWriteOnce}
	// +listType=atomic
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`

	// Size of the new claim. Default: 4Gi. A larger one enlarges it, if its storage class allows that.
	//
	// +optional
	Resources corev1.VolumeResourceRequirements `json:"resources,omitzero"`
}

// ControllerStatus is what became of a Controller.
type ControllerStatus struct {
	// The generation that the rest was made from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ClusterName of slurm.conf.
	//
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// Which configuration slurmctld runs with; it changes with every change of a file.
	//
	// +optional
	ConfigInForce string `json:"configInForce,omitempty"`

	// The pod whose slurmctld is in control, if there are backups.
	//
	// +optional
	InControl string `json:"inControl,omitempty"`

	// How things stand: Accepted, Available, SidecarsReady, ConfigInForce, with backups BackupsReady.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
