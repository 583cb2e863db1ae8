package controlplane

import (
	"cmp"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	listers "github.com/slurmtide/slurmtide/kube/generated/listers/api/v1alpha1"
)

// loopWith is a Loop over these objects.
func loopWith(objects ...runtime.Object) *Loop {
	l := &Loop{kube: kubefake.NewClientset(objects...), o: Options{Log: slog.New(slog.DiscardHandler)}, applier: applier{known: map[string]cache.Store{}}}
	l.applier.known["StatefulSet"] = cache.NewStore(cache.MetaNamespaceKeyFunc)
	return l
}

func TestKeys(t *testing.T) {
	c := controller(nil)
	secret := func(ref v1alpha1.KeyRef, owner *v1alpha1.Controller) *corev1.Secret {
		s := keySecret(metav1.ObjectMeta{Namespace: "slurm", Name: ref.Name}, ref.Key, []byte("old"))
		if owner != nil {
			s.OwnerReferences = []metav1.OwnerReference{ownerOf(owner, "Controller")}
		}
		return s
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "tide-controller", OwnerReferences: []metav1.OwnerReference{ownerOf(c, "Controller")}}}
	forerunner := controller(func(c *v1alpha1.Controller) { c.UID = "uid-before" })
	theirs := set.DeepCopy()
	theirs.OwnerReferences = []metav1.OwnerReference{ownerOf(forerunner, "Controller")}
	tests := map[string]struct {
		set     *appsv1.StatefulSet
		secrets []runtime.Object
		want    string // the Problem
		made    []string
		found   []string
	}{
		"new":            {made: []string{"tide-auth-slurm", "tide-auth-jwths256"}},
		"made before":    {set: set, secrets: []runtime.Object{secret(slurmKeyRef(c), c), secret(jwtKeyRef(c), c)}},
		"cut short":      {secrets: []runtime.Object{secret(slurmKeyRef(c), c)}, made: []string{"tide-auth-jwths256"}},
		"lost":           {set: set, secrets: []runtime.Object{secret(slurmKeyRef(c), c)}, want: "KeyLost: Secret tide-auth-jwths256, in which the key of this cluster was, is gone: create it again with the same jwt_hs256.key; or, if that is lost, delete StatefulSet tide-controller"},
		"put back":       {set: set, secrets: []runtime.Object{secret(slurmKeyRef(c), c), secret(jwtKeyRef(c), nil)}, found: []string{"tide-auth-jwths256"}},
		"forerunner's":   {secrets: []runtime.Object{secret(slurmKeyRef(c), forerunner)}, want: "KeyTaken: Secret tide-auth-slurm belongs to another object, Controller tide with UID uid-before", made: []string{"tide-auth-jwths256"}},
		"its set is not": {set: theirs, made: []string{"tide-auth-slurm", "tide-auth-jwths256"}},
		"empty":          {secrets: []runtime.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "tide-auth-slurm"}}}, want: "KeyMissing: Secret tide-auth-slurm exists, but has no slurm.key", made: []string{"tide-auth-jwths256"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := loopWith(test.secrets...)
			if test.set != nil {
				require.NoError(t, l.applier.known["StatefulSet"].Add(test.set))
			}
			found, err := l.makeKeys(t.Context(), controllerKeys(c, nil))
			if test.want != "" {
				problem, rest := problem(err)
				require.NoError(t, rest)
				require.NotNil(t, problem)
				assert.Contains(t, problem.Reason+": "+problem.Message, test.want)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, test.found, found)
			all, err := l.kube.CoreV1().Secrets("slurm").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			var made []string
			for _, s := range all.Items {
				for _, key := range s.Data {
					if string(key) != "old" {
						made = append(made, s.Name)
					}
				}
			}
			assert.ElementsMatch(t, test.made, made)
		})
	}
}

func TestFoundKeysAreTold(t *testing.T) {
	s := ControllerStatus(controller(nil), SeenController{Found: []string{"a", "b"}})
	assert.Equal(t, "the Controller can be used; Secrets that were there before it and stay without it have its keys: a, b",
		meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted).Message)
}

