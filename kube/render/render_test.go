package render

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/slurmconf"
)

var settings = controlplane.Settings{Image: "slurmtide/slurmtide:dev", ClusterDomain: "cluster.local", BridgeRole: "slurmtide-bridge"}

const examples = "../../docs/examples/"

// input reads files, and texts that are none.
func input(t *testing.T, files ...string) *Input {
	t.Helper()
	in := &Input{}
	for _, name := range files {
		text := name
		if !strings.Contains(name, "\n") {
			bytes, err := os.ReadFile(name)
			require.NoError(t, err)
			text = string(bytes)
		}
		require.NoError(t, in.Read("file", strings.NewReader(text), "slurm"))
	}
	require.NoError(t, in.Select(""))
	return in
}

const dynamic = `apiVersion: v1
kind: List
items:
- apiVersion: slurmtide.io/v1alpha1
  kind: NodeSet
  metadata: {name: dyn}
  spec:
    mode: Dynamic
    clusterRef: {name: tide}
    nodeNames: dyn-[0-9]
    maxPoweredUp: 4
    shape: {cpus: 4, realMemory: 8000, features: [dyn]}
    template: {spec: {containers: [{name: slurmd, image: i}]}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: other}
`

func TestLines(t *testing.T) {
	text, err := input(t, examples+"nodeset-cpu.yaml", examples+"nodeset-gpu.yaml", dynamic).SlurmConf(settings)
	require.NoError(t, err)
	golden.Compare(t, "testdata/lines.conf", text)
	// With them slurm.conf lacks nothing that the doctor calls an error, but the files of GPUs. What it warns of is the site's: plugins for processes in pods.
	base := "ClusterName=tide\nSlurmctldHost=ctl\nAuthAltTypes=auth/jwt\nAuthInfo=cred_expire=30\nSchedulerParameters=batch_sched_delay=0\n"
	for _, version := range []slurmconf.Version{{Major: 24, Minor: 11}, {Major: 26, Minor: 5}} {
		var found []string
		for _, f := range doctor.Check(doctor.FromTexts(version, map[string]string{"slurm.conf": base + text})) {
			found = append(found, f.Severity.String()+": "+f.Rule)
		}
		assert.Equal(t, []string{"error: gres-conf", "warning: cgroup-plugin", "warning: config-overrides", "warning: process-plugins"}, found)
	}
}

// A Controller's are those that the controller makes.
func TestSlurmConf(t *testing.T) {
	in := input(t, examples+"cluster.yaml")
	text, err := in.SlurmConf(settings)
	require.NoError(t, err)
	files, err := controlplane.Config(controlplane.Cluster{Controller: in.Controllers[0], NodeSets: in.NodeSets, Settings: settings})
	require.NoError(t, err)
	assert.Equal(t, files["slurm.conf"], text)
	assert.Contains(t, text, "NodeName=cpu-[0-9] CPUs=4 RealMemory=8000 State=CLOUD\n")
}

// slurmctld on a host: its slurm.conf is somebody else's.
func TestExternal(t *testing.T) {
	const external = "apiVersion: slurmtide.io/v1alpha1\nkind: Controller\nmetadata: {name: tide}\nspec: {external: {host: ctl.example}}\n"
	in := input(t, external, examples+"nodeset-cpu.yaml")
	lines, err := in.SlurmConf(settings)
	require.NoError(t, err)
	assert.NotContains(t, lines, "ClusterName")
	assert.Contains(t, lines, "NodeName=cpu-[0-49] ")
	objects, secrets, err := in.Kube("slurm", settings)
	require.NoError(t, err)
	assert.Empty(t, secrets)
	require.Len(t, objects, 1)
	assert.Equal(t, "tide-config-client", objects[0].GetName())
	_, err = input(t, external).SlurmConf(settings)
	require.ErrorContains(t, err, "Controller tide: spec.external: its slurm.conf is yours")
}

