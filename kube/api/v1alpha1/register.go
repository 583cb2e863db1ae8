package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all Slurmtide objects.
const GroupName = "slurmtide.io"

// SchemeGroupVersion is the group and version of this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// SchemeBuilder and AddToScheme are what generated clients register the types with.
var (
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	AddToScheme   = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name of this group; generated listers use it.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Accounting{}, &AccountingList{}, &Controller{}, &ControllerList{}, &LoginSet{}, &LoginSetList{}, &NodeSet{}, &NodeSetList{}, &RestApi{}, &RestApiList{}, &Token{}, &TokenList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
