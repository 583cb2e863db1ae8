//go:build integration

package pods

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// bridgeClient returns a Client that acts as a service account with exactly the given rights.
func (c *cluster) bridgeClient(t *testing.T, rights []Right, o Options) *Client {
	t.Helper()
	ctx := t.Context()
	_, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "bridge"}}
	for _, r := range rights {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{resource}, Verbs: r.Verbs})
	}
	_, err = c.kube.RbacV1().Roles(c.namespace).Create(ctx, role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.kube.RbacV1().RoleBindings(c.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bridge"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "bridge"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "bridge", Namespace: c.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + c.namespace + ":bridge",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	client, err := New(config, c.namespace, "tide", o)
	require.NoError(t, err)
	return client
}

// channels hands over calls of a Handler.
type channels struct {
	sets   chan []powersave.NodeSet
	synced chan []powersave.Pod
	pods   chan powersave.Pod
	gone   chan string
}

func newChannels() *channels {
	return &channels{make(chan []powersave.NodeSet, 100), make(chan []powersave.Pod, 1), make(chan powersave.Pod, 1000), make(chan string, 100)}
}

func (h *channels) NodeSets(s []powersave.NodeSet) { h.sets <- s }
func (h *channels) PodsSynced(p []powersave.Pod)   { h.synced <- p }
func (h *channels) Pod(p powersave.Pod)            { h.pods <- p }
func (h *channels) PodGone(node, uid string)       { h.gone <- node + "/" + uid }
func (h *channels) HostsSynced([]powersave.Host)   {}
func (h *channels) Host(powersave.Host)            {}
func (h *channels) HostsUnread(error)              {}

func next[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("waited 30 s for %s", what)
		panic("unreachable")
	}
}

