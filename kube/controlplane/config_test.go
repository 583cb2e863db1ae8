package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

var settings = Settings{Image: "slurmtide/slurmtide:dev", ClusterDomain: "cluster.local", BridgeRole: "slurmtide-bridge"}

func controller(change func(*v1alpha1.Controller)) *v1alpha1.Controller {
	c := &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm", UID: "uid-of-tide"},
		Spec:       v1alpha1.ControllerSpec{Slurmctld: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:26.05"}}},
	}
	if change != nil {
		change(c)
	}
	return c
}

func nodeSet(name, nodes string, change func(*v1alpha1.NodeSet)) *v1alpha1.NodeSet {
	set := &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "slurm"},
		Spec: v1alpha1.NodeSetSpec{
			ClusterRef: v1alpha1.ClusterRef{Name: "tide"}, NodeNames: nodes, Shape: v1alpha1.Shape{CPUs: 4, RealMemory: 8000},
		},
	}
	if change != nil {
		change(set)
	}
	return set
}

// Only who asks for metrics gets the line: a Slurm before 25.11 does not know it.
func TestConfigMetrics(t *testing.T) {
	const line = "MetricsType=metrics/openmetrics"
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings})
	require.NoError(t, err)
	assert.NotContains(t, files["slurm.conf"], "Metrics")
	files, err = Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.Metrics.Enabled = true }), Settings: settings})
	require.NoError(t, err)
	assert.Contains(t, files["slurm.conf"], "\n"+line+"\n")
	check(t, files["slurm.conf"], "26.05")
}

// Whole files, in testdata.
func TestConfigFiles(t *testing.T) {
	tests := map[string]Cluster{
		"plain": {Controller: controller(nil)},
		"full": {
			Controller: controller(func(c *v1alpha1.Controller) {
				c.Spec.ClusterName = "tide_1"
				c.Spec.ExtraConf = "# Short, for a try.\nSuspendTime=10 # seconds\nSlurmctldParameters=power_save_interval=5,cloud_dns\n\nPartitionName=all Nodes=ALL Default=YES\nPrologSlurmctld=/site/prolog\n"
			}),
			Scripts: map[string]map[string]string{
				"spec.prologScriptRefs":          {"20-b.sh": "#!/bin/sh\n", "10-a.sh": "#!/bin/sh\n"},
				"spec.prologSlurmctldScriptRefs": {"ctld.sh": "#!/bin/sh\n"},
			},
			NodeSets: []*v1alpha1.NodeSet{
				nodeSet("gpu", "gpu-[0-3]", func(s *v1alpha1.NodeSet) {
					s.Spec.Shape = v1alpha1.Shape{CPUs: 16, Sockets: new(int32(1)), CoresPerSocket: new(int32(8)), ThreadsPerCore: new(int32(2)), RealMemory: 64000, Gres: "gpu:h100:2,shard:4", Features: []string{"h100", "ib"}, Weight: new(int32(20))}
					s.Spec.Partition = &v1alpha1.NodeSetPartition{Config: "MaxTime=1-0 DefMemPerCPU=2000"}
				}),
				nodeSet("cpu", "cpu-[0-9]", nil),
				nodeSet("dyn", "dyn-[0-99]", func(s *v1alpha1.NodeSet) {
					s.Spec.Mode = v1alpha1.ModeDynamic
					s.Spec.Shape.Features = []string{"dyn", "avx512"}
				}),
				nodeSet("other", "other-[0-9]", func(s *v1alpha1.NodeSet) { s.Spec.Mode = v1alpha1.ModeDynamic }),
				nodeSet("hidden", "hidden-[0-1]", func(s *v1alpha1.NodeSet) {
					s.Spec.Partition = &v1alpha1.NodeSetPartition{Enabled: new(false)}
				}),
			},
		},
	}
	// What the doctor says of them: of full what its extraConf asks for, that its gres.conf is not there, and that these NodeSets have no template, and another clusterRef.
	found := map[string][]string{"plain": {"no-nodes"}, "full": {"cloud-dns", "cluster-name", "gres-conf", "nodeset-unusable", "power-save-interval"}}
	for name, cluster := range tests {
		t.Run(name, func(t *testing.T) {
			cluster.Settings = settings
			files, err := Config(cluster)
			require.NoError(t, err)
			golden.Compare(t, "testdata/"+name+".slurm.conf", files["slurm.conf"])
			for _, version := range []string{"24.11", "26.05"} {
				check(t, files["slurm.conf"], version)
				assert.Equal(t, found[name], findings(t, files, version, cluster.NodeSets...))
			}
			assert.Equal(t, cgroupConf, files["cgroup.conf"])
		})
	}
}