// An Accounting that goes, and its key with it, would leave slurmctld without one at its next start, and all nodes.
func TestKeysOutliveAccounting(t *testing.T) {
	c, a := controller(nil), accounting(nil)
	owners := func(l *Loop) (names []string) {
		s, err := l.kube.CoreV1().Secrets("slurm").Get(t.Context(), "records-auth-slurm", metav1.GetOptions{})
		require.NoError(t, err)
		for _, o := range s.OwnerReferences {
			names = append(names, fmt.Sprint(o.Kind, " ", o.Name, " ", o.Controller != nil && *o.Controller))
		}
		return names
	}
	both := []string{"Accounting records true", "Controller tide false"}
	// Whoever of the two is first makes it.
	l := loopWith()
	_, err := l.makeKeys(t.Context(), accountingKeys(a))
	require.NoError(t, err)
	assert.Equal(t, both[:1], owners(l))
	_, err = l.makeKeys(t.Context(), controllerKeys(c, a))
	require.NoError(t, err)
	assert.Equal(t, both, owners(l))
	l = loopWith()
	_, err = l.makeKeys(t.Context(), controllerKeys(c, a))
	require.NoError(t, err)
	assert.Equal(t, both, owners(l))

	kube, ok := l.kube.(*kubefake.Clientset)
	require.True(t, ok)
	kube.ClearActions()
	found, err := l.makeKeys(t.Context(), controllerKeys(c, a))
	require.NoError(t, err)
	assert.Empty(t, found)
	for _, action := range kube.Actions() {
		assert.Equal(t, "get", action.GetVerb(), "nothing to write when nothing has changed")
	}
	// Without accountingRef, and with an Accounting of its own name, it has the key still.
	same := accounting(func(a *v1alpha1.Accounting) { a.Name = c.Name })
	l = loopWith()
	_, err = l.makeKeys(t.Context(), controllerKeys(c, same))
	require.NoError(t, err)
	_, err = l.makeKeys(t.Context(), controllerKeys(c, nil))
	require.NoError(t, err)
}

// A Controller without another key is as good as dead for its nodes.
func TestKeptKeys(t *testing.T) {
	secret := func(name, slurm string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: name}, Data: map[string][]byte{SlurmKey: []byte(slurm), JWTKey: []byte("jwt")}}
	}
	refer := func(c *v1alpha1.Controller, name string) *v1alpha1.Controller {
		if name == "" {
			return c
		}
		return WithKeysOf(c, accounting(func(a *v1alpha1.Accounting) {
			a.Spec.SlurmKeyRef, a.Spec.JWTKeyRef = &v1alpha1.KeyRef{Name: name, Key: SlurmKey}, &v1alpha1.KeyRef{Name: name, Key: JWTKey}
		}))
	}
	for name, test := range map[string]struct {
		before, after string
		secrets       []runtime.Object
		differs       bool
	}{
		"the same":       {"a", "a", nil, false},
		"taken away":     {"a", "", []runtime.Object{secret("a", "1")}, true},
		"another":        {"a", "b", []runtime.Object{secret("a", "1"), secret("b", "2")}, true},
		"equal":          {"a", "b", []runtime.Object{secret("a", "1"), secret("b", "1")}, false},
		"nobody can say": {"a", "b", []runtime.Object{secret("b", "1")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, c := loopWith(test.secrets...), controller(nil)
			require.NoError(t, l.keptKeys(t.Context(), refer(c, test.after)), "before slurmctld has had one")
			objects, err := ControllerObjects(refer(c, test.before), nil, settings)
			require.NoError(t, err)
			for _, o := range objects {
				if set, ok := o.(*appsv1.StatefulSet); ok {
					require.NoError(t, l.applier.known["StatefulSet"].Add(set))
				}
			}
			err = l.keptKeys(t.Context(), refer(c, test.after))
			if !test.differs {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "spec.accountingRef: slurmctld and its nodes have slurm.key of Secret a, and would need slurm.key of Secret "+cmp.Or(test.after, "tide-auth-slurm"))
		})
	}
}

