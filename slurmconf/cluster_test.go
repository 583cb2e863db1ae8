package slurmconf

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func readCluster(t *testing.T, v Version, text string) *Cluster {
	c, err := ReadConfig("slurm.conf", readTexts(map[string]string{"slurm.conf": text}))
	require.NoError(t, err)
	cluster, err := c.Cluster(v)
	require.NoError(t, err)
	return cluster
}

const someCluster = `ClusterName=Big
SlurmctldHost=a(10.0.0.1)
SlurmctldHost=b
ResumeProgram=/x/resume
ResumeTimeout=300
SuspendTime=600
SuspendTime=120
PrologEpilogTimeout=60
PrologTimeout=30
PrologSlurmctld=/x/start-gate
PrologSlurmctld=/x/prolog
SlurmctldParameters=idle_on_node_suspend,Power_Save_Interval=0
NodeName=DEFAULT CPUs=8 Feature=a,b RealMemory=1000
NodeName=DEFAULT RealMemory=2000 State=CLOUD
NodeName=n[1-3] NodeAddr=10.0.0.[1-3] Gres=gpu:2 RealMemory=3000
NodeName=m Features=c NodeHostname=host
NodeName=DEFAULT CPUs=2
NodeName=k
PartitionName=DEFAULT MaxTime=60 SuspendTime=5 ResumeTimeout=7 Default=YES
PartitionName=p Nodes="n1 n2" Default=NO
PartitionName=q Nodes=ALL SuspendTime=INFINITE SelectTypeParameters=CR_Core
`

func TestCluster(t *testing.T) {
	c := readCluster(t, Version{26, 5}, someCluster)
	at := func(line int) Position { return Position{"slurm.conf", line, 1} }
	assert.Equal(t, Value[string]{"big", at(1)}, c.Name)
	assert.Equal(t, []Host{{"a", "10.0.0.1", at(2)}, {"b", "b", at(3)}}, c.Hosts)
	assert.Equal(t, Value[string]{"/x/resume", at(4)}, c.ResumeProgram)
	assert.Equal(t, Value[string]{}, c.SuspendProgram)
	assert.Equal(t, Value[time.Duration]{5 * time.Minute, at(5)}, c.ResumeTimeout)
	assert.Equal(t, Value[time.Duration]{V: 30 * time.Second}, c.SuspendTimeout)
	assert.False(t, c.SuspendTimeout.IsSet())
	assert.Equal(t, Value[time.Duration]{2 * time.Minute, at(7)}, c.SuspendTime, "the last one counts")
	assert.Equal(t, Value[time.Duration]{30 * time.Second, at(9)}, c.PrologTimeout)
	assert.Equal(t, []Value[string]{{"/x/start-gate", at(10)}, {"/x/prolog", at(11)}}, c.PrologSlurmctld)
	assert.Equal(t, Value[int]{V: 300}, c.ResumeRate)
	assert.Equal(t, "CR_CORE_MEMORY", c.SelectTypeParameters.V)
	interval, ok := c.SlurmctldParameter("power_save_interval")
	assert.True(t, ok)
	assert.Equal(t, "0", interval)
	_, ok = c.SlurmctldParameter("cloud_dns")
	assert.False(t, ok)
	s, ok := c.Get("prologepilogtimeout")
	assert.True(t, ok)
	assert.Equal(t, "60", s.Value)

	require.Len(t, c.Nodes, 3)
	n, m, k := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	assert.Equal(t, "n[1-3]", n.Names.String())
	assert.Equal(t, 8, n.CPUs.V)
	assert.Equal(t, "slurm.conf:13:18", n.CPUs.Position.String())
	assert.Equal(t, 8, n.Sockets.V)
	assert.Equal(t, 3000, n.RealMemory.V)
	assert.Equal(t, 2000, m.RealMemory.V, "the later default counts")
	assert.Equal(t, []string{"a", "b"}, n.Features.V)
	assert.Equal(t, []string{"c"}, m.Features.V, "Feature of DEFAULT does not stand before its own Features")
	assert.Equal(t, "gpu:2", n.Gres.V)
	assert.Equal(t, "CLOUD", k.State.V)
	assert.Equal(t, 2, k.CPUs.V)
	assert.Equal(t, 1, k.Weight.V)
	assert.Equal(t, "10.0.0.2", n.Address(1))
	assert.Equal(t, "n2", n.HostName(1))
	assert.Equal(t, "host", m.Address(0))
	assert.False(t, n.SuspendTime.IsSet())

	require.Len(t, c.Partitions, 2)
	p, q := c.Partitions[0], c.Partitions[1]
	assert.Equal(t, "n1,n2", p.Nodes.V)
	assert.False(t, p.Default.V)
	assert.True(t, q.Default.V)
	assert.Equal(t, "60", p.MaxTime.V)
	assert.Equal(t, 7*time.Second, p.ResumeTimeout.V)
	assert.False(t, p.SuspendTime.IsSet(), "Slurm does not take it from DEFAULT")
	assert.Equal(t, Infinite, q.SuspendTime.V)
	assert.True(t, q.SuspendTime.IsSet())
	assert.Equal(t, "CR_Core", q.SelectTypeParameters.V)
	assert.Equal(t, "UP", q.State.V)
}