// The order in which NodeSets are listed must not look like a change.
func TestConfigOrder(t *testing.T) {
	a, b := nodeSet("a", "a-[0-3]", nil), nodeSet("b", "b-[0-3]", nil)
	one, err := Config(Cluster{Controller: controller(nil), NodeSets: []*v1alpha1.NodeSet{a, b}, Settings: settings})
	require.NoError(t, err)
	two, err := Config(Cluster{Controller: controller(nil), NodeSets: []*v1alpha1.NodeSet{b, a}, Settings: settings})
	require.NoError(t, err)
	assert.Equal(t, one, two)
}

// Names of nodes that are off are those of slurmctld's pods.
func TestConfigAliases(t *testing.T) {
	sets := []*v1alpha1.NodeSet{
		nodeSet("b", "b-[08-09]", nil), nodeSet("a", "a,c", nil),
		nodeSet("d", "d-[0-3]", func(s *v1alpha1.NodeSet) { s.Spec.Mode = v1alpha1.ModeDynamic }),
	}
	files, err := Config(Cluster{Controller: controller(nil), NodeSets: sets, Settings: settings})
	require.NoError(t, err)
	assert.Equal(t, "a tide-controller\nc tide-controller\nb-08 tide-controller\nb-09 tide-controller\n", files["hostaliases"])

	files, err = Config(Cluster{Controller: controller(nil), NodeSets: append(sets, nodeSet("e", "e[1-9996]", nil)), Settings: settings})
	require.NoError(t, err)
	assert.Less(t, len(files["hostaliases"]), 400_000)
	assert.Contains(t, files["hostaliases"], "e9996 tide-controller\n")

	files, err = Config(Cluster{Controller: controller(nil), NodeSets: append(sets, nodeSet("e", "e[1-9997]", nil)), Settings: settings})
	require.NoError(t, err)
	assert.Empty(t, files["hostaliases"], "no room")
}

// The user's nodes, records that never serve for example, take no room from those that register themselves.
func TestConfigMakesRoom(t *testing.T) {
	for extra, want := range map[string]string{
		"": "MaxNodeCount=6",
		"NodeName=DEFAULT CPUs=2\nNodeName=shape-[0-2] State=DOWN\nnodename=a,b CPUs=1": "MaxNodeCount=11",
		"NodeName=shape-[0-2] State=DOWN\nMaxNodeCount=50":                              "MaxNodeCount=50",
		"NodeName=a\nInclude more.conf\n":                                               "MaxNodeCount=12",
	} {
		files, err := Config(Cluster{
			Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = extra }), Settings: settings,
			Files:    map[string]string{"more.conf": "NodeName=b-[0-1] CPUs=1\nInclude most.conf\n", "most.conf": "NodeName=c-[0-2] CPUs=1\n"},
			NodeSets: []*v1alpha1.NodeSet{nodeSet("c", "c-[0-1]", nil), nodeSet("d", "d-[0-3]", func(s *v1alpha1.NodeSet) { s.Spec.Mode = v1alpha1.ModeDynamic })},
		})
		require.NoError(t, err)
		var said []string
		for line := range strings.Lines(files["slurm.conf"]) {
			if strings.HasPrefix(line, "MaxNodeCount") {
				said = append(said, strings.TrimSpace(line))
			}
		}
		assert.Equal(t, []string{want}, said, extra)
	}
	files, err := Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = "NodeName=a CPUs=1" }), Settings: settings, NodeSets: []*v1alpha1.NodeSet{nodeSet("c", "c-[0-1]", nil)}})
	require.NoError(t, err)
	assert.NotContains(t, files["slurm.conf"], "MaxNodeCount", "no node registers itself")
}

// slurmctld refuses a NodeSet that is called like a node, and has words that are no names.
func TestConfigNamesOfNodeSets(t *testing.T) {
	lines := func(sets ...*v1alpha1.NodeSet) (found []string) {
		files, err := Config(Cluster{Controller: controller(nil), Settings: settings, NodeSets: sets})
		require.NoError(t, err)
		for _, version := range []string{"24.11", "26.05"} {
			check(t, files["slurm.conf"], version)
		}
		for line := range strings.Lines(files["slurm.conf"]) {
			if strings.HasPrefix(line, "NodeSet=") || strings.HasPrefix(line, "PartitionName=") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	assert.Equal(t, []string{"PartitionName=worker-7 Nodes=worker-7"}, lines(nodeSet("worker-7", "worker-7", nil)))
	assert.Equal(t, []string{"NodeSet=a Nodes=b,c", "PartitionName=a Nodes=a", "PartitionName=b Nodes=d"}, lines(nodeSet("a", "b,c", nil), nodeSet("b", "d", nil)))
	dynamic := nodeSet("c", "d-[0-1]", func(s *v1alpha1.NodeSet) { s.Spec.Mode, s.Spec.Shape.Features = v1alpha1.ModeDynamic, []string{"c"} })
	assert.Equal(t, []string{"NodeSet=a Nodes=c", "PartitionName=a Nodes=a"}, lines(nodeSet("a", "c", nil), dynamic))
	for _, name := range []string{"all", "default"} {
		_, err := Config(Cluster{Controller: controller(nil), Settings: settings, NodeSets: []*v1alpha1.NodeSet{nodeSet(name, "n", nil)}})
		require.EqualError(t, err, "NodeSet "+name+": Slurm has this word for itself: make the NodeSet anew with another name")
	}
}

// Aliases are of no use to a cluster whose files do not fit.
func TestConfigIsNotTooLarge(t *testing.T) {
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings, NodeSets: []*v1alpha1.NodeSet{nodeSet("b", "b-[08-09]", nil)}, Files: map[string]string{"large": strings.Repeat("#", mostBytes)}})
	require.NoError(t, err)
	assert.Empty(t, files["hostaliases"])
}