// TestClient lets the Client work with the rights that Rights names and no others, so that a right missing
// there fails the test. The pod cannot be scheduled: what becomes of pods that run is tested with Slurm.
func TestClient(t *testing.T) {
	c := realCluster(t)
	_, err := c.create(t, edit(t, "      containers:", "      nodeSelector: {slurmtide.io/nowhere: \"true\"}\n      terminationGracePeriodSeconds: 0\n      containers:"), false)
	require.NoError(t, err)
	taint, err := ParseTaint(DefaultHostTaint)
	require.NoError(t, err)
	client := c.bridgeClient(t, Rights(), Options{HostTaint: taint})
	require.Eventually(t, func() bool { return client.CheckAccess(t.Context()) == nil }, 10*time.Second, 50*time.Millisecond, "the authorizer sees the role")

	err = client.CheckHostMarks(t.Context()) // all else works without
	assert.True(t, IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "missing: get nodes, patch nodes: ")
	err = client.TaintHost(t.Context(), powersave.TaintHost{Host: "any", Node: "cpu-1", UID: "u", Reason: "GPU Xid 79"})
	assert.True(t, IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "add it to a ClusterRole")

	ctx, stop := context.WithCancel(t.Context())
	h, ended := newChannels(), make(chan error, 1)
	go func() { ended <- client.Run(ctx, h) }()
	sets := next(t, h.sets, "the NodeSets")
	require.Len(t, sets, 1)
	assert.Equal(t, "cpu-[0-9]", sets[0].Nodes.String())
	assert.Empty(t, sets[0].Problem)
	assert.Empty(t, next(t, h.synced, "the pods"))
	require.NoError(t, client.Health().Err)

	uid, err := client.Create(ctx, powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req-1"})
	require.NoError(t, err)
	again, err := client.Create(ctx, powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req-2"})
	require.NoError(t, err)
	assert.Equal(t, uid, again)
	_, err = client.Create(ctx, powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 8, Request: "req-3"})
	assert.True(t, IsConflict(err), "%v", err)
	pod := next(t, h.pods, "the pod")
	assert.Equal(t, []any{"cpu-1", "cpu", uid, int64(7), "req-1", powersave.PodPending}, []any{pod.Node, pod.NodeSet, pod.UID, pod.Generation, pod.Request, pod.Phase})

	require.NoError(t, client.UpdateStatus(ctx, powersave.NodeSetCounts{Name: "cpu", Nodes: 10, PoweredUp: 1, Booting: 1}))
	client.NodeSetEvent("cpu", corev1.EventTypeNormal, "Booting", "Resume", "1 node")
	require.Eventually(t, func() bool {
		list, err := c.kube.EventsV1().Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Booting"})
		return err == nil && len(list.Items) == 1
	}, 10*time.Second, 50*time.Millisecond)
	got, err := c.nodeSets().Get(ctx, "cpu", metav1.GetOptions{})
	require.NoError(t, err)
	status, _, _ := unstructured.NestedMap(got.Object, "status")
	assert.EqualValues(t, 1, status["poweredUp"])
	assert.Equal(t, "slurmtide.io/cluster=tide,slurmtide.io/nodeset=cpu", status["selector"])

	gone, err := client.Delete(ctx, "cpu-1", "00000000-0000-0000-0000-000000000000")
	require.NoError(t, err)
	assert.True(t, gone, "a UID that is not there is gone")
	_, err = c.kube.CoreV1().Pods(c.namespace).Get(ctx, "cpu-1", metav1.GetOptions{})
	require.NoError(t, err, "and the pod that has the name stays")
	_, err = client.Delete(ctx, "cpu-1", uid)
	require.NoError(t, err)
	assert.Equal(t, "cpu-1/"+uid, next(t, h.gone, "the end of the pod"))
	gone, err = client.Delete(ctx, "cpu-1", uid)
	require.NoError(t, err)
	assert.True(t, gone)

	stop()
	require.NoError(t, <-ended)
}

func TestClientErrors(t *testing.T) {
	c := realCluster(t)
	_, err := c.create(t, goodNodeSet, false)
	require.NoError(t, err)

	t.Run("every right is needed and named", func(t *testing.T) {
		told := make(chan error, 100)
		client := c.bridgeClient(t, nil, Options{WatchError: func(err error) { told <- err }})
		err := client.CheckAccess(t.Context())
		var e *Error
		require.ErrorAs(t, err, &e)
		var all []string
		for _, r := range Rights() {
			for _, verb := range r.Verbs {
				all = append(all, verb+" "+r.String())
			}
		}
		assert.Equal(t, all, e.Missing)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- client.Run(ctx, newChannels()) }()
		// Which of the two is tried first, and how often, is chance.
		pods := regexp.MustCompile(`the right "(list|watch) pods" is missing in namespace nodesets-`)
		sets := regexp.MustCompile(`the right "(list|watch) nodesets.slurmtide.io" is missing in namespace nodesets-`)
		for text := ""; !pods.MatchString(text) || !sets.MatchString(text); {
			text += next(t, told, "errors about both resources").Error()
		}
		assert.False(t, client.Health().Synced)
		stop()
		require.NoError(t, <-ended)

		client.nodeSets = storeWith(t, newNodeSetIn(c.namespace))
		_, err = client.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 1, Request: "r"})
		require.ErrorContains(t, err, `the right "create pods" is missing`)
		assert.True(t, IsForbidden(err))
		_, err = client.Delete(t.Context(), "cpu-1", "u")
		require.ErrorContains(t, err, `the right "delete pods" is missing`)
		require.ErrorContains(t, client.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu"}), `the right "patch nodesets.slurmtide.io/status" is missing`)
	})

	admin, err := New(c.config, c.namespace, "tide", Options{})
	require.NoError(t, err)
	admin.nodeSets = storeWith(t, newNodeSetIn(c.namespace))

	t.Run("quota", func(t *testing.T) {
		quotas := c.kube.CoreV1().ResourceQuotas(c.namespace)
		_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: {}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, err := admin.Create(context.Background(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-2", Generation: 1, Request: "r"})
			var e *Error
			if assert.ErrorAs(t, err, &e) {
				assert.Equal(t, Quota, e.Class, "%v", err)
				assert.Equal(t, powersave.TroubleQuota, e.Trouble())
				assert.False(t, e.Permanent())
			}
		}, 30*time.Second, 200*time.Millisecond)
		require.NoError(t, quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}))
	})

	t.Run("limit range", func(t *testing.T) {
		limits := c.kube.CoreV1().LimitRanges(c.namespace)
		_, err := limits.Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")},
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		defer func() { require.NoError(t, limits.Delete(t.Context(), "small", metav1.DeleteOptions{})) }()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, err := admin.Create(context.Background(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-4", Generation: 1, Request: "r"})
			var e *Error
			if assert.ErrorAs(t, err, &e) {
				assert.Equal(t, Limit, e.Class, "%v", err)
				assert.True(t, e.Permanent())
			}
		}, 30*time.Second, 200*time.Millisecond)
	})

	t.Run("pod security", func(t *testing.T) {
		_, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), c.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, err := admin.Create(context.Background(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-3", Generation: 1, Request: "r"})
			assert.True(t, IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, "violates PodSecurity")
		}, 30*time.Second, 200*time.Millisecond)
	})

	t.Run("nobody listens", func(t *testing.T) {
		config := rest.CopyConfig(c.config)
		config.Host = "https://127.0.0.1:1"
		client, err := New(config, c.namespace, "tide", Options{})
		require.NoError(t, err)
		err = client.CheckAccess(t.Context())
		require.ErrorContains(t, err, "the API server cannot be reached")
		assert.True(t, IsTransient(err))
	})

	t.Run("bad credentials", func(t *testing.T) {
		config := rest.AnonymousClientConfig(c.config)
		config.BearerToken = "not-a-token"
		client, err := New(config, c.namespace, "tide", Options{})
		require.NoError(t, err)
		err = client.CheckAccess(t.Context())
		require.ErrorContains(t, err, "does not accept the bridge's credentials")
		assert.True(t, IsForbidden(err))
	})

}

