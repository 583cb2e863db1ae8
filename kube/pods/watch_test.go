package pods

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

// record writes down every call in order.
type record struct{ calls []string }

func (r *record) add(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *record) NodeSets(sets []powersave.NodeSet) {
	line := "nodesets"
	for _, s := range sets {
		line += " " + s.Name + "=" + s.Nodes.String()
		if s.Problem != "" {
			line += "!"
		}
	}
	r.add("%s", line)
}

func (r *record) PodsSynced(all []powersave.Pod) {
	line := "synced"
	for _, p := range all {
		line += " " + p.Node + "/" + p.UID
	}
	r.add("%s", line)
}

func (r *record) Pod(p powersave.Pod)      { r.add("pod %s/%s %s", p.Node, p.UID, p.Phase) }
func (r *record) PodGone(node, uid string) { r.add("gone %s/%s", node, uid) }

func (r *record) HostsUnread(err error) { r.add("hosts unread: %v", err) }
func (r *record) Host(h powersave.Host) { r.add("host %s", showHost(h)) }

func showHost(h powersave.Host) string {
	if h.Repels != "" {
		return h.Name + " " + h.Trouble + ", repels: " + h.Repels
	}
	return h.Name + " " + h.Trouble
}

func (r *record) HostsSynced(all []powersave.Host) {
	if len(all) > 0 {
		shown := make([]string, 0, len(all))
		for _, h := range all {
			shown = append(shown, "{"+showHost(h)+"}")
		}
		r.add("hosts %v", shown)
	}
}

func (r *record) take() []string {
	calls := r.calls
	r.calls = nil
	return calls
}

func newPod(name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "slurm", UID: uid,
			Labels:      map[string]string{v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: "cpu", v1alpha1.LabelNode: name},
			Annotations: map[string]string{v1alpha1.AnnotationGeneration: "1"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

type scene func(ctx context.Context, c *Client, kube *kubefake.Clientset, tide *tidefake.Clientset, r *record)

// running plays a scene while Run runs in a synctest bubble, after the given objects exist.
func running(t *testing.T, play scene, objects ...runtime.Object) {
	t.Helper()
	runningWith(t, func(*kubefake.Clientset) {}, play, Options{}, objects...)
}

func runningWith(t *testing.T, prepare func(*kubefake.Clientset), play scene, o Options, objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kube, tide := kubefake.NewClientset(), tidefake.NewSimpleClientset()
		prepare(kube)
		for _, obj := range objects {
			switch obj.(type) {
			case *corev1.Pod, *corev1.Node:
				require.NoError(t, kube.Tracker().Add(obj))
			default:
				require.NoError(t, tide.Tracker().Add(obj))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		c, r := newClient(kube, tide, "slurm", "tide", o), &record{}
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, r) }()
		defer func() {
			cancel()
			assert.False(t, <-done != nil || c.Health().Synced, "Run ends without an error")
		}()
		synctest.Wait()
		play(ctx, c, kube, tide, r)
	})
}

