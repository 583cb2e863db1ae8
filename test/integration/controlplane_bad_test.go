//go:build integration && controlplane

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
)

// testValidation sees that the API server refuses what the CRDs have rules for, and says what to do.
func (p *plane) testValidation(t *testing.T) {
	p.t = t
	good := func() *v1alpha1.Controller {
		return &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: v1alpha1.ControllerSpec{
			ClusterName: "other", Slurmctld: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "none"}}, Persistence: v1alpha1.Persistence{Enabled: new(false)},
		}}
	}
	key := &v1alpha1.KeyRef{Name: "a", Key: "b"}
	controllers := p.tide.SlurmtideV1alpha1().Controllers(p.ns)
	for want, change := range map[string]func(*v1alpha1.Controller){
		"spec.slurmctld.image is missing":  func(c *v1alpha1.Controller) { c.Spec.Slurmctld = nil },
		"metadata.name must be at most 40": func(c *v1alpha1.Controller) { c.Name = strings.Repeat("a", 41) },
		"spec.external needs slurmKeyRef":  func(c *v1alpha1.Controller) { c.Spec.External = &v1alpha1.ExternalController{Host: "h"} },
		"spec.bridge.tracing.endpoint in body should match": func(c *v1alpha1.Controller) {
			c.Spec.Bridge = &v1alpha1.BridgeOptions{Tracing: &v1alpha1.BridgeTracing{Endpoint: "http://user:password@collector"}}
		},
		"spec.bridge.page.scaler in body should match": func(c *v1alpha1.Controller) {
			c.Spec.Bridge = &v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{Scaler: "slurmtide-scaler:9443"}}
		},
		"spec.bridge.page.scalerTLS is for a scaler at https://": func(c *v1alpha1.Controller) {
			c.Spec.Bridge = &v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{Scaler: "http://slurmtide-scaler:9443", ScalerTLS: &v1alpha1.ClientTLS{SecretName: "a"}}}
		},
		"spec.clusterName": func(c *v1alpha1.Controller) { c.Spec.ClusterName = "Big" },
		"spec.backups needs slurmctld's state on a volume": func(c *v1alpha1.Controller) { c.Spec.Backups = 1 },
		"spec.backups needs slurmctld's": func(c *v1alpha1.Controller) {
			c.Spec.Backups, c.Spec.Persistence = 1, v1alpha1.Persistence{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
		},
		"spec.slurmctld.livenessProbe.failureThreshold": func(c *v1alpha1.Controller) {
			c.Spec.Slurmctld.LivenessProbe = &v1alpha1.ProbeOptions{FailureThreshold: -1}
		},
		"spec.slurmctld.startupProbe.timeoutSeconds": func(c *v1alpha1.Controller) {
			c.Spec.Slurmctld.StartupProbe = &v1alpha1.ProbeOptions{TimeoutSeconds: 601}
		},
		"spec.backups: Invalid value: 4": func(c *v1alpha1.Controller) { c.Spec.Backups = 4 },
		"spec.backups is for slurmctlds that are started here": func(c *v1alpha1.Controller) {
			c.Spec.Backups, c.Spec.External, c.Spec.SlurmKeyRef, c.Spec.JWTKeyRef = 1, &v1alpha1.ExternalController{Host: "h"}, key, key
		},
		"spec.jwksKeyRef is for a slurmctld that is started here": func(c *v1alpha1.Controller) {
			c.Spec.External, c.Spec.SlurmKeyRef, c.Spec.JWTKeyRef, c.Spec.JWKSKeyRef = &v1alpha1.ExternalController{Host: "h"}, key, key, &v1alpha1.FileRef{Name: "a", Key: "b"}
		},
		"spec.metrics is for a slurmctld that is started here": func(c *v1alpha1.Controller) {
			c.Spec.External, c.Spec.SlurmKeyRef, c.Spec.JWTKeyRef, c.Spec.Metrics.Enabled = &v1alpha1.ExternalController{Host: "h"}, key, key, true
		},
		"storageClassName and resources are for a new claim": func(c *v1alpha1.Controller) {
			c.Spec.Persistence = v1alpha1.Persistence{ExistingClaim: "a", StorageClassName: new("b")}
		},
	} {
		c := good()
		change(c)
		_, err := controllers.Create(p.ctx, c, metav1.CreateOptions{})
		require.ErrorContains(t, err, want)
	}
	_, err := controllers.Create(p.ctx, good(), metav1.CreateOptions{})
	require.NoError(t, err)
	refused(t, p, controllers, map[string]func(*v1alpha1.Controller){
		"spec.clusterName cannot be changed":                  func(c *v1alpha1.Controller) { c.Spec.ClusterName = "another" },
		"spec.clusterName cannot be added or removed":         func(c *v1alpha1.Controller) { c.Spec.ClusterName = "" },
		"spec.slurmKeyRef cannot be added or removed":         func(c *v1alpha1.Controller) { c.Spec.SlurmKeyRef = key },
		"spec.jwtKeyRef cannot be added or removed":           func(c *v1alpha1.Controller) { c.Spec.JWTKeyRef = key },
		"spec.persistence.enabled cannot be changed":          func(c *v1alpha1.Controller) { c.Spec.Persistence.Enabled = new(true) },
		"spec.persistence.storageClassName cannot be changed": func(c *v1alpha1.Controller) { c.Spec.Persistence.StorageClassName = new("fast") },
		"spec.persistence.accessModes cannot be changed": func(c *v1alpha1.Controller) {
			c.Spec.Persistence.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		},
		"spec.external cannot be added or removed": func(c *v1alpha1.Controller) {
			c.Spec.External = &v1alpha1.ExternalController{Host: "h"}
			c.Spec.SlurmKeyRef, c.Spec.JWTKeyRef = key, key
		},
	})
	require.NoError(t, controllers.Delete(p.ctx, "try", metav1.DeleteOptions{}))
	named, another := good(), &v1alpha1.KeyRef{Name: "a", Key: "c"}
	named.Spec.SlurmKeyRef, named.Spec.JWTKeyRef, named.Spec.Persistence = key, key, v1alpha1.Persistence{ExistingClaim: "a"}
	_, err = controllers.Create(p.ctx, named, metav1.CreateOptions{})
	require.NoError(t, err)
	refused(t, p, controllers, map[string]func(*v1alpha1.Controller){
		"spec.slurmKeyRef cannot be changed":               func(c *v1alpha1.Controller) { c.Spec.SlurmKeyRef = another },
		"spec.jwtKeyRef cannot be changed":                 func(c *v1alpha1.Controller) { c.Spec.JWTKeyRef = another },
		"spec.persistence.existingClaim cannot be changed": func(c *v1alpha1.Controller) { c.Spec.Persistence.ExistingClaim = "b" },
	})
	require.NoError(t, controllers.Delete(p.ctx, "try", metav1.DeleteOptions{}))
	tokens := p.tide.SlurmtideV1alpha1().Tokens(p.ns)
	for want, spec := range map[string]v1alpha1.TokenSpec{
		"give controllerRef or jwtKeyRef":  {Username: "a"},
		"spec.lifetime must be 1m or more": {Username: "a", JWTKeyRef: key, Lifetime: &metav1.Duration{Duration: time.Second}},
	} {
		_, err := tokens.Create(p.ctx, &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: spec}, metav1.CreateOptions{})
		require.ErrorContains(t, err, want)
	}
	other := &v1alpha1.ObjectRef{Name: "other"}
	for _, made := range []struct {
		spec  v1alpha1.TokenSpec
		wants map[string]func(*v1alpha1.Token)
	}{
		{v1alpha1.TokenSpec{Username: "a", JWTKeyRef: key, SecretRef: key}, map[string]func(*v1alpha1.Token){
			"spec.jwtKeyRef cannot be changed":            func(s *v1alpha1.Token) { s.Spec.JWTKeyRef = another },
			"spec.username cannot be changed":             func(s *v1alpha1.Token) { s.Spec.Username = "b" },
			"spec.secretRef cannot be changed":            func(s *v1alpha1.Token) { s.Spec.SecretRef = another },
			"spec.secretRef cannot be added or removed":   func(s *v1alpha1.Token) { s.Spec.SecretRef = nil },
			"spec: the key of a Token cannot be changed:": func(s *v1alpha1.Token) { s.Spec.JWTKeyRef, s.Spec.ControllerRef = nil, other },
		}},
		{v1alpha1.TokenSpec{Username: "a", ControllerRef: &v1alpha1.ObjectRef{Name: "none"}}, map[string]func(*v1alpha1.Token){
			"spec.controllerRef cannot be changed": func(s *v1alpha1.Token) { s.Spec.ControllerRef = other },
		}},
	} {
		_, err := tokens.Create(p.ctx, &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: made.spec}, metav1.CreateOptions{})
		require.NoError(t, err)
		refused(t, p, tokens, made.wants)
		require.NoError(t, tokens.Delete(p.ctx, "try", metav1.DeleteOptions{}))
	}
}

