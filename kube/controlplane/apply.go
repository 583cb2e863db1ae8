package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// resources are the kinds that are applied.
var resources = map[string]schema.GroupVersionResource{
	"ConfigMap":      {Version: "v1", Resource: "configmaps"},
	"Service":        {Version: "v1", Resource: "services"},
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"StatefulSet":    {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Deployment":     {Group: "apps", Version: "v1", Resource: "deployments"},
}

// applier brings objects into the state that is wanted, by server-side apply, and makes no request when they are in it.
type applier struct {
	dynamic dynamic.Interface
	metrics *Metrics
	known   map[string]cache.Store // by kind: what is there, as far as it has our label
}

// apply applies an object that has an owner, unless it is as it should be. An object of that name that is not the owner's is left alone.
func (a *applier) apply(ctx context.Context, o Object) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	name := fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
	want, hash, err := stamped(o)
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	client := a.dynamic.Resource(resources[kind]).Namespace(o.GetNamespace())
	live, there, err := a.known[kind].GetByKey(o.GetNamespace() + "/" + o.GetName())
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	owner := o.GetOwnerReferences()[0].UID
	var present metav1.Object
	if there {
		var ok bool
		if present, ok = live.(metav1.Object); !ok {
			return fmt.Errorf("applying %s: the cache has a %T", name, live)
		}
	} else {
		found, err := client.Get(ctx, o.GetName(), metav1.GetOptions{}) // it may be somebody's, without our label
		switch {
		case err == nil:
			present = found
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("looking for %s: %w", name, err)
		}
	}
	if present != nil {
		if ref := metav1.GetControllerOf(present); ref == nil || ref.UID != owner {
			return &Problem{"NameTaken", name + " exists already, and was not made for this object: delete it, or choose another name"}
		}
		if there && present.GetAnnotations()[AnnotationApplied] == hash {
			same, err := has(live, want)
			if err != nil {
				return fmt.Errorf("comparing %s: %w", name, err)
			}
			if same {
				return nil
			}
		}
	}
	a.metrics.wrote(resources[kind].Resource)
	if _, err := client.Apply(ctx, o.GetName(), &unstructured.Unstructured{Object: want}, metav1.ApplyOptions{FieldManager: FieldManager, Force: true}); err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	return nil
}

// stamped is an object as it is sent, with a hash of itself: by that it is seen that a field is no longer wanted.
func stamped(o Object) (want map[string]any, hash string, err error) {
	if want, err = asJSON(o); err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(want)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	hash = hex.EncodeToString(sum[:])[:16]
	return want, hash, unstructured.SetNestedField(want, hash, "metadata", "annotations", AnnotationApplied)
}

// has tells whether an object has all that is wanted; what it has beside, defaults for example, does not matter.
func has(live any, want map[string]any) (bool, error) {
	text, err := json.Marshal(live)
	if err != nil {
		return false, err
	}
	var have map[string]any
	if err := json.Unmarshal(text, &have); err != nil {
		return false, err
	}
	want = maps.Clone(want)
	// The cache's objects have neither.
	delete(want, "kind")
	delete(want, "apiVersion")
	return contains(have, want), nil
}

// contains tells whether have has all fields of want with the same values, and lists of the same length.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return len(want) == 0
		}
		for key, v := range want {
			if !contains(have[key], v) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return len(want) == 0 && !ok
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want)
}
