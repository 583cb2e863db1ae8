package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is a JSON web token for slurmrestd that is kept fresh in a Secret. Who may make Tokens in a namespace may be any user in the Slurm
// clusters whose keys lie there: give the right to make them to administrators alone.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tokens,singular=token,shortName=jwt,categories={slurmtide,slurm}
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.username`
// +kubebuilder:printcolumn:name="IAT",type=date,JSONPath=`.status.issuedAt`
// +kubebuilder:printcolumn:name="Issued",type=string,JSONPath=`.status.conditions[?(@.type=="Issued")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Token struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TokenSpec `json:"spec"`
	// +optional
	Status TokenStatus `json:"status,omitempty"`
}

// TokenList is a list of Tokens.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type TokenList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Token `json:"items"`
}

// TokenSpec says whose token it is.
//
// +kubebuilder:validation:XValidation:rule="has(self.controllerRef) != has(self.jwtKeyRef)",message="spec: give controllerRef or jwtKeyRef, one of the two"
// +kubebuilder:validation:XValidation:rule="has(self.controllerRef) == has(oldSelf.controllerRef)",message="spec: the key of a Token cannot be changed: make a new Token"
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) == has(oldSelf.secretRef)",message="spec.secretRef cannot be added or removed: make a new Token"
// +kubebuilder:validation:XValidation:rule="!has(self.lifetime) || duration(self.lifetime) >= duration('1m')",message="spec.lifetime must be 1m or more"
type TokenSpec struct {
	// The Controller whose key of auth/jwt signs it, in the same namespace. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.controllerRef cannot be changed: make a new Token"
	ControllerRef *ObjectRef `json:"controllerRef,omitempty"`

	// The key that signs it, in place of controllerRef. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.jwtKeyRef cannot be changed: make a new Token"
	JWTKeyRef *KeyRef `json:"jwtKeyRef,omitempty"`

	// The Slurm user that it stands for. Cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.username cannot be changed: make a new Token"
	Username string `json:"username"`

	// How long one lives. A new one is made when four fifths of it are over.
	//
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
	Lifetime *metav1.Duration `json:"lifetime,omitempty"`

	// Make new ones. Without it there is one, for once.
	//
	// +optional
	// +kubebuilder:default=true
	Refresh *bool `json:"refresh,omitempty"`

	// The Secret it is put into. Default: that of the Token's name, under SLURM_JWT. Cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.secretRef cannot be changed: make a new Token"
	SecretRef *KeyRef `json:"secretRef,omitempty"`
}

// TokenStatus is what became of a Token.
type TokenStatus struct {
	// The generation that the rest was made from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When the one in the Secret was made.
	//
	// +optional
	IssuedAt *metav1.Time `json:"issuedAt,omitempty"`

	// When it expires.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// How things stand: Issued.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