// refused sees that changes of the object "try" are refused, each with its words.
func refused[T any](t *testing.T, p *plane, client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Update(ctx context.Context, one T, o metav1.UpdateOptions) (T, error)
}, changes map[string]func(T)) {
	t.Helper()
	for want, change := range changes {
		p.eventually("a refusal", func() (bool, string) {
			one, err := client.Get(p.ctx, "try", metav1.GetOptions{})
			require.NoError(t, err)
			change(one)
			_, err = client.Update(p.ctx, one, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) { // the status was written at the same time
				return false, err.Error()
			}
			require.ErrorContains(t, err, want)
			return true, ""
		})
	}
}

// testRefused sees that a configuration that slurmctld does not take changes nothing, not even for the next pod.
func (p *plane) testRefused(t *testing.T) {
	before := p.restarts()
	inForce := p.controller().Status.ConfigInForce
	const bad = "SuspendTime=9\nSelectType=select/nonsense\n"
	p.setExtra(bad)
	message := p.waitCondition(v1alpha1.ConditionConfigInForce, "Rejected")
	t.Log(message)
	assert.Contains(t, message, "fatal: ")
	assert.Contains(t, message, "select")
	assert.Contains(t, message, "the configuration before it stays in force")
	p.toldOf("tide", v1alpha1.ConditionConfigInForce+"Rejected: ", "slurmctld refuses the configuration: ")
	assert.Equal(t, "7 sec", p.setting("SuspendTime"))
	assert.Equal(t, before, p.restarts())
	assert.Equal(t, inForce, p.controller().Status.ConfigInForce)

	// A new pod starts with what was in force, and its jobs are there.
	id := p.sbatch("true", "--hold")
	time.Sleep(6 * time.Second) // slurmctld saves it
	require.NoError(t, p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, "tide-controller-0", metav1.DeleteOptions{}))
	p.eventually("another pod", func() (bool, string) {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "tide-controller-0", metav1.GetOptions{})
		return err == nil && !strings.HasPrefix(before, string(pod.UID)), fmt.Sprint(err)
	})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitCondition(v1alpha1.ConditionConfigInForce, "Rejected")
	assert.Equal(t, "7 sec", p.setting("SuspendTime"))
	assert.Equal(t, "PENDING", p.jobField(id, "JobState"))
	p.slurm("scancel", id)

	// What has no form does not even reach the pod.
	p.setExtra("nonsense\n")
	message = p.waitCondition(v1alpha1.ConditionAccepted, "InvalidConfig")
	assert.Contains(t, message, `spec.extraConf:1:1: "nonsense" is no key=value`)

	p.setExtra("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n")
	p.waitInForce()
	assert.Equal(t, "5 sec", p.setting("SuspendTime"))
}