const withFiles = `apiVersion: slurmtide.io/v1alpha1
kind: Controller
metadata: {name: tide}
spec:
  slurmctld: {image: i}
  configFileRefs: [{name: files}]
  prologScriptRefs: [{name: scripts}]
  extraConf: |
    Include more.conf
---
apiVersion: v1
kind: ConfigMap
metadata: {name: files, namespace: slurm}
data: {more.conf: "PriorityType=priority/multifactor\n"}
`

const scripts = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
binaryData: {prolog.sh: IyEvYmluL3NoCg==}
`

func named(secrets []controlplane.Yours) (all []string) {
	for _, s := range secrets {
		all = append(all, s.Name+"/"+strings.Join(s.Keys, ","))
	}
	return all
}

func TestKube(t *testing.T) {
	objects, secrets, err := input(t, examples+"cluster.yaml").Kube("slurm", settings)
	require.NoError(t, err)
	assert.Equal(t, []string{"tide-auth-slurm/slurm.key", "tide-auth-jwths256/jwt_hs256.key", "portal/SLURM_JWT"}, named(secrets))
	text, err := controlplane.YAML(objects)
	require.NoError(t, err)
	golden.Compare(t, "testdata/cluster.yaml", text)
	assert.NotContains(t, text, "ownerReferences", "no live object owns what a file has")

	objects, _, err = input(t, withFiles+scripts).Kube("slurm", settings)
	require.NoError(t, err)
	text, err = controlplane.YAML(objects)
	require.NoError(t, err)
	assert.Contains(t, text, "\n  more.conf: |\n    PriorityType=priority/multifactor\n")
	assert.Contains(t, text, "\n  prolog.sh: |\n    #!/bin/sh\n")
}

// Without a Controller they are those of the example.
func TestBridgeAccount(t *testing.T) {
	objects, secrets, err := (&Input{}).Kube("slurm", settings)
	require.NoError(t, err)
	assert.Empty(t, secrets)
	text, err := controlplane.YAML(objects)
	require.NoError(t, err)
	assert.Equal(t, parsed(t, examples+"rbac.yaml"), documents(t, text))
}

func TestScaledObject(t *testing.T) {
	set := input(t, examples+"nodeset-cpu.yaml").NodeSets[0]
	for file, push := range map[string]bool{"scaledobject-poll.yaml": false, "scaledobject-push.yaml": true} {
		o, err := NewScaledObject(set, "", push)
		require.NoError(t, err)
		text, err := o.YAML()
		require.NoError(t, err)
		assert.Equal(t, parsed(t, examples+"keda/"+file), documents(t, text), "the example")
	}
	o, err := NewScaledObject(input(t, dynamic).NodeSets[0], "scaler.x:1", false)
	require.NoError(t, err)
	assert.Equal(t, 4, o.Spec.MaxReplicaCount, "spec.maxPoweredUp")
	assert.Equal(t, "scaler.x:1", o.Spec.Triggers[0].Metadata["scalerAddress"])
	text, err := o.YAML()
	require.NoError(t, err)
	golden.Compare(t, "testdata/scaledobject.yaml", text) // hack/keda reads it with KEDA's own types
	// What KEDA hands to the HorizontalPodAutoscaler is one's.
	behavior, err := yaml.Marshal(o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior)
	require.NoError(t, err)
	require.NoError(t, manifest.Unmarshal(behavior, &autoscalingv2.HorizontalPodAutoscalerBehavior{}))
	set.Spec.NodeNames = "cpu-[0-4999]"
	o, err = NewScaledObject(set, "", false)
	require.NoError(t, err)
	assert.Equal(t, int32(5000), o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleUp.Policies[0].Value, "in one step")
	set.Spec.NodeNames, set.Spec.EachHost = "", &v1alpha1.EachHost{}
	_, err = NewScaledObject(set, "", false)
	require.ErrorContains(t, err, "has no nodes yet")
	set.Spec.MaxPoweredUp = new(int32(7))
	o, err = NewScaledObject(set, "", false)
	require.NoError(t, err)
	assert.Equal(t, 7, o.Spec.MaxReplicaCount)
	set.Spec.EachHost.AlwaysOn = true
	_, err = NewScaledObject(set, "", false)
	require.ErrorContains(t, err, "take alwaysOn out")
}

func TestProblems(t *testing.T) {
	set := func(name, cluster, nodes string) string {
		return "---\napiVersion: slurmtide.io/v1alpha1\nkind: NodeSet\nmetadata: {name: " + name + "}\nspec: {clusterRef: {name: " + cluster + "}, nodeNames: '" + nodes +
			"', shape: {cpus: 1, realMemory: 1000}, template: {spec: {containers: [{name: slurmd, image: i}]}}}\n"
	}
	tests := map[string]struct{ text, cluster, want string }{
		"no YAML":         {"a: [\n", "", "file, document 1: "},
		"a wrong field":   {strings.Replace(set("a", "tide", "a-1"), "nodeNames", "nodes", 1), "", `unknown field "spec.nodes"`},
		"a wrong case":    {strings.Replace(set("a", "tide", "a-1"), "nodeNames", "nodenames", 1), "", `unknown field "spec.nodenames"`},
		"second document": {set("a", "tide", "a-1") + "---\na: [\n", "", "file, document 2: "},
		"several":         {set("a", "tide", "a-1") + set("b", "ebb", "b-1"), "", "the files have objects of several clusters, ebb, tide: say which with --cluster"},
		"another":         {set("a", "tide", "a-1"), "ebb", "the files have no object of cluster ebb: they have those of tide"},
		"nothing":         {"kind: Pod\napiVersion: v1\n", "", "the files have neither a NodeSet nor a Controller"},
		"nothing of it":   {"kind: Pod\napiVersion: v1\n", "ebb", "the files have no object of cluster ebb: they have those of none"},
		"hostlist":        {set("a", "tide", "a-[3-1]"), "", "NodeSet a: "},
		"two Controllers": {withFiles + scripts + "---\n" + strings.Replace(withFiles, "{name: tide}", "{name: b, namespace: b}", 1) + "---\n", "", "several clusters, b, tide"},
		"no ConfigMap":    {withFiles, "", "Controller tide: spec.prologScriptRefs: the files have no ConfigMap scripts of namespace slurm: name the one that has it, too"},
		"accounting":      {strings.Replace(withFiles, "spec:\n", "spec:\n  accountingRef: {name: a}\n", 1), "", "Controller tide: spec.accountingRef: the files have no Accounting a of namespace slurm: name the one"},
		"JWKS":            {strings.Replace(withFiles, "spec:\n", "spec:\n  jwksKeyRef: {name: a, key: b}\n", 1), "", "Controller tide: spec.jwksKeyRef: the files have no ConfigMap a of namespace slurm: name the one"},
		"no key set":      {strings.Replace(withFiles, "spec:\n", "spec:\n  jwksKeyRef: {name: files, key: more.conf}\n", 1), "", "Controller tide: spec.jwksKeyRef: it is no JSON Web Key Set"},
		"a key of ours":   {strings.Replace(withFiles+scripts, "Include more.conf", "SlurmUser=root", 1), "", "Controller tide: spec.extraConf:1:1: SlurmUser cannot be set here"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := &Input{}
			err := in.Read("file", strings.NewReader(test.text), "slurm")
			if err == nil {
				err = in.Select(test.cluster)
			}
			if err == nil {
				_, err = in.SlurmConf(settings)
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func parsed(t *testing.T, file string) []any {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return documents(t, string(text))
}

func documents(t *testing.T, text string) (all []any) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var v any
		require.NoError(t, yaml.Unmarshal([]byte(document), &v))
		all = append(all, v)
	}
	return all
}