func TestRun(t *testing.T) {
	foreignPod := newPod("cpu-5", "f")
	foreignPod.Labels[v1alpha1.LabelCluster] = "wave"
	foreignSet := newNodeSet("wave", "w-1")
	foreignSet.Spec.ClusterRef.Name = "wave"
	running(t, func(ctx context.Context, c *Client, kube *kubefake.Clientset, tide *tidefake.Clientset, r *record) {
		assert.Equal(t, []string{"nodesets cpu=cpu-[0-9]", "synced cpu-1/a cpu-2/b"}, r.take())
		assert.True(t, c.Health().Synced)
		require.NoError(t, c.Health().Err)
		require.Error(t, c.Run(ctx, r), "one Run at a time")

		pods := kube.CoreV1().Pods("slurm")
		p := newPod("cpu-1", "a")
		p.Spec.NodeName = "host-1"
		_, err := pods.Update(ctx, p, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"pod cpu-1/a scheduled"}, r.take())

		p.ResourceVersion, p.Annotations["unrelated"] = "99", "x"
		_, err = pods.Update(ctx, p, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, r.take(), "nothing the engine looks at has changed")

		uid, err := c.Create(ctx, powersave.CreatePod{NodeSet: "cpu", Node: "cpu-3", Generation: 1, Request: "r"})
		require.NoError(t, err)
		require.NoError(t, pods.Delete(ctx, "cpu-2", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{"pod cpu-3/" + uid + " pending", "gone cpu-2/b"}, r.take())

		sets := tide.SlurmtideV1alpha1().NodeSets("slurm")
		ns := newNodeSet("cpu", "cpu-[0-9]")
		ns.Status.Ready = 3
		_, err = sets.UpdateStatus(ctx, ns, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, r.take(), "a status write is no news")

		ns.Generation, ns.Spec.NodeNames = 2, "cpu-[0-19]"
		_, err = sets.Update(ctx, ns, metav1.UpdateOptions{})
		require.NoError(t, err)
		young := newNodeSet("young", "cpu-[15-30]")
		young.UID, young.CreationTimestamp = "y", metav1.NewTime(ns.CreationTimestamp.Add(time.Hour))
		synctest.Wait()
		_, err = sets.Create(ctx, young, metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, sets.Delete(ctx, "cpu", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{
			"nodesets cpu=cpu-[0-19]",
			"nodesets cpu=cpu-[0-19] young=cpu-[20-30]!",
			"nodesets young=cpu-[15-30]",
		}, r.take())
	}, newNodeSet("cpu", "cpu-[0-9]"), foreignSet, newPod("cpu-1", "a"), newPod("cpu-2", "b"), foreignPod)
}

func TestRunWithoutObjects(t *testing.T) {
	running(t, func(_ context.Context, _ *Client, _ *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		assert.Equal(t, []string{"nodesets", "synced"}, r.take(), "nothing is news as well")
	})
}

// A watch that broke misses events; the list after it shows another pod under an old name.
func TestPodReplacedUnseen(t *testing.T) {
	w, r := testWatcher(t)
	w.podChanged(newPod("cpu-1", "a"))
	assert.Empty(t, r.take(), "nothing before the first complete list")
	w.podsSynced()
	w.podChanged(newPod("cpu-1", "b"))
	w.podGone(cache.DeletedFinalStateUnknown{Key: "slurm/cpu-1", Obj: newPod("cpu-1", "b")})
	w.podGone(newPod("cpu-9", "never-seen"))
	w.podGone(cache.DeletedFinalStateUnknown{Key: "slurm/cpu-1"})
	assert.Equal(t, []string{"synced cpu-1/a", "gone cpu-1/a", "pod cpu-1/b pending", "gone cpu-1/b"}, r.take())
}

func TestPodGoneBeforeSync(t *testing.T) {
	w, r := testWatcher(t)
	w.podChanged(newPod("cpu-1", "a"))
	w.podChanged(newPod("cpu-2", "b"))
	w.podGone(newPod("cpu-1", "a"))
	w.podsSynced()
	assert.Equal(t, []string{"synced cpu-2/b"}, r.take())
}

func testWatcher(t *testing.T) (*watcher, *record) {
	c, _, _ := testClient(t)
	r := &record{}
	return newWatcher(c, r), r
}

func TestWatchErrors(t *testing.T) {
	var told []string
	o := Options{WatchError: func(err error) {
		if err == nil {
			told = append(told, "well again")
		} else {
			told = append(told, err.Error())
		}
	}}
	forbidden := apierrors.NewForbidden(podResource, "", errors.New(`User "system:serviceaccount:slurm:bridge" cannot watch resource "pods" in API group "" in the namespace "slurm"`))
	var broken atomic.Bool
	var current atomic.Pointer[watch.FakeWatcher]
	watches := func(kube *kubefake.Clientset) {
		kube.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			if broken.Load() {
				return true, nil, forbidden
			}
			current.Store(watch.NewFake())
			return true, current.Load(), nil
		})
	}
	runningWith(t, watches, func(_ context.Context, c *Client, _ *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		r.take()
		assert.Empty(t, told)
		broken.Store(true)
		current.Load().Stop()
		time.Sleep(10 * time.Second) // of the bubble: the reflector backs off
		synctest.Wait()
		require.NotEmpty(t, told)
		assert.Contains(t, told[0], `watching pods: pods is forbidden`)
		assert.Contains(t, told[0], `the right "watch pods" is missing in namespace slurm`)
		assert.True(t, IsForbidden(c.Health().Err))
		assert.NotContains(t, told, "well again", "lists succeed meanwhile, and yet it is not well")
		assert.True(t, c.Health().Synced, "what was read stays known")

		broken.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "well again", told[len(told)-1])
		require.NoError(t, c.Health().Err)
		current.Load().Add(newPod("cpu-1", "a"))
		synctest.Wait()
		assert.Equal(t, []string{"pod cpu-1/a pending"}, r.take())
		assert.Equal(t, time.Now(), c.Health().LastContact)
	}, o, newNodeSet("cpu", "cpu-[0-9]"))
}

