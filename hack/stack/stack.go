package stack

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// labelStack marks namespaces that Deploy made, the only ones that Delete touches.
const labelStack = "slurmtide.io/stack"

// pollEvery is how often Kubernetes is asked while waiting.
const pollEvery = 200 * time.Millisecond

// Stack is one Slurm control plane on a Kubernetes cluster.
type Stack struct {
	Options Options // with defaults filled in
	config  *rest.Config
	kube    kubernetes.Interface
	shells  sync.Map // of *shells, by pod/container
}

// Deploy makes the namespace and everything in it, and returns as soon as Kubernetes has accepted it: see WaitReady. It refuses a
// namespace that exists. When it fails half-way, what was made stays; Delete removes it.
func Deploy(ctx context.Context, config *rest.Config, o Options) (*Stack, error) {
	s, err := Open(config, o)
	if err != nil {
		return nil, err
	}
	conf, err := Render(s.Options)
	if err != nil {
		return nil, err
	}
	// Slurm wants 16 to 1024 bytes (auth/slurm) and at least 16 (auth/jwt). Text, since slurmd pods get slurm.key in a variable.
	k := keys{slurm: []byte(rand.Text() + rand.Text()), jwt: []byte(rand.Text() + rand.Text())}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Options.Namespace, Labels: map[string]string{labelStack: "true"}}}
	if _, err := s.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating namespace: %w", err)
	}
	for _, obj := range objects(s.Options, conf, k) {
		if err := s.create(ctx, obj); err != nil {
			return s, fmt.Errorf("creating %T in namespace %s: %w", obj, s.Options.Namespace, err)
		}
	}
	return s, nil
}

// Open gives access to a stack that was deployed with o before, without looking whether it is there.
func Open(config *rest.Config, o Options) (*Stack, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("stack options: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making Kubernetes client: %w", err)
	}
	return &Stack{Options: o, config: rest.CopyConfig(config), kube: kube}, nil
}

// Delete removes the namespace with everything in it, slurmd pods included, and waits until it is gone. It is no error when it
// was gone already.
func (s *Stack) Delete(ctx context.Context) error {
	namespaces := s.kube.CoreV1().Namespaces()
	ns, err := namespaces.Get(ctx, s.Options.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for namespace %s: %w", s.Options.Namespace, err)
	}
	if ns.Labels[labelStack] == "" {
		return fmt.Errorf("namespace %s was not made by this package (label %s is missing); delete it by hand", s.Options.Namespace, labelStack)
	}
	name := clusterMeta(s.Options).Name
	for _, err := range []error{
		s.kube.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		s.kube.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting cluster role %s: %w", name, err)
		}
	}
	// The pods first and at once: nobody needs slurmctld's goodbye, and the namespace controller is in no hurry.
	if err := s.kube.CoreV1().Pods(s.Options.Namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting pods of namespace %s: %w", s.Options.Namespace, err)
	}
	if err := namespaces.Delete(ctx, s.Options.Namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting namespace %s: %w", s.Options.Namespace, err)
	}
	err = wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, s.Options.Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s is not gone: %w", s.Options.Namespace, err)
	}
	return nil
}

// ConfServer is slurmd's --conf-server for pods of this stack.
func (s *Stack) ConfServer() string { return confServer(s.Options) }

func (s *Stack) create(ctx context.Context, obj runtime.Object) error {
	ns, opts := s.Options.Namespace, metav1.CreateOptions{}
	var err error
	switch obj := obj.(type) {
	case *corev1.Secret:
		_, err = s.kube.CoreV1().Secrets(ns).Create(ctx, obj, opts)
	case *corev1.ConfigMap:
		_, err = s.kube.CoreV1().ConfigMaps(ns).Create(ctx, obj, opts)
	case *corev1.Service:
		_, err = s.kube.CoreV1().Services(ns).Create(ctx, obj, opts)
	case *corev1.ServiceAccount:
		_, err = s.kube.CoreV1().ServiceAccounts(ns).Create(ctx, obj, opts)
	case *rbacv1.Role:
		_, err = s.kube.RbacV1().Roles(ns).Create(ctx, obj, opts)
	case *rbacv1.RoleBinding:
		_, err = s.kube.RbacV1().RoleBindings(ns).Create(ctx, obj, opts)
	case *rbacv1.ClusterRole:
		if _, err = s.kube.RbacV1().ClusterRoles().Create(ctx, obj, opts); apierrors.IsAlreadyExists(err) {
			err = nil // of a stack whose namespace was deleted by hand
		}
	case *rbacv1.ClusterRoleBinding:
		if _, err = s.kube.RbacV1().ClusterRoleBindings().Create(ctx, obj, opts); apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case *appsv1.StatefulSet:
		_, err = s.kube.AppsV1().StatefulSets(ns).Create(ctx, obj, opts)
	default:
		err = fmt.Errorf("no client for %T", obj)
	}
	return err
}