func TestConfigOwnFiles(t *testing.T) {
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings, Files: map[string]string{"cgroup.conf": "CgroupPlugin=cgroup/v2\n", "gres.conf": "AutoDetect=nvml\n"}})
	require.NoError(t, err)
	assert.Equal(t, "CgroupPlugin=cgroup/v2\n", files["cgroup.conf"])
	assert.Equal(t, "AutoDetect=nvml\n", files["gres.conf"])
}

func TestConfigProblems(t *testing.T) {
	tests := map[string]struct {
		extra   string
		files   map[string]string
		scripts map[string]string
		sets    []*v1alpha1.NodeSet
		want    string
	}{
		"no form":      {extra: "SuspendTime=10\nnonsense\n", want: `spec.extraConf:2:1: "nonsense" is no key=value; write key=value, or # before a comment`},
		"reserved":     {extra: "SuspendTime=10\n clustername=x\n", want: "spec.extraConf:2:2: clustername cannot be set here: it is spec.clusterName; remove it"},
		"a path":       {extra: "Include /etc/slurm/a.conf\n", files: map[string]string{"a.conf": ""}, want: "spec.extraConf:1:9: Include /etc/slurm/a.conf: nodes have no such file; put it into a ConfigMap of spec.configFileRefs, and write its name alone: slurmctld hands it out"},
		"no such file": {extra: "Include a.conf\n", want: "spec.extraConf:1:9: Include a.conf: no ConfigMap of spec.configFileRefs has it; put it into one"},
		"included":     {extra: "Include a.conf\n", files: map[string]string{"a.conf": "# x\nInclude b_tide.conf\n", "b_tide.conf": "MaxJobCount=5\nstatesavelocation=/x\n"}, want: "spec.configFileRefs: b_tide.conf:2:1: statesavelocation cannot be set here"},
		"by cluster":   {extra: "Include b_%c.conf\n", files: map[string]string{"b_tide.conf": "ResumeProgram=/x\n"}, want: "spec.configFileRefs: b_tide.conf:1:1: ResumeProgram cannot be set here"},
		"our words":    {extra: "Include a.conf\n", files: map[string]string{"a.conf": "SlurmctldParameters=cloud_dns\n"}, want: "spec.configFileRefs: a.conf:1:1: SlurmctldParameters of an included file would take the place of the one that Slurmtide needs; write it into spec.extraConf, where its words are added"},
		"deeper":       {extra: "Include a.conf\n", files: map[string]string{"a.conf": "Include b.conf\n"}, want: "a.conf:1:9: Include b.conf: no ConfigMap of spec.configFileRefs has it"},
		"itself":       {extra: "Include a.conf\n", files: map[string]string{"a.conf": "Include b.conf\n", "b.conf": "Include a.conf\n"}, want: "b.conf:1:9: Include a.conf: it includes itself (a.conf > b.conf > a.conf); remove the Include"},
		"its form":     {extra: "Include a.conf\n", files: map[string]string{"a.conf": "nonsense\n"}, want: `spec.configFileRefs: a.conf:1:1: "nonsense" is no key=value`},
		"our file":     {files: map[string]string{"slurm.conf": ""}, want: "spec.configFileRefs: one of the ConfigMaps has slurm.conf, which is made by Slurmtide: write lines for it into spec.extraConf"},
		"our aliases":  {files: map[string]string{"hostaliases": ""}, want: "spec.configFileRefs: one of the ConfigMaps has hostaliases, which is made by Slurmtide: it gives the names of nodes that are off an address"},
		"our key":      {files: map[string]string{"slurm.key": ""}, want: "has slurm.key, which is made by Slurmtide: name a key of your own in spec.slurmKeyRef"},
		"no script":    {scripts: map[string]string{"a": "echo"}, want: "spec.epilogScriptRefs: a does not begin with #!: name its interpreter, for example #!/bin/sh"},
		"hidden file":  {files: map[string]string{".a": ""}, want: "spec.configFileRefs: one of the ConfigMaps has .a: give it a name that does not begin with a dot"},
		"a key":        {scripts: map[string]string{"slurm.key": "#!/bin/sh"}, want: "spec.epilogScriptRefs: a script cannot be called slurm.key: give it another name"},
		"two files":    {scripts: map[string]string{"cgroup.conf": "#!/bin/sh"}, want: "spec.epilogScriptRefs: there are two files cgroup.conf: give one of them another name"},
		"a NodeSet":    {sets: []*v1alpha1.NodeSet{nodeSet("cpu", "cpu-[0-", nil)}, want: "NodeSet cpu: spec.nodeNames: "},
		"its settings": {sets: []*v1alpha1.NodeSet{nodeSet("cpu", "cpu-0", func(s *v1alpha1.NodeSet) { s.Spec.Partition = &v1alpha1.NodeSetPartition{Config: "YES"} })}, want: `writing the lines of NodeSets: `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = test.extra })
			_, err := Config(Cluster{Controller: c, NodeSets: test.sets, Files: test.files, Settings: settings, Scripts: map[string]map[string]string{"spec.epilogScriptRefs": test.scripts}})
			require.ErrorContains(t, err, test.want)
		})
	}
}