func newNodeSetIn(namespace string) *v1alpha1.NodeSet {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Namespace = namespace
	return ns
}

func storeWith(t *testing.T, ns *v1alpha1.NodeSet) cache.Store {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	require.NoError(t, store.Add(ns))
	return store
}

// TestObserveKubelet holds verdicts against what a real scheduler, kubelet and runtime write, and when.
func TestObserveKubelet(t *testing.T) {
	c := realCluster(t)
	script := func(s string) string { return `{command: [/bin/sh, -c, "` + s + `", "--"]}` }
	volume := func(source string) string { return `{volumes: [{name: a, ` + source + `}]}` }
	const mount = `{command: [/bin/sh, -c, "exec sleep 600", "--"], volumeMounts: [{name: a, mountPath: /a}]}`
	type want struct {
		phase   powersave.PodPhase
		reason  string // regular expression
		message string // part of it
		trouble powersave.Trouble
	}
	cases := map[string]struct {
		image     string // default testImage
		gres      string
		container string // more of it, as a YAML flow map
		pod       string // more of the pod's spec
		want      want
	}{
		"ready":          {container: script("exec sleep 600"), want: want{powersave.PodReady, "^$", "", powersave.TroubleNone}},
		"fails":          {container: script("echo no slurm.conf >/dev/termination-log; exit 3"), want: want{powersave.PodFailed, "^Error$", "container slurmd ended with exit code 3: no slurm.conf", powersave.TroubleCrash}},
		"ends":           {container: script("exit 0"), want: want{powersave.PodFailed, "^Completed$", "exit code 0", powersave.TroubleCrash}},
		"no-program":     {container: `{command: [/no/such/program]}`, want: want{powersave.PodFailed, "^StartError$", "/no/such/program", powersave.TroubleCrash}},
		"no-secret":      {container: `{env: [{name: A, valueFrom: {secretKeyRef: {name: nowhere, key: a}}}]}`, want: want{powersave.PodScheduled, "^CreateContainerConfigError$", `secret "nowhere" not found`, powersave.TroubleConfig}},
		"no-image":       {image: "slurmtide.invalid/none:1", want: want{powersave.PodScheduled, "^(ErrImagePull|ImagePullBackOff)$", "slurmtide.invalid/none:1", powersave.TroubleImage}},
		"bad-image-name": {image: "slurmtide/Slurm:26.05", want: want{powersave.PodScheduled, "^InvalidImageName$", "slurmtide/Slurm:26.05", powersave.TroubleImage}},
		"no-such-host":   {pod: `{nodeSelector: {slurmtide.io/nowhere: "true"}}`, want: want{powersave.PodPending, "^Unschedulable$", "didn't match Pod's node affinity/selector", powersave.TroubleCapacity}},
		"no-such-gpus":   {gres: "gpu:999", want: want{powersave.PodPending, "^Unschedulable$", "Insufficient nvidia.com/gpu", powersave.TroubleCapacity}},
		"gated":          {pod: `{schedulingGates: [{name: slurmtide.io/test}]}`, want: want{powersave.PodPending, "^SchedulingGated$", "", powersave.TroubleNone}},
		"fails-in-log":   {container: script("echo starts; echo slurmd: error: no controller >&2; exit 3"), want: want{powersave.PodFailed, "^Error$", "container slurmd ended with exit code 3: error: no controller", powersave.TroubleCrash}},
		"init-fails":     {pod: `{initContainers: [{name: setup, image: "` + testImage + `", command: [/bin/sh, -c, "exit 4"]}]}`, want: want{powersave.PodFailed, "^Error$", "container setup ended with exit code 4", powersave.TroubleCrash}},
		"sidecar-stays": {container: script("exit 5"), pod: `{initContainers: [{name: log, restartPolicy: Always, image: "` + testImage + `", command: [sleep, "600"]}]}`,
			want: want{powersave.PodFailed, "^Error$", "container slurmd ended with exit code 5", powersave.TroubleCrash}},
		"out-of-memory": {container: script("exec tail /dev/zero"), want: want{powersave.PodFailed, "^OOMKilled$", "container slurmd ended with exit code 137", powersave.TroubleCrash}},
		"too-long":      {container: script("exec sleep 600"), pod: `{activeDeadlineSeconds: 1}`, want: want{powersave.PodFailed, "^DeadlineExceeded$", "active on the node longer than", powersave.TroubleConfig}},
		"no-room":       {container: `{resources: {requests: {cpu: "1000", memory: 1Mi}, limits: {memory: 32Mi}}}`, want: want{powersave.PodPending, "^Unschedulable$", "0/1 nodes are available: 1 Insufficient cpu", powersave.TroubleCapacity}},
		"no-claim": {pod: volume(`persistentVolumeClaim: {claimName: nowhere}`), container: mount,
			want: want{powersave.PodPending, "^Unschedulable$", `persistentvolumeclaim "nowhere" not found`, powersave.TroubleConfig}},
		// The kubelet tells of a volume that is missing in events only.
		"no-config-map": {pod: volume(`configMap: {name: nowhere}`), container: mount, want: want{powersave.PodScheduled, "^FailedMount$", `configmap "nowhere" not found`, powersave.TroubleConfig}},
		"no-key":        {pod: volume(`secret: {secretName: partial, items: [{key: nowhere, path: a}]}`), container: mount, want: want{powersave.PodScheduled, "^FailedMount$", "references non-existent secret key: nowhere", powersave.TroubleConfig}},
	}
	for name, tc := range cases {
		var ns map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(goodNodeSet), &ns))
		spec := ns["spec"].(map[string]any)
		ns["metadata"] = map[string]any{"name": name}
		spec["nodeNames"] = name
		spec["shape"] = map[string]any{"cpus": 1, "realMemory": 32, "gres": cmp.Or(tc.gres, "nic:1")}
		pod := spec["template"].(map[string]any)["spec"].(map[string]any)
		slurmd := pod["containers"].([]any)[0].(map[string]any)
		slurmd["image"] = cmp.Or(tc.image, testImage)
		slurmd["resources"] = map[string]any{"requests": map[string]any{"cpu": "1m", "memory": "1Mi"}, "limits": map[string]any{"memory": "32Mi"}}
		pod["terminationGracePeriodSeconds"] = 0
		require.NoError(t, yaml.Unmarshal([]byte(cmp.Or(tc.container, "{}")), &slurmd))
		require.NoError(t, yaml.Unmarshal([]byte(cmp.Or(tc.pod, "{}")), &pod))
		text, err := yaml.Marshal(ns)
		require.NoError(t, err)
		_, err = c.create(t, string(text), false)
		require.NoError(t, err, name)
	}
	partial := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "partial"}, Data: map[string][]byte{"a": nil}}
	_, err := c.kube.CoreV1().Secrets(c.namespace).Create(t.Context(), partial, metav1.CreateOptions{})
	require.NoError(t, err)
	client := c.bridgeClient(t, Rights(), Options{})
	require.Eventually(t, func() bool { return client.CheckAccess(t.Context()) == nil }, 10*time.Second, 50*time.Millisecond, "the authorizer sees the role")
	ctx, stop := context.WithCancel(t.Context())
	h, ended := newChannels(), make(chan error, 1)
	go func() { ended <- client.Run(ctx, h) }()
	next(t, h.synced, "the pods")
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	for name := range cases {
		_, err := client.Create(ctx, powersave.CreatePod{NodeSet: name, Node: name, Generation: 1, Request: "r"})
		require.NoError(t, err)
	}

	created := time.Now()
	waiting := map[string]powersave.Pod{}
	for name := range cases {
		waiting[name] = powersave.Pod{}
	}
	deadline := time.After(60 * time.Second)
	await := func() {
		for len(waiting) > 0 {
			select {
			case p := <-h.pods:
				w := cases[p.Node].want
				if p.Phase == w.phase && regexp.MustCompile(w.reason).MatchString(p.Reason) && strings.Contains(p.Message, w.message) && p.Trouble == w.trouble {
					if _, ok := waiting[p.Node]; ok {
						t.Logf("%5.1f s: %s %s %q %s: %s", time.Since(created).Seconds(), p.Node, p.Phase, p.Trouble, p.Reason, p.Message)
					}
					delete(waiting, p.Node)
				} else if _, ok := waiting[p.Node]; ok {
					waiting[p.Node] = p
				}
			case <-deadline:
				for name, last := range waiting {
					t.Errorf("%s: want %+v, last seen %+v", name, cases[name].want, last)
				}
				return
			}
		}
	}
	await()

	// What was missing comes: the verdict goes.
	nowhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}
	_, err = c.kube.CoreV1().ConfigMaps(c.namespace).Create(ctx, nowhere, metav1.CreateOptions{})
	require.NoError(t, err)
	healed := cases["no-config-map"]
	healed.want = want{powersave.PodReady, "^$", "", powersave.TroubleNone}
	cases["no-config-map"], waiting["no-config-map"] = healed, powersave.Pod{}
	await()
}