// testEnds has slurmctld end with a configuration that its trial cannot find bad: what is wrong lies in its state. It must come back with what was in force, both
// when the configuration comes to a pod that runs and when it comes with a new one.
func (p *plane) testEnds(t *testing.T) {
	good := p.controller().Spec.ExtraConf
	p.setExtra(good + "MaxNodeCount=20\n")
	p.waitInForce()
	p.slurm("scontrol", "create", "NodeName=clash", "CPUs=1", "State=FUTURE")
	time.Sleep(6 * time.Second) // slurmctld saves it
	inForce := p.controller().Status.ConfigInForce
	back := func() {
		message := p.waitCondition(v1alpha1.ConditionConfigInForce, "Rejected")
		t.Log(message)
		assert.Contains(t, message, "NodeSet with name clash overlaps with an existing NodeName")
		assert.Contains(t, message, "found good on trial")
		p.eventually("what was in force to be so again", func() (bool, string) {
			c := p.controller()
			one := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionConfigInForce)
			return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAvailable) && one.Reason == "Rejected" && strings.HasSuffix(one.Message, "stays in force"),
				fmt.Sprintf("%+v", c.Status.Conditions)
		})
		assert.Equal(t, inForce, p.controller().Status.ConfigInForce)
		assert.Contains(t, p.slurm("scontrol", "ping"), "is UP")
	}
	began := time.Now()
	p.setExtra(good + "MaxNodeCount=20\nNodeSet=clash Feature=a\n")
	back()
	t.Logf("in a pod that runs: %v", time.Since(began).Round(time.Second))

	p.setSelector(map[string]string{"no.such/host": "true"}, "")
	p.waitCondition(v1alpha1.ConditionAvailable, "Unschedulable")
	began = time.Now()
	p.setSelector(nil, good+"MaxNodeCount=20\nNodeSet=clash Feature=b\n")
	back()
	t.Logf("in a new pod: %v", time.Since(began).Round(time.Second))

	p.slurm("scontrol", "delete", "NodeName=clash")
	p.setExtra(good)
	p.waitInForce()
}