// What a NodeSet shares with an older one is told to slurmctld once, and holds up nothing else.
func TestConfigSharedNames(t *testing.T) {
	at := func(minute int) func(*v1alpha1.NodeSet) {
		return func(s *v1alpha1.NodeSet) {
			s.CreationTimestamp = metav1.Date(2026, 5, 1, 9, minute, 0, 0, time.UTC)
		}
	}
	sets := []*v1alpha1.NodeSet{
		nodeSet("b", "n-[0-9]", at(1)), nodeSet("a", "n-[8-11],m-[0-1]", at(2)), nodeSet("whole", "n-[0-3]", at(3)), nodeSet("twice", "x-[0-3],x-2", at(4)),
	}
	files, err := Config(Cluster{Controller: controller(nil), NodeSets: sets, Settings: settings})
	require.NoError(t, err)
	text := files["slurm.conf"]
	assert.Contains(t, text, "NodeName=n-[0-9] ", "the older one has what it names")
	assert.Contains(t, text, "NodeName=n-[10-11],m-[0-1] ")
	assert.Contains(t, text, "\nNodeSet=a Nodes=n-[10-11],m-[0-1]\n")
	assert.Contains(t, text, "NodeName=x-[0-3] ")
	assert.Contains(t, text, "\n# NodeSet whole: all its nodes are those of older ones\n")
	assert.NotContains(t, text, "PartitionName=whole")
}

// A NodeSet that has no hosts yet has a partition all the same, so that lines that name it are valid, and jobs can wait.
func TestConfigNoHosts(t *testing.T) {
	sets := []*v1alpha1.NodeSet{nodeSet("hosts", "", onHosts), nodeSet("w-1", "", onHosts), nodeSet("workers", "w-[1-2]", onHosts)}
	files, err := Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = "PartitionName=all Nodes=hosts,workers" }), NodeSets: sets, Settings: settings})
	require.NoError(t, err)
	assert.Contains(t, files["slurm.conf"], "\nNodeSet=hosts Feature=slurmtide.no-host\n")
	assert.Contains(t, files["slurm.conf"], "\nPartitionName=hosts Nodes=hosts\n")
	assert.Contains(t, files["slurm.conf"], "\n# NodeSet w-1: it has no nodes yet, and a node has its name\n")
	assert.NotContains(t, files["slurm.conf"], "NodeName= ")
	check(t, files["slurm.conf"], "26.05")
}

func TestClientConfig(t *testing.T) {
	files, err := ClientConfig(controller(nil), settings)
	require.NoError(t, err)
	assert.Equal(t, `# Made by Slurmtide, for slurmrestd.
ClusterName=tide
SlurmctldHost=tide-controller-0(tide-controller-0.tide-controller.slurm.svc.cluster.local)
SlurmctldPort=6817
SlurmUser=slurm
AuthType=auth/slurm
CredType=auth/slurm
AuthAltTypes=auth/jwt
`, files["slurm.conf"])
	files, err = ClientConfig(controller(func(c *v1alpha1.Controller) {
		c.Spec.External = &v1alpha1.ExternalController{Host: "head.example.com", Port: 6900}
	}), settings)
	require.NoError(t, err)
	assert.Contains(t, files["slurm.conf"], "\nSlurmctldHost=head.example.com\nSlurmctldPort=6900\n")
}
