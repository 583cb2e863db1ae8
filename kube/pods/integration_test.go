//go:build integration

package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// These tests need a real cluster that has the image testImage: SLURMTIDE_KUBECONFIG or KUBECONFIG names
// its kubeconfig. They install the CRD and work in namespaces of their own, which they remove.

const testImage = "slurmtide/slurm:26.05"

var (
	crdResource     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	nodeSetResource = v1alpha1.SchemeGroupVersion.WithResource("nodesets")
)

type cluster struct {
	config    *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

func realCluster(t *testing.T) *cluster {
	t.Helper()
	path := cmp.Or(os.Getenv("SLURMTIDE_KUBECONFIG"), os.Getenv("KUBECONFIG"))
	require.NotEmpty(t, path, "SLURMTIDE_KUBECONFIG or KUBECONFIG must name the kubeconfig of a cluster to test against")
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	config.QPS, config.Burst = 200, 400
	c := &cluster{config: config}
	c.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	ns, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nodesets-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.namespace = ns.Name
	t.Cleanup(func() {
		assert.NoError(t, c.kube.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}))
	})
	c.installCRD(t)
	return c
}

func (c *cluster) installCRD(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile("../../helm/slurmtide-crds/templates/nodesets.yaml")
	require.NoError(t, err)
	var crd unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal(raw, &crd.Object))
	_, err = c.dynamic.Resource(crdResource).Apply(t.Context(), crd.GetName(), &crd, metav1.ApplyOptions{FieldManager: "integration-test", Force: true})
	require.NoError(t, err, "the API server must take the CRD, its rules and their cost")
	require.Eventually(t, func() bool {
		got, err := c.dynamic.Resource(crdResource).Get(t.Context(), crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		text := fmt.Sprint(conditions)
		return strings.Contains(text, "status:True type:Established") && !strings.Contains(text, "NonStructuralSchema")
	}, 30*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool { // the endpoint follows the condition
		_, err := c.nodeSets().List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
}

func (c *cluster) nodeSets() dynamic.ResourceInterface {
	return c.dynamic.Resource(nodeSetResource).Namespace(c.namespace)
}

// create makes a NodeSet from YAML, strictly: unknown fields are an error, as with kubectl.
func (c *cluster) create(t *testing.T, text string, dryRun bool) (*unstructured.Unstructured, error) {
	t.Helper()
	var obj unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	o := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return c.nodeSets().Create(t.Context(), &obj, o)
}

const goodNodeSet = `
apiVersion: slurmtide.io/v1alpha1
kind: NodeSet
metadata: {name: cpu}
spec:
  clusterRef: {name: tide}
  nodeNames: cpu-[0-9]
  shape: {cpus: 4, realMemory: 8000}
  template:
    metadata: {labels: {team: hpc}}
    spec:
      containers:
      - name: slurmd
        image: slurmtide/slurm:26.05
`

// edit replaces text in the good NodeSet; a pair that does not occur fails the test.
func edit(t *testing.T, pairs ...string) string {
	t.Helper()
	text := goodNodeSet
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func TestCRDRules(t *testing.T) {
	c := realCluster(t)
	const spec, shape, image = "spec:\n  clusterRef", "{cpus: 4, realMemory: 8000}", "image: slurmtide/slurm:26.05"
	in := func(field string) []string { return []string{spec, "spec:\n  " + field + "\n  clusterRef"} }
	shaped := func(s string) []string { return []string{shape, s} }
	container := func(s string) []string { return []string{image, image + "\n        " + s} }
	podSpec := func(s string) []string { return []string{"      containers:", "      " + s + "\n      containers:"} }
	for name, tc := range map[string]struct {
		edits []string
		want  string // "" accepts
	}{
		"good":                      {nil, ""},
		"unknown field":             {in("nodes: 3"), `unknown field "spec.nodes"`},
		"unknown pod field":         {podSpec("nodeSelektor: {a: b}"), `unknown field "spec.template.spec.nodeSelektor"`},
		"wrong type in the pod":     {container("env: FOO=1"), "spec.template.spec.containers[0].env in body must be of type array"},
		"name as long as a label":   {[]string{"name: cpu}", "name: " + strings.Repeat("c", 63) + "}"}, ""},
		"name too long for a label": {[]string{"name: cpu}", "name: " + strings.Repeat("c", 64) + "}"}, "metadata.name must not be longer than 63 characters"},
		"no cluster":                {[]string{"{name: tide}", `{name: ""}`}, "spec.clusterRef.name"},
		"cluster in capitals":       {[]string{"{name: tide}", `{name: Tide}`}, "spec.clusterRef.name"},
		"cluster with underscore":   {[]string{"{name: tide}", `{name: my_tide-2}`}, ""},
		"no nodes":                  {[]string{"cpu-[0-9]", `""`}, "spec.nodeNames"},
		"nodes in capitals":         {[]string{"cpu-[0-9]", `CPU-[0-9]`}, "spec.nodeNames"},
		"nodes with a dot":          {[]string{"cpu-[0-9]", `cpu.1`}, "spec.nodeNames"},
		"several brackets":          {[]string{"cpu-[0-9]", `"r[1-2]n[00-99],gpu-1"`}, ""},

		"each host":                 {append(in("eachHost: {domain: ec2.internal, alwaysOn: true}\n  mode: Cloud"), "  nodeNames: cpu-[0-9]\n", ""), ""},
		"each host, and names":      {in("eachHost: {}\n  boot: {strategy: Greedy, deadline: 5m}\n  offerings: []"), ""},
		"each host, Dynamic":        {append(in("eachHost: {}\n  mode: Dynamic"), "  nodeNames: cpu-[0-9]\n", ""), "spec.eachHost needs mode Cloud"},
		"neither names nor hosts":   {[]string{"  nodeNames: cpu-[0-9]\n", ""}, "spec.nodeNames: name the nodes, or have one on each host with spec.eachHost"},
		"each host, no domain":      {in("eachHost: {domain: .internal}"), "spec.eachHost.domain"},
		"each host, offerings":      {in("eachHost: {}\n  offerings: [{name: spot}]"), "spec.eachHost goes without spec.offerings"},
		"each host, topology":       {in("eachHost: {}\n  boot: {topologyKey: zone}"), "spec.eachHost goes without topologyKey and provisioningRequest"},
		"each host, room":           {in("eachHost: {}\n  boot: {provisioningRequest: {className: x}}"), "spec.eachHost goes without topologyKey and provisioningRequest"},
		"mode Cloud":                {in("mode: Cloud"), ""},
		"mode Dynamic":              {in("mode: Dynamic"), ""},
		"Dynamic, everything":       {append(in("mode: Dynamic\n  replicas: 2\n  partitions: [dyn]\n  suspend: {idleTime: 90s}\n  boot: {deadline: 5m, unschedulableGrace: 30s}\n  replicaWindows: [{start: \"30 7 * * *\", duration: 1h, replicas: 3}]"), shaped("{cpus: 4, realMemory: 8000, features: [a, b.c], weight: 5}")...), ""},
		"Dynamic, boot.strategy":    {in("mode: Dynamic\n  boot: {strategy: Greedy}"), "need mode Cloud"},
		"Dynamic, boot.topologyKey": {in("mode: Dynamic\n  boot: {topologyKey: zone}"), "spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud"},
		"Dynamic, room":             {in("mode: Dynamic\n  boot: {provisioningRequest: {className: x}}"), "spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud"},
		"Dynamic, lookAhead":        {in("mode: Dynamic\n  lookAhead: {maxNodes: 3}"), "spec.lookAhead needs mode Cloud: in mode Dynamic use spec.replicas or spec.replicaWindows"},
		"Dynamic, suspend.timeout":  {in("mode: Dynamic\n  suspend: {timeout: 90s}"), "spec.suspend.timeout is not supported"},
		"Dynamic, idleTime 0":       {in("mode: Dynamic\n  suspend: {idleTime: 0s}"), "spec.suspend.idleTime must be more than 0s"},
		"partitions":                {in("partitions: [all]"), "spec.partitions needs mode Dynamic"},
		"mode nonsense":             {in("mode: Static"), `supported values: "Cloud", "Dynamic"`},
		"replicas 0":                {in("replicas: 0"), ""},
		"replicas 1":                {in("replicas: 1"), ""},
		"maxPoweredUp":              {in("maxPoweredUp: 3"), ""},
		"replicaWindows":            {in(`replicaWindows: [{start: "30 7 * * MON-FRI", duration: 10h30m, timeZone: Europe/Berlin, replicas: 3}]`), ""},
		"window without fields":     {in(`replicaWindows: [{start: "@every 2h", duration: 1h, replicas: 3}]`), "spec.replicaWindows[0].start"},
		"short window":              {in(`replicaWindows: [{start: "0 7 * * *", duration: 30s, replicas: 3}]`), "spec.replicaWindows: duration must be 1m or more"},
		"window for no nodes":       {in(`replicaWindows: [{start: "0 7 * * *", duration: 1h, replicas: 0}]`), "spec.replicaWindows[0].replicas"},
		"lookAhead":                 {in(`lookAhead: {maxNodes: 3, leadTime: 90s, maxNodesPerAccount: 2, accounts: [{name: physics, maxNodes: 0}], sources: [BeginTime, Dependency]}`), ""},
		"lookAhead without a cap":   {in(`lookAhead: {leadTime: 90s}`), "spec.lookAhead.maxNodes"},
		"lookAhead, other source":   {in(`lookAhead: {maxNodes: 3, sources: [Hunch]}`), "spec.lookAhead.sources[0]"},
		"lookAhead, no time":        {in(`lookAhead: {maxNodes: 3, leadTime: 0s}`), "spec.lookAhead.leadTime must be more than 0s"},
		"topology by labels":        {in(`topology: {name: net, nodeLabels: [topology.kubernetes.io/zone, rack]}`), ""},
		"topology by an annotation": {in(`topology: {nodeAnnotation: topology.example.com/line}`), ""},
		"topology by nothing":       {in(`topology: {}`), "give spec.topology.nodeLabels or spec.topology.nodeAnnotation"},
		"topology by both":          {in(`topology: {nodeLabels: [rack], nodeAnnotation: rack}`), "give spec.topology.nodeLabels or spec.topology.nodeAnnotation"},
		"topology, name for both":   {in(`topology: {name: net, nodeAnnotation: rack}`), "spec.topology.name goes with nodeLabels"},
		"topology, no label":        {in(`topology: {nodeLabels: ["a b"]}`), "spec.topology.nodeLabels[0]"},
		"ssh":                       {in("ssh: {enabled: true, port: 2222, authorizedKeysRefs: [{name: keys}], rootSshAuthorizedKeys: ssh-ed25519 A a, hostKeysRef: {name: k}, extraSshdConfig: X11Forwarding yes}\n  usersRef: {name: u}\n  sssdConfRef: {name: s, key: k}"), ""},
		"ssh, not said whether":     {in("ssh: {port: 22}"), "spec.ssh.enabled"},
		"ssh, no port":              {in("ssh: {enabled: true, port: 65536}"), "spec.ssh.port"},
		"ssh, fsGroup":              {append(in("ssh: {enabled: true}"), podSpec("securityContext: {fsGroup: 1}")...), "spec.ssh: remove fsGroup"},
		"ssh off, fsGroup":          {append(in("ssh: {enabled: false}"), podSpec("securityContext: {fsGroup: 1}")...), ""},
		"ssh, hostPID":              {append(in("ssh: {enabled: true}"), podSpec("hostPID: true")...), "spec.ssh: remove hostPID and shareProcessNamespace"},
		"ssh, shared processes":     {append(in("ssh: {enabled: true}"), podSpec("shareProcessNamespace: true")...), "spec.ssh: remove hostPID and shareProcessNamespace"},
		"ssh, postStart":            {append(in("ssh: {enabled: true}"), container(`lifecycle: {postStart: {exec: {command: ["true"]}}}`)...), "spec.ssh: remove lifecycle.postStart"},
		"sssd alone":                {in("sssdConfRef: {name: s, key: sssd.conf}"), ""},
		"maxPoweredUp 0":            {in("maxPoweredUp: 0"), "spec.maxPoweredUp"},
		"replicas below 0":          {in("replicas: -1"), "spec.replicas"},
		"offerings":                 {in("offerings: [{name: spot, nodeSelector: {pool: spot}, weight: 1, limit: 5}]"), ""},
		"boot empty":                {in("boot: {}"), ""},
		"boot.strategy":             {in("boot: {strategy: AllOrNothing}"), ""},
		"boot.strategy nonsense":    {in("boot: {strategy: Fast}"), `supported values: "AllOrNothing", "Greedy", "BestEffort"`},
		"boot.deadline":             {in("boot: {deadline: 5m}"), ""},
		"boot.unschedulableGrace":   {in("boot: {unschedulableGrace: 30s}"), ""},
		"boot.topologyKey":          {in("boot: {topologyKey: topology.kubernetes.io/zone}"), ""},
		"boot.topologyKey wrong":    {in("boot: {topologyKey: Rack/}"), "spec.boot.topologyKey in body should match"},
		"boot.topologyMode alone":   {in("boot: {topologyMode: Required}"), "spec.boot.topologyMode needs spec.boot.topologyKey beside it"},
		"boot.deadline without h":   {in(`boot: {deadline: "5"}`), "spec.boot.deadline in body should match"},
		"boot.deadline 0":           {in("boot: {deadline: 0s}"), "spec.boot.deadline must be more than 0s"},
		"boot.deadline of eons":     {in("boot: {deadline: 99999999999999999999h}"), "spec.boot"},
		"grace 0":                   {in("boot: {unschedulableGrace: 0.0s}"), "spec.boot.unschedulableGrace must be more than 0s"},
		"boot.provisioningRequest":  {in("boot: {provisioningRequest: {className: x, parameters: {a: b}}}"), ""},
		"backoff that shrinks":      {in("backoff: {initial: 2h, max: 1h}"), "spec.backoff.initial must not be more than spec.backoff.max"},
		"offering twice":            {in("offerings: [{name: spot}, {name: spot}]"), "Duplicate value"},
		"offering with a space":     {in(`offerings: [{name: "on demand"}]`), "spec.offerings[0].name in body should match"},
		"offering limit 0":          {in("offerings: [{name: spot, limit: 0}]"), "spec.offerings[0].limit"},
		"backoff":                   {in("backoff: {initial: 1m, max: 30m}"), ""},
		"updateStrategy":            {in("updateStrategy: {type: OnDelete}"), ""},
		"rolling update":            {in("updateStrategy: {type: RollingUpdate}"), ""},
		"maxUnavailable":            {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 3}}"), ""},
		"maxUnavailable percent":    {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 100%}}"), ""},
		"maxUnavailable 0":          {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0}}"), "maxUnavailable must be 1 or more, or from 1% to 100%"},
		"maxUnavailable 0%":         {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0%}}"), "maxUnavailable must be 1 or more, or from 1% to 100%"},
		"maxUnavailable 101%":       {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 101%}}"), "maxUnavailable must be 1 or more, or from 1% to 100%"},
		"maxUnavailable a word":     {in("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: some}}"), "maxUnavailable must be 1 or more, or from 1% to 100%"},
		"rollingUpdate alone":       {in("updateStrategy: {rollingUpdate: {maxUnavailable: 3}}"), "spec.updateStrategy.rollingUpdate needs type RollingUpdate beside it"},
		"claims": {in(`volumeClaimTemplates: [{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}, {metadata: {name: b}, spec: {}}]
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}`), ""},
		"claims called the same": {in(`volumeClaimTemplates: [{metadata: {name: a}, spec: {}}, {metadata: {name: a}, spec: {}}]`), "spec.volumeClaimTemplates: two have the same metadata.name"},
		"claim without a name":   {in(`volumeClaimTemplates: [{metadata: {}, spec: {}}]`), "spec.volumeClaimTemplates[0].metadata.name"},
		"claim with a dot":       {in(`volumeClaimTemplates: [{metadata: {name: a.b}, spec: {}}]`), "spec.volumeClaimTemplates[0].metadata.name"},
		"claims of no kind":      {in(`persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}`), "spec.persistentVolumeClaimRetentionPolicy needs spec.volumeClaimTemplates"},
		"claims kept for a day":  {in("volumeClaimTemplates: [{metadata: {name: a}, spec: {}}]\n  persistentVolumeClaimRetentionPolicy: {whenScaled: Day}"), `supported values: "Retain", "Delete"`},

		"updateStrategy nonsense":    {in("updateStrategy: {type: Recreate}"), `supported values: "OnDelete", "RollingUpdate"`},
		"scheduled once":             {in(`updateStrategy: {type: Scheduled, scheduled: {start: "2026-12-01T22:00:00+01:00", duration: 2h}}`), ""},
		"scheduled again and again":  {in(`updateStrategy: {type: Scheduled, scheduled: {start: "0 2 * * SUN", timeZone: Europe/Berlin, duration: 2h, maxUnavailable: 3}}`), ""},
		"scheduled, never":           {in("updateStrategy: {type: Scheduled}"), "spec.updateStrategy: type Scheduled and the field scheduled need each other"},
		"scheduled alone":            {in(`updateStrategy: {scheduled: {start: "0 2 * * SUN", duration: 2h}}`), "spec.updateStrategy: type Scheduled and the field scheduled need each other"},
		"scheduled, not a time":      {in(`updateStrategy: {type: Scheduled, scheduled: {start: "tomorrow night", duration: 2h}}`), "spec.updateStrategy.scheduled.start in body should match"},
		"scheduled, short":           {in(`updateStrategy: {type: Scheduled, scheduled: {start: "0 2 * * SUN", duration: 59s}}`), "spec.updateStrategy.scheduled: duration must be 1m or more"},
		"scheduled, two zones":       {in(`updateStrategy: {type: Scheduled, scheduled: {start: "2026-12-01T22:00:00Z", timeZone: UTC, duration: 2h}}`), "timeZone is for a start with the five fields of cron"},
		"scheduled, nothing at once": {in(`updateStrategy: {type: Scheduled, scheduled: {start: "0 2 * * SUN", duration: 2h, maxUnavailable: 0}}`), "scheduled.maxUnavailable must be 1 or more"},
		"Dynamic, scheduled":         {in("mode: Dynamic\n  updateStrategy: {type: Scheduled, scheduled: {start: \"0 2 * * SUN\", duration: 2h}}"), "spec.updateStrategy: type Scheduled needs mode Cloud"},
		"Dynamic, OnDelete":          {in("mode: Dynamic\n  updateStrategy: {type: OnDelete}"), ""},
		"Dynamic, rolling update":    {in("mode: Dynamic\n  updateStrategy: {type: RollingUpdate}"), ""},
		"suspend":                    {in("suspend: {idleTime: 5m}"), "spec.suspend needs mode Dynamic"},
		"no cpus":                    {shaped("{cpus: 0, realMemory: 8000}"), "spec.shape.cpus"},
		"no memory":                  {shaped("{cpus: 4}"), "spec.shape.realMemory: Required value"},
		"memory as a quantity":       {shaped("{cpus: 4, realMemory: 8Gi}"), "spec.shape.realMemory"},
		"consistent shape":           {shaped("{cpus: 4, sockets: 1, coresPerSocket: 2, threadsPerCore: 2, realMemory: 8000}"), ""},
		"contradicting shape":        {shaped("{cpus: 4, sockets: 2, coresPerSocket: 2, threadsPerCore: 2, realMemory: 8000}"), "sockets * coresPerSocket * threadsPerCore must equal cpus"},
		"half a shape":               {shaped("{cpus: 4, sockets: 2, realMemory: 8000}"), "together or none of them"},
		"gres":                       {shaped(`{cpus: 4, realMemory: 8000, gres: "gpu:h100:2(S:0-1),shard:8"}`), ""},
		"gres with a space":          {shaped(`{cpus: 4, realMemory: 8000, gres: "gpu: 2"}`), "spec.shape.gres"},
		"no slurmd container":        {[]string{"name: slurmd", "name: slurm"}, "must have a container named slurmd"},
		"no image":                   {[]string{image, "imagePullPolicy: Always"}, "the container slurmd needs an image"},
		"no containers":              {[]string{"      containers:\n      - name: slurmd\n        image: slurmtide/slurm:26.05", "      containers: []"}, "must have a container named slurmd"},
		"restartPolicy Never":        {podSpec("restartPolicy: Never"), ""},
		"restartPolicy Always":       {podSpec("restartPolicy: Always"), "spec.template.spec.restartPolicy must be Never"},
		"container restartPolicy":    {container("restartPolicy: OnFailure"), "the restartPolicy of container slurmd must be Never"},
		"token refused":              {podSpec("automountServiceAccountToken: false"), ""},
		"token asked for":            {podSpec("automountServiceAccountToken: true"), "automountServiceAccountToken must be false"},
		"cpu limit as the shape":     {container("resources: {limits: {cpu: 4}}"), ""},
		"cpu limit in millis":        {container("resources: {limits: {cpu: 4000m}}"), ""},
		"cpu limit too small":        {container("resources: {limits: {cpu: 3900m}}"), "the cpu limit of container slurmd is below spec.shape.cpus"},
		"cpu limit number small":     {container("resources: {limits: {cpu: 3}}"), "the cpu limit of container slurmd is below spec.shape.cpus"},
		"memory limit as the shape":  {container("resources: {limits: {memory: 8000Mi}}"), ""},
		"memory limit in decimal":    {container("resources: {limits: {memory: 8.4G}}"), ""},
		"memory limit too small":     {container("resources: {limits: {memory: 7999Mi}}"), "the memory limit of container slurmd is below spec.shape.realMemory"},
		"memory limit decimal":       {container("resources: {limits: {memory: 8G}}"), "the memory limit of container slurmd is below spec.shape.realMemory"},
		"small requests":             {container("resources: {requests: {cpu: 10m, memory: 64Mi}}"), ""},
		"a sidecar may be small":     {container("resources: {}\n      - {name: sidecar, image: x, resources: {limits: {cpu: 10m, memory: 1Mi}}}"), ""},
		"too many containers":        {container("resources: {}" + strings.Repeat("\n      - {name: x, image: x}", 16)), "spec.template.spec.containers"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.create(t, edit(t, tc.edits...), true)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestCRDImmutability(t *testing.T) {
	c := realCluster(t)
	made, err := c.create(t, goodNodeSet, false)
	require.NoError(t, err)
	mode, _, _ := unstructured.NestedString(made.Object, "spec", "mode")
	assert.Equal(t, "Cloud", mode, "the default is written down")
	team, _, _ := unstructured.NestedString(made.Object, "spec", "template", "metadata", "labels", "team")
	assert.Equal(t, "hpc", team, "the template's metadata must not be pruned")

	for name, tc := range map[string]struct{ patch, want string }{
		"clusterRef":    {`{"spec":{"clusterRef":{"name":"wave"}}}`, "spec.clusterRef cannot be changed"},
		"mode":          {`{"spec":{"mode":"Dynamic"}}`, "spec.mode cannot be changed"},
		"claims":        {`{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"a"},"spec":{}}]}}`, "spec.volumeClaimTemplates cannot be added or removed"},
		"more nodes":    {`{"spec":{"nodeNames":"cpu-[0-99]"}}`, ""},
		"another image": {`{"spec":{"template":{"spec":{"containers":[{"name":"slurmd","image":"slurmtide/slurm:24.11"}]}}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{})
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

// Claims that were made keep what they are.
func TestCRDClaimsStay(t *testing.T) {
	c := realCluster(t)
	const spec = "spec:\n  clusterRef"
	_, err := c.create(t, strings.Replace(goodNodeSet, spec, "spec:\n  volumeClaimTemplates: [{metadata: {name: a}, spec: {storageClassName: fast}}]\n  clusterRef", 1), false)
	require.NoError(t, err)
	for patch, want := range map[string]string{
		`{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"a"},"spec":{"storageClassName":"slow"}}]}}`: "spec.volumeClaimTemplates cannot be changed",
		`{"spec":{"volumeClaimTemplates":null}}`:                                                           "spec.volumeClaimTemplates cannot be added or removed",
		`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"}}}`:                       "",
	} {
		_, err := c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestCRDSurface(t *testing.T) {
	c := realCluster(t)
	_, err := c.create(t, goodNodeSet, false)
	require.NoError(t, err)

	t.Run("scale", func(t *testing.T) {
		_, err := c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType,
			[]byte(`{"status":{"poweredUp":3,"replicas":3,"booting":1,"ready":2,"failed":1,"nodes":10,"selector":"slurmtide.io/nodeset=cpu"}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		scale, err := c.nodeSets().Get(t.Context(), "cpu", metav1.GetOptions{}, "scale")
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"replicas": int64(3), "selector": "slurmtide.io/nodeset=cpu"}, scale.Object["status"])
		_, err = c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}, "scale")
		require.NoError(t, err)
		got, err := c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"replicas": int64(2)}, got.Object["spec"])
	})

	t.Run("status does not touch spec", func(t *testing.T) {
		got, err := c.nodeSets().Patch(t.Context(), "cpu", types.MergePatchType, []byte(`{"spec":{"nodeNames":"x-1"}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		names, _, _ := unstructured.NestedString(got.Object, "spec", "nodeNames")
		assert.Equal(t, "cpu-[0-9]", names)
	})

	t.Run("columns", func(t *testing.T) {
		raw, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/apis/slurmtide.io/v1alpha1/namespaces/"+c.namespace+"/nodesets").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		require.NoError(t, err)
		var table metav1.Table
		require.NoError(t, json.Unmarshal(raw, &table))
		var columns []string
		for _, d := range table.ColumnDefinitions {
			columns = append(columns, d.Name)
		}
		assert.Equal(t, []string{"Name", "Nodes", "Mode", "PoweredUp", "Booting", "Ready", "Failed", "Accepted", "Age"}, columns)
		require.Len(t, table.Rows, 1)
		assert.Equal(t, "[cpu cpu-[0-9] Cloud 3 1 2 1", strings.Join(strings.Fields(fmt.Sprint(table.Rows[0].Cells))[:7], " "))
	})

	t.Run("names", func(t *testing.T) {
		resources, err := c.kube.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
		require.NoError(t, err)
		for _, r := range resources.APIResources {
			if r.Name == "nodesets" {
				assert.Equal(t, []string{"sns"}, r.ShortNames)
				assert.ElementsMatch(t, []string{"slurmtide", "slurm"}, r.Categories)
			}
		}
	})

	t.Run("field selector", func(t *testing.T) {
		for selector, want := range map[string]int{"spec.clusterRef.name=tide": 1, "spec.clusterRef.name=wave": 0} {
			list, err := c.nodeSets().List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			require.NoError(t, err)
			assert.Len(t, list.Items, want, selector)
		}
	})
}

func TestExamples(t *testing.T) {
	c := realCluster(t)
	files, err := filepath.Glob("../../docs/examples/nodeset-*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		made, err := c.create(t, string(raw), false)
		require.NoError(t, err, file)
		var ns v1alpha1.NodeSet
		text, err := json.Marshal(made)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &ns))
		set := Validate([]*v1alpha1.NodeSet{&ns})[0]
		assert.Empty(t, set.Problem, file)
		pod, err := Build(&ns, firstNode(set), 1, "example", PodOptions{Cluster: "tide", ConfServer: "slurmctld:6817", Service: "slurmd"})
		require.NoError(t, err)
		_, err = c.kube.CoreV1().Pods(c.namespace).Create(t.Context(), pod, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
		})
		assert.True(t, err == nil || strings.Contains(err.Error(), `serviceaccount "default" not found`), "%s: %v", file, err)
	}
}
