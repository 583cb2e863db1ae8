package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Accounting is a slurmdbd, with a MariaDB or MySQL that is there already. Controllers of its namespace name it in spec.accountingRef; there may be
// several. Deleting it deletes slurmdbd and, once no Controller needs them, the keys that were made for it; what the database has stays.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=accountings,singular=accounting,shortName=slurmdbd,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Database",type=string,JSONPath=`.spec.storageConfig.host`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name must be at most 40 lower-case letters, digits and '-', a letter first: slurmdbd's host is named after it"
type Accounting struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AccountingSpec `json:"spec"`
	// +optional
	Status AccountingStatus `json:"status,omitempty"`
}

// AccountingList is a list of Accountings.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type AccountingList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Accounting `json:"items"`
}

// AccountingSpec is how slurmdbd runs, and where its database is.
//
// +kubebuilder:validation:XValidation:rule="has(self.external) || has(self.slurmdbd) && has(self.slurmdbd.image)",message="spec.slurmdbd.image is missing: name an image with slurmdbd, or set spec.external for a slurmdbd elsewhere"
// +kubebuilder:validation:XValidation:rule="has(self.external) != has(self.storageConfig)",message="give storageConfig for a slurmdbd that is started here, or external for one elsewhere, which has its database already"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || has(self.slurmKeyRef) && has(self.jwtKeyRef)",message="spec.external needs slurmKeyRef and jwtKeyRef: a slurmdbd elsewhere has its keys already"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.jwksKeyRef)",message="spec.jwksKeyRef is for a slurmdbd that is started here; remove it: the slurmdbd.conf of spec.external has its own"
// +kubebuilder:validation:XValidation:rule="has(self.external) == has(oldSelf.external)",message="spec.external cannot be added or removed: make a new Accounting"
// +kubebuilder:validation:XValidation:rule="has(self.slurmKeyRef) == has(oldSelf.slurmKeyRef)",message="spec.slurmKeyRef cannot be added or removed: every daemon would have to change its key at once"
// +kubebuilder:validation:XValidation:rule="has(self.jwtKeyRef) == has(oldSelf.jwtKeyRef)",message="spec.jwtKeyRef cannot be added or removed: all tokens would be worthless at once"
type AccountingSpec struct {
	// The key of auth/slurm, 16 to 1024 bytes. Controllers that name this Accounting, and no key of their own, have it, too. Default: one is made, in
	// the Secret <name>-auth-slurm under slurm.key. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.slurmKeyRef cannot be changed: every daemon would have to change its key at once"
	SlurmKeyRef *KeyRef `json:"slurmKeyRef,omitempty"`

	// The HS256 key of auth/jwt, likewise. Default: one is made, in the Secret <name>-auth-jwths256 under jwt_hs256.key. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.jwtKeyRef cannot be changed: all tokens would be worthless at once"
	JWTKeyRef *KeyRef `json:"jwtKeyRef,omitempty"`

	// A JSON Web Key Set: tokens that its keys have signed are taken, too. Those of kty RSA and alg RS256 count. A change restarts slurmdbd.
	//
	// +optional
	JWKSKeyRef *FileRef `json:"jwksKeyRef,omitempty"`

	// Where slurmdbd is if it runs elsewhere: then nothing is started, and Controllers use it all the same.
	//
	// +optional
	External *ExternalAccounting `json:"external,omitempty"`

	// slurmdbd's container.
	//
	// +optional
	Slurmdbd *DaemonOptions `json:"slurmdbd,omitempty"`

	// Settings of the pod.
	//
	// +optional
	Template PodOptions `json:"template,omitempty"`

	// The database.
	//
	// +optional
	StorageConfig *StorageConfig `json:"storageConfig,omitempty"`

	// Lines for slurmdbd.conf: PurgeJobAfter, PrivateData, ... A key that Slurmtide writes, too, takes the place of its line; the words of
	// StorageParameters, AuthInfo and AuthAltParameters are merged. A change restarts slurmdbd; jobs do not notice.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	ExtraConf string `json:"extraConf,omitempty"`
}

// StorageConfig is a MariaDB or MySQL.
type StorageConfig struct {
	// Name or address of its host, as pods reach it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:-]+$`
	Host string `json:"host"`

	// Its port.
	//
	// +optional
	// +kubebuilder:default=3306
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// The database in it. slurmdbd makes it if the user may do that. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=slurm_acct_db
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.storageConfig.database cannot be changed: slurmctlds are registered in it; make a new Accounting"
	Database string `json:"database,omitempty"`

	// The user, who needs all rights on the database.
	//
	// +optional
	// +kubebuilder:default=slurm
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.@-]+$`
	Username string `json:"username,omitempty"`

	// The user's password. A newline at its end is left out.
	PasswordKeyRef KeyRef `json:"passwordKeyRef"`

	// Encrypts the connection; without it everything is sent in the clear. Let the server insist on it (REQUIRE SSL, or X509, for the user): slurmdbd itself
	// also takes a server without TLS.
	//
	// +optional
	TLS *StorageTLS `json:"tls,omitempty"`
}

// StorageTLS are certificates, in PEM.
//
// +kubebuilder:validation:XValidation:rule="has(self.certificate) == has(self.privateKey)",message="give both of tls.certificate and tls.privateKey, or neither"
type StorageTLS struct {
	// Of the authorities that sign the server's certificate. Whether one that others have signed is refused is up to the database client in the image; Debian's
	// takes it.
	CA KeyRef `json:"ca"`

	// slurmdbd's own certificate, if the server wants one.
	//
	// +optional
	Certificate *KeyRef `json:"certificate,omitempty"`

	// The key of it.
	//
	// +optional
	PrivateKey *KeyRef `json:"privateKey,omitempty"`
}

// ExternalAccounting is a slurmdbd outside.
type ExternalAccounting struct {
	// Name or address of its host, as pods reach it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:-]+$`
	Host string `json:"host"`

	// DbdPort.
	//
	// +optional
	// +kubebuilder:default=6819
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// AccountingStatus is what became of an Accounting.
type AccountingStatus struct {
	// The generation that the rest was made from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How things stand: Accepted, Available.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