// Tokens and login pods have the key of the slurmctld that runs, also when its Controller has got another Accounting, or lost it.
func TestKeysOfWhatRuns(t *testing.T) {
	const old, other = "old", "other"
	controllers := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	accountings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var secrets []runtime.Object
	for name, key := range map[string]string{"tide": old, "records": other} {
		for _, ref := range []v1alpha1.KeyRef{madeSlurmKey(name), madeJWTKey(name)} {
			secrets = append(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: ref.Name}, Data: map[string][]byte{ref.Key: []byte(key)}})
		}
	}
	l := loopWith(secrets...)
	l.controllers, l.accountings = listers.NewControllerLister(controllers), listers.NewAccountingLister(accountings)
	c := controller(func(c *v1alpha1.Controller) { c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "records"} })
	require.NoError(t, controllers.Add(c))
	token := &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "t"}, Spec: v1alpha1.TokenSpec{ControllerRef: &v1alpha1.ObjectRef{Name: c.Name}, Username: "u"}}
	rest := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "r"}, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: c.Name}}}
	signing := func() (string, error) {
		key, err := l.signingKey(t.Context(), token)
		return string(key), err
	}

	_, err := signing()
	require.ErrorContains(t, err, "there is no Accounting records", "no slurmctld, and nobody knows which key it will have")
	require.NoError(t, accountings.Add(accounting(nil)))
	key, err := signing()
	require.NoError(t, err)
	assert.Equal(t, other, key, "no slurmctld yet: it will have its Accounting's")

	runs, err := ControllerObjects(controller(nil), nil, settings)
	require.NoError(t, err)
	for _, o := range runs {
		if set, ok := o.(*appsv1.StatefulSet); ok {
			require.NoError(t, l.applier.known["StatefulSet"].Add(set))
		}
	}
	for name, there := range map[string]bool{"the Accounting has another key": true, "the Accounting is gone": false} {
		if !there {
			require.NoError(t, accountings.Delete(accounting(nil)))
		}
		key, err = signing()
		require.NoError(t, err, name)
		assert.Equal(t, old, key, name)
		has, err := l.withItsKeys(c)
		require.NoError(t, err, name)
		assert.Equal(t, madeSlurmKey(c.Name), slurmKeyRef(has), name)
		require.NoError(t, accountings.Add(accounting(nil)))
	}
	require.ErrorContains(t, l.applyRestAPI(t.Context(), rest), "slurmctld and its nodes have", "slurmrestd stays as it is")
}

// A Controller and its Accounting are handled at the same time, and both make the key.
func TestKeyMadeTwice(t *testing.T) {
	c, a := controller(nil), accounting(nil)
	l := loopWith()
	kube, ok := l.kube.(*kubefake.Clientset)
	require.True(t, ok)
	raced := false
	kube.PrependReactor("create", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
		if !raced {
			raced = true
			k := accountingKeys(a)[0]
			require.NoError(t, kube.Tracker().Add(keySecret(k.of, k.ref.Key, []byte("theirs"))))
		}
		return false, nil, nil
	})
	_, err := l.makeKeys(t.Context(), controllerKeys(c, a))
	require.NoError(t, err)
	s, err := kube.CoreV1().Secrets("slurm").Get(t.Context(), "records-auth-slurm", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "theirs", string(s.Data[SlurmKey]))
	assert.Len(t, s.OwnerReferences, 2)
}

// A Secret that was made a moment ago is not in the API server's memory yet: to take it for lost, or to make another, would be wrong.
func TestSecretNotRemembered(t *testing.T) {
	l := loopWith(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "new"}})
	var asked []string
	l.kube.(*kubefake.Clientset).PrependReactor("get", "secrets", func(action kubetesting.Action) (bool, runtime.Object, error) {
		get := action.(kubetesting.GetActionImpl)
		asked = append(asked, get.Name+"@"+get.GetOptions.ResourceVersion)
		if get.GetOptions.ResourceVersion == "0" && get.Name != "old" {
			return true, nil, apierrors.NewNotFound(corev1.Resource("secrets"), get.Name)
		}
		return get.Name == "old", &corev1.Secret{}, nil
	})
	_, err := l.secret(t.Context(), "slurm", "new")
	require.NoError(t, err)
	_, err = l.secret(t.Context(), "slurm", "none")
	require.True(t, apierrors.IsNotFound(err), err)
	_, err = l.secret(t.Context(), "slurm", "old")
	require.NoError(t, err)
	assert.Equal(t, []string{"new@0", "new@", "none@0", "none@", "old@0"}, asked)
}