func TestClusterByVersion(t *testing.T) {
	c, err := ReadConfig("slurm.conf", readTexts(map[string]string{"slurm.conf": someCluster}))
	require.NoError(t, err)
	_, err = c.Cluster(Version{24, 11})
	require.EqualError(t, err, "slurm.conf:9:1: Slurm 24.11 does not know PrologTimeout yet; remove it, or use a Slurm that has it")
	old := readCluster(t, Version{24, 11}, strings.Replace(someCluster, "PrologTimeout=30\n", "", 1))
	assert.Equal(t, time.Minute, old.PrologTimeout.V)
}

// The cases are those of _parse_nodename.
func TestProcessors(t *testing.T) {
	tests := map[string][5]int{ // CPUs, boards, sockets, cores, threads
		"":                        {1, 1, 1, 1, 1},
		"CPUs=4":                  {4, 1, 4, 1, 1},
		"Procs=4":                 {4, 1, 4, 1, 1},
		"CPUs=0":                  {1, 1, 1, 1, 1},
		"CPUs=8 CoresPerSocket=4": {8, 1, 2, 4, 1},
		"CPUs=8 CoresPerSocket=3": {3, 1, 1, 3, 1},
		"CPUs=4 ThreadsPerCore=2": {4, 1, 2, 1, 2},
		"Sockets=2 CoresPerSocket=4 ThreadsPerCore=2":        {16, 1, 2, 4, 2},
		"CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2": {8, 1, 2, 4, 2},
		"CPUs=5 Sockets=2 CoresPerSocket=4":                  {8, 1, 2, 4, 1},
		"Boards=2 SocketsPerBoard=2 CoresPerSocket=2":        {8, 2, 4, 2, 1},
		"Boards=2 SocketsPerBoard=2 Sockets=1":               {4, 2, 4, 1, 1},
		"Boards=4 Sockets=2":                                 {2, 1, 2, 1, 1},
		"Boards=3":                                           {3, 3, 3, 1, 1},
	}
	for fields, want := range tests {
		t.Run(fields, func(t *testing.T) {
			n := readCluster(t, Version{24, 11}, "ClusterName=c\nSlurmctldHost=h\nNodeName=n "+fields+"\n").Nodes[0]
			assert.Equal(t, want, [5]int{n.CPUs.V, n.Boards.V, n.Sockets.V, n.CoresPerSocket.V, n.ThreadsPerCore.V})
		})
	}
}

func FuzzCluster(f *testing.F) {
	f.Add(someCluster, "A=1")
	f.Add("ClusterName=a\nSlurmctldHost=b\nInclude y\nNodeName=DEFAULT CPUs=070000\nNodeName=n[1-2] SocketsPerBoard=9 Boards=9000 Weight=INFINITE\n", "NodeName=k NodeAddr=a[1-2]")
	f.Add("ClusterName=a\nSlurmctldHost=b(\nSuspendTime=\"\"\n", "PartitionName=p SuspendTime=x")
	f.Fuzz(func(t *testing.T, text, included string) {
		c, err := ReadConfig("/x", readTexts(map[string]string{"/x": text, "/y": included}))
		if err != nil || strings.Count(text, "[") > 3 {
			return
		}
		for kind := SlurmConf; kind <= TopologyConf; kind++ {
			for _, p := range c.Check(kind, Version{24, 11}) {
				if p.Text == "" || p.Position.File == "" {
					t.Fatalf("%q: a problem that says nothing: %+v", text, p)
				}
			}
		}
		for _, v := range []Version{{24, 11}, {25, 5}, {26, 5}} {
			problems := c.Check(SlurmConf, v)
			cluster, err := c.Cluster(v)
			if (problems.Err() == nil) != (err == nil) {
				t.Fatalf("%q: Check says %v, Cluster %v", text, problems, err)
			}
			if err != nil {
				continue
			}
			for _, n := range cluster.Nodes {
				if n.CPUs.V < 1 || n.Sockets.V < 1 || n.Boards.V < 1 {
					t.Fatalf("%q: %+v", text, n)
				}
				if n.Names.Len() > 0 && n.Address(n.Names.Len()-1) == "" {
					t.Fatalf("%q: a node without an address", text)
				}
			}
		}
	})
}