// setSelector changes where slurmctld may run, which takes a new pod, and at the same time extraConf unless that is "".
func (p *plane) setSelector(selector map[string]string, extra string) {
	p.t.Helper()
	c := p.controller()
	c.Spec.Template.Spec.NodeSelector, c.Spec.ExtraConf = selector, cmp.Or(extra, c.Spec.ExtraConf)
	_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
	require.NoError(p.t, err)
}

// testVolume asks for a larger volume, of a kind that Kubernetes cannot enlarge. Everything else must be carried out all the same.
func (p *plane) testVolume(t *testing.T) {
	before := p.restarts()
	ask := func(size, extra string) {
		c := p.controller()
		c.Spec.Persistence.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		c.Spec.ExtraConf += extra
		_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	ask("8Gi", "KillWait=33\n")
	message := p.waitCondition(v1alpha1.ConditionVolumeAsWanted, "NotEnlarged")
	t.Log(message)
	assert.Contains(t, message, "statesave-tide-controller-0 stays at 4Gi")
	p.waitInForce()
	assert.Equal(t, "33 sec", p.setting("KillWait"))
	assert.True(t, meta.IsStatusConditionTrue(p.controller().Status.Conditions, v1alpha1.ConditionAccepted))
	ask("4Gi", "")
	p.eventually("the condition to go", func() (bool, string) {
		all := p.controller().Status.Conditions
		return meta.FindStatusCondition(all, v1alpha1.ConditionVolumeAsWanted) == nil, fmt.Sprintf("%+v", all)
	})
	assert.Equal(t, before, p.restarts())
}

// testKeyLost deletes the Secret of a key that was made. Another key must not be made in its place: nothing would trust anything any more.
func (p *plane) testKeyLost(t *testing.T) {
	before := p.restarts()
	secrets := p.kube.CoreV1().Secrets(p.ns)
	key, err := secrets.Get(p.ctx, "tide-auth-jwths256", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, secrets.Delete(p.ctx, key.Name, metav1.DeleteOptions{}))
	p.setExtra(p.controller().Spec.ExtraConf + "\n") // Secrets are not watched
	assert.Contains(t, p.waitCondition(v1alpha1.ConditionAccepted, "KeyLost"), "create it again with the same jwt_hs256.key")
	_, err = secrets.Get(p.ctx, key.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = secrets.Create(p.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Data: key.Data}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Contains(t, p.waitCondition(v1alpha1.ConditionAccepted, "Valid"), "Secrets that were there before it and stay without it have its keys: tide-auth-jwths256")
	p.waitInForce()
	assert.Equal(t, before, p.restarts())
}

// testAnotherDaemon holds the Lease of a daemon for this namespace alone. The one of all namespaces must leave it to that, until the Lease is gone.
func (p *plane) testAnotherDaemon(t *testing.T) {
	leases := p.kube.CoordinationV1().Leases(p.ns)
	_, err := leases.Create(p.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: controlplane.NamespaceLease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.setExtra(p.controller().Spec.ExtraConf + "KillWait=31\n")
	time.Sleep(8 * time.Second)
	c := p.controller()
	assert.Less(t, c.Status.ObservedGeneration, c.Generation)
	assert.NotEqual(t, "31 sec", p.setting("KillWait"))
	require.NoError(t, leases.Delete(p.ctx, controlplane.NamespaceLease, metav1.DeleteOptions{}))
	p.waitInForce()
	assert.Equal(t, "31 sec", p.setting("KillWait"))
}

// testTakesOver has a second daemon stand by, and ends the one that works: the other goes on.
func (p *plane) testTakesOver(t *testing.T) {
	const system = "slurmtide-system"
	holder := func() string {
		l, err := p.kube.CoordinationV1().Leases(system).Get(p.ctx, "slurmtide-controller", metav1.GetOptions{})
		require.NoError(t, err)
		name, _, _ := strings.Cut(*cmp.Or(l.Spec.HolderIdentity, new("")), "_")
		return name
	}
	ready := func(n string) {
		p.eventually(n+" daemons", func() (bool, string) {
			said := runKubectl(t, "-n", system, "get", "deploy", "slurmtide-controller", "-o", "jsonpath={.status.replicas} {.status.readyReplicas}")
			return said == n+" "+n, said
		})
	}
	before, first := p.restarts(), holder()
	runKubectl(t, "-n", system, "scale", "deploy", "slurmtide-controller", "--replicas=2")
	ready("2")
	assert.Equal(t, first, holder(), "the second one stands by")
	began := time.Now()
	require.NoError(t, p.kube.CoreV1().Pods(system).Delete(p.ctx, first, metav1.DeleteOptions{}))
	p.setExtra(p.controller().Spec.ExtraConf + "KillWait=32\n")
	p.waitInForce()
	t.Logf("a change made while the daemon ends is in force after %v", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, "32 sec", p.setting("KillWait"))
	assert.NotContains(t, []string{"", first}, holder())
	assert.Equal(t, before, p.restarts())
	runKubectl(t, "-n", system, "scale", "deploy", "slurmtide-controller", "--replicas=1")
	p.eventually("one to be left", func() (bool, string) {
		said := runKubectl(t, "-n", system, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
		return !strings.Contains(said, " "), said
	})
	ready("1")
}

// testAgain makes a Controller of the same name as soon as it is deleted. It must take no key that goes with the one before.
func (p *plane) testAgain(t *testing.T) {
	secrets := p.kube.CoreV1().Secrets(p.ns)
	read := func(name, key string) string {
		s, err := secrets.Get(p.ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		return string(s.Data[key])
	}
	slurm, jwt := read("tide-auth-slurm", "slurm.key"), read("tide-auth-jwths256", "jwt_hs256.key")
	held := p.sbatch("true", "--hold")
	time.Sleep(6 * time.Second) // slurmctld saves it
	old := p.controller()
	require.NoError(t, p.tide.SlurmtideV1alpha1().Controllers(p.ns).Delete(p.ctx, "tide", metav1.DeleteOptions{}))
	p.createController(old.Spec.ExtraConf)
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitInForce()
	assert.NotEqual(t, slurm, read("tide-auth-slurm", "slurm.key"))
	assert.Equal(t, jwt, read("tide-auth-jwths256", "jwt_hs256.key"), "that one belongs to nobody")
	s, err := secrets.Get(p.ctx, "tide-auth-slurm", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, p.controller().UID, s.OwnerReferences[0].UID)
	assert.Equal(t, "PENDING", p.jobField(held, "JobState"), "the state was taken up")
	p.slurm("scancel", held)
}

// testBadInput sees that what cannot be carried out says why, and harms nothing that runs.
func (p *plane) testBadInput(t *testing.T) {
	before := p.restarts()
	theirs := map[string][]byte{"somebody": []byte("else")}
	_, err := p.kube.CoreV1().ConfigMaps(p.ns).Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "taken-config"}, BinaryData: theirs}, metav1.CreateOptions{})
	require.NoError(t, err)
	key := &v1alpha1.KeyRef{Name: "absent", Key: "k"}
	for name, test := range map[string]struct {
		change                func(*v1alpha1.Controller)
		kind, reason, message string
	}{
		"key": {func(c *v1alpha1.Controller) { c.Spec.SlurmKeyRef = key }, v1alpha1.ConditionAccepted, "KeyMissing",
			"spec.slurmKeyRef: there is no Secret absent: create it, with the key under k"},
		"file": {func(c *v1alpha1.Controller) { c.Spec.ConfigFileRefs = []v1alpha1.ObjectRef{{Name: "absent"}} }, v1alpha1.ConditionAccepted, "ConfigFileMissing",
			"spec.configFileRefs: there is no ConfigMap absent: create it, or remove the reference"},
		"same":  {func(c *v1alpha1.Controller) { c.Spec.ClusterName = "tide" }, v1alpha1.ConditionAccepted, "ClusterNameTaken", "Controller tide of this namespace has the cluster name tide already"},
		"taken": {func(*v1alpha1.Controller) {}, v1alpha1.ConditionAccepted, "NameTaken", "ConfigMap " + p.ns + "/taken-config exists already, and was not made for this object"},
		"twice": {func(c *v1alpha1.Controller) {
			c.Spec.Slurmctld.Env = []corev1.EnvVar{{Name: "POD_NAME", Value: "mine"}}
		}, v1alpha1.ConditionAccepted, "ApplyFailed",
			`duplicate entries for key [name="POD_NAME"]`},
		"claim": {func(c *v1alpha1.Controller) { c.Spec.Persistence = v1alpha1.Persistence{ExistingClaim: "absent"} }, v1alpha1.ConditionAvailable, "Unschedulable",
			"spec.persistence.existingClaim: there is no claim absent: create it"},
		"class": {func(c *v1alpha1.Controller) {
			c.Spec.Persistence = v1alpha1.Persistence{StorageClassName: new("absent")}
		}, v1alpha1.ConditionAvailable, "Unschedulable",
			"claim statesave-class-controller-0 waits for a volume of storage class absent: its Events say why"},
		"image": {func(c *v1alpha1.Controller) {
			c.Spec.Slurmctld = &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "no.such/image:1", ImagePullPolicy: corev1.PullNever}}
		}, v1alpha1.ConditionAvailable, "ErrImageNeverPull", "no.such/image:1"},
		"class-of-pods": {func(c *v1alpha1.Controller) { c.Spec.Template.Spec.PriorityClassName = "absent" }, v1alpha1.ConditionAvailable, controlplane.CannotCreate,
			"Kubernetes cannot make the pod of slurmctld: "},
	} {
		t.Run(name, func(t *testing.T) {
			p.t = t
			c := &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ControllerSpec{
				Slurmctld: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:" + p.version}}, Persistence: v1alpha1.Persistence{Enabled: new(false)},
			}}
			test.change(c)
			controllers := p.tide.SlurmtideV1alpha1().Controllers(p.ns)
			_, err := controllers.Create(p.ctx, c, metav1.CreateOptions{})
			require.NoError(t, err)
			p.eventually(test.kind+" "+test.reason, func() (bool, string) {
				c, err := controllers.Get(p.ctx, name, metav1.GetOptions{})
				require.NoError(t, err)
				one := meta.FindStatusCondition(c.Status.Conditions, test.kind)
				return one != nil && one.Reason == test.reason && strings.Contains(one.Message, test.message), fmt.Sprintf("%+v", c.Status.Conditions)
			})
			p.toldOf(name, test.kind+test.reason+": ", test.message)
			require.NoError(t, controllers.Delete(p.ctx, name, metav1.DeleteOptions{}))
		})
	}
	p.t = t
	p.testNodeSetAlone()
	m, err := p.kube.CoreV1().ConfigMaps(p.ns).Get(p.ctx, "taken-config", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, theirs, m.BinaryData)
	assert.Empty(t, m.OwnerReferences)
	assert.Equal(t, before, p.restarts())
	p.waitInForce()
}