func TestContactIgnoresWhatIsNormal(t *testing.T) {
	w, _ := testWatcher(t)
	var told []error
	w.client.opts.WatchError = func(err error) { told = append(told, err) }
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	w.contact(ended, "watch", "pods", metav1.ListOptions{}, context.Canceled)
	w.contact(ctx, "watch", "pods", metav1.ListOptions{}, apierrors.NewResourceExpired("too old resource version"))
	w.contact(ctx, "watch", "pods", metav1.ListOptions{SendInitialEvents: new(true)}, apierrors.NewInvalid(podKind, "", nil))
	w.contact(ctx, "list", "pods", metav1.ListOptions{}, nil)
	assert.Empty(t, told)

	noCRD := apierrors.NewNotFound(schema.GroupResource{Group: "slurmtide.io", Resource: "nodesets"}, "")
	w.contact(ctx, "list", "nodesets.slurmtide.io", metav1.ListOptions{}, noCRD)
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "chart slurmtide-crds is installed")
	w.contact(ctx, "watch", "nodesets.slurmtide.io", metav1.ListOptions{SendInitialEvents: new(true)}, nil)
	require.Len(t, told, 2)
	assert.NoError(t, told[1], "a streaming watch does the list's work")
}

func TestUpdateStatus(t *testing.T) {
	c, _, tide := testClient(t)
	patches := func() (n int) {
		for _, a := range tide.Actions() {
			if a.Matches("patch", "nodesets/status") {
				n++
			}
		}
		return n
	}
	ctx := t.Context()
	counts := powersave.NodeSetCounts{Name: "cpu", Nodes: 10, PoweredUp: 5, Booting: 2, Ready: 3, Failed: 1}
	require.NoError(t, c.UpdateStatus(ctx, counts))
	ns, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(ctx, "cpu", metav1.GetOptions{})
	require.NoError(t, err)
	s := ns.Status
	assert.Equal(t, []int32{10, 5, 5, 2, 3, 1}, []int32{s.Nodes, s.PoweredUp, s.Replicas, s.Booting, s.Ready, s.Failed})
	assert.Equal(t, "slurmtide.io/cluster=tide,slurmtide.io/nodeset=cpu", s.Selector)
	assert.EqualValues(t, 1, s.ObservedGeneration)
	assert.True(t, meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAccepted))
	assert.True(t, meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionNodesInSlurm))

	require.NoError(t, c.UpdateStatus(ctx, counts))
	assert.Equal(t, 1, patches(), "the same again makes no request")

	counts.Unknown, counts.Problem = 4, "NodeSet cpu cannot be used: reasons"
	require.NoError(t, c.UpdateStatus(ctx, counts))
	ns, err = tide.SlurmtideV1alpha1().NodeSets("slurm").Get(ctx, "cpu", metav1.GetOptions{})
	require.NoError(t, err)
	accepted := meta.FindStatusCondition(ns.Status.Conditions, v1alpha1.ConditionAccepted)
	assert.Equal(t, metav1.ConditionFalse, accepted.Status)
	assert.Equal(t, counts.Problem, accepted.Message)
	inSlurm := meta.FindStatusCondition(ns.Status.Conditions, v1alpha1.ConditionNodesInSlurm)
	assert.Contains(t, inSlurm.Message, "slurmctld does not know 4 of 10 nodes")

	// A new Client, as after a restart, finds the status written already.
	fresh := newClient(c.kube, c.tide, "slurm", "tide", Options{})
	fresh.nodeSets = cache.NewStore(cache.MetaNamespaceKeyFunc)
	require.NoError(t, fresh.nodeSets.Add(ns))
	require.NoError(t, fresh.UpdateStatus(ctx, counts))
	assert.Equal(t, 2, patches())

	require.NoError(t, c.UpdateStatus(ctx, powersave.NodeSetCounts{Name: "gone"}), "a NodeSet that is gone needs no status")

	tide.PrependReactor("patch", "nodesets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "slurmtide.io", Resource: "nodesets"}, "cpu", errors.New(`User "x" cannot patch resource "nodesets/status" in API group "slurmtide.io"`))
	})
	counts.Ready++
	require.ErrorContains(t, c.UpdateStatus(ctx, counts), `the right "patch nodesets.slurmtide.io/status" is missing`)
	require.Error(t, c.UpdateStatus(ctx, counts), "a write that failed is tried again")
}

