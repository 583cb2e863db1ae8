// Package v1alpha1 holds the Kubernetes API types of Slurmtide.
//
// Fields that a version does not act on yet are refused by rules in the CRD, so
// that nobody relies on a setting that does nothing.
//
// +k8s:deepcopy-gen=package
// +groupName=slurmtide.io
// +groupGoName=Slurmtide
package v1alpha1