// testNodeSetAlone sees that a NodeSet says so that names no cluster there is, and no more once there is one.
func (p *plane) testNodeSetAlone() {
	const name, message = "alone", "there is no Controller of the cluster nobody in this namespace"
	sets := p.tide.SlurmtideV1alpha1().NodeSets(p.ns)
	p.createSet(name, "alone-0", func(set *v1alpha1.NodeSet) { set.Spec.ClusterRef.Name = "nobody" })
	p.eventually("the NodeSet to say so", func() (bool, string) {
		set, err := sets.Get(p.ctx, name, metav1.GetOptions{})
		require.NoError(p.t, err)
		one := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionAccepted)
		return one != nil && one.Reason == controlplane.ReasonNoController && strings.Contains(one.Message, message), fmt.Sprintf("%+v", set.Status.Conditions)
	})
	p.toldOf(name, v1alpha1.ConditionAccepted+controlplane.ReasonNoController+": ", message)
	require.NoError(p.t, sets.Delete(p.ctx, name, metav1.DeleteOptions{}))
}

// toldOf waits for Events about an object that have all these words.
func (p *plane) toldOf(name string, words ...string) {
	p.t.Helper()
	p.eventually("an Event", func() (bool, string) {
		said := runKubectl(p.t, "-n", p.ns, "get", "events.events.k8s.io", "-o", `jsonpath={range .items[?(@.regarding.name=="`+name+`")]}{.reason}: {.note}{"\n"}{end}`)
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }), said
	})
}