func TestEvents(t *testing.T) {
	running(t, func(_ context.Context, c *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, _ *record) {
		c.NodeSetEvent("cpu", corev1.EventTypeWarning, "BootFailed", "Resume", "cpu-1: "+string(make([]byte, 2000)))
		c.NodeSetEvent("gone", corev1.EventTypeWarning, "BootFailed", "Resume", "nobody hears this")
		c.PodEvent(powersave.Pod{Node: "cpu-1", UID: "a"}, corev1.EventTypeNormal, "Registered", "Resume", "slurmd registered after 3 s")
		synctest.Wait()
		list, err := kube.EventsV1().Events("slurm").List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		got := map[string]string{}
		for _, e := range list.Items {
			got[e.Regarding.Kind+" "+e.Regarding.Name+" "+string(e.Regarding.UID)+" "+e.Reason] = e.Note
			assert.LessOrEqual(t, len(e.Note), 1024)
		}
		assert.Len(t, got, 2)
		assert.Contains(t, got, "NodeSet cpu uid-of-nodeset BootFailed")
		assert.Equal(t, "slurmd registered after 3 s", got["Pod cpu-1 a Registered"])
	}, newNodeSet("cpu", "cpu-[0-9]"))
}

func TestWarn(t *testing.T) {
	running(t, func(_ context.Context, c *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, _ *record) {
		c.Warn("cpu", "cpu-1", "a", "BootFailed", "node cpu-1: capacity: no room")
		time.Sleep(time.Second) // Events are named after the time
		c.Warn("cpu", "cpu-2", "", "FloorNotReached", "no pod was made")
		c.Warn("", "cpu-3", "c", "Odd", "of no NodeSet")
		synctest.Wait()
		list, err := kube.EventsV1().Events("slurm").List(context.Background(), metav1.ListOptions{})
		require.NoError(t, err)
		got := []string{}
		for _, e := range list.Items {
			assert.Equal(t, corev1.EventTypeWarning, e.Type)
			got = append(got, fmt.Sprintf("%s %s %s %s %s", e.Regarding.Kind, e.Regarding.Name, e.Regarding.UID, e.Reason, e.Note))
		}
		assert.ElementsMatch(t, []string{
			"Pod cpu-1 a BootFailed node cpu-1: capacity: no room",
			"NodeSet cpu uid-of-nodeset BootFailed node cpu-1: capacity: no room",
			"NodeSet cpu uid-of-nodeset FloorNotReached no pod was made",
			"Pod cpu-3 c Odd of no NodeSet",
		}, got)
	}, newNodeSet("cpu", "cpu-[0-9]"))
}

func TestShorten(t *testing.T) {
	assert.Equal(t, "abc", shorten("abc", 3))
	assert.Equal(t, "abc...", shorten("abcdefg", 6))
	assert.Equal(t, "a...", shorten("aäöüß", 5))
}
