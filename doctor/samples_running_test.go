package doctor

// up are cpu-0 and cpu-1 with their pods, beside all others that are off, with a change.
func up(change func(r *RunningFacts)) *AccessFacts {
	r := &RunningFacts{}
	for name := range nodes("cpu-[0-9]").All() {
		r.Nodes = append(r.Nodes, RunningNode{Name: name, Cloud: true, Address: name})
	}
	r.Nodes[0].Address, r.Nodes[0].Pod = "10.1.0.1", []string{"10.1.0.1", "fd00::1"}
	r.Nodes[1].Address, r.Nodes[1].Pod = "::ffff:10.1.0.2", []string{"10.1.0.2"}
	r.Nodes = append(r.Nodes, RunningNode{Name: "metal-0", Address: "192.0.2.1"}, RunningNode{Name: "metal-1", Address: "metal-1"})
	r.Names = []ResolvedName{{Name: "cpu-0", Addresses: []string{"10.1.0.1"}}}
	if change != nil {
		change(r)
	}
	return &AccessFacts{Running: r}
}

const cloudDNSLine = "SlurmctldParameters=enable_configless,idle_on_node_suspend,cloud_dns"

var runningSamples = map[string]samplesOf{
	"address-translation": {
		bad: map[string]sample{
			"one": {access: up(func(r *RunningFacts) { r.Nodes[1].Address = "192.0.2.7" }), byHand: true, want: []string{
				"error: 1 of 2 registered pods have another address in Slurm than their own: cpu-1 has 192.0.2.7, and its pod 10.1.0.2; see what forwards from 10.1.0.2 to slurmctld, and have it leave the sender's address alone"}},
			"all, once": {access: up(func(r *RunningFacts) { r.Nodes[0].Address, r.Nodes[1].Address = "192.0.2.7", "192.0.2.7" }), byHand: true, want: []string{
				"error: 2 of 2 registered pods have another address in Slurm than their own: cpu-0 has 192.0.2.7, and its pod 10.1.0.1; see what forwards from 10.1.0.1 to slurmctld, and have it leave the sender's address alone"}},
		},
		good: map[string]sample{
			"their own": {access: up(nil)}, "the second of two": {access: up(func(r *RunningFacts) { r.Nodes[0].Address = "fd00::1" })},
			"a name": {access: up(func(r *RunningFacts) { r.Nodes[0].Address = "cpu-0" })}, "a pod that is not known": {access: up(func(r *RunningFacts) { r.Nodes[0].Address, r.Nodes[0].Pod = "192.0.2.7", nil })},
			"not asked": {}, "slurmctld did not answer": {access: &AccessFacts{}},
		},
	},
	"cloud-dns-names": {
		bad: map[string]sample{
			"no name": {with: cloudDNSLine, access: up(func(r *RunningFacts) { r.Names[0].Addresses = nil }), want: []string{
				"slurm.conf:27:1: error: SlurmctldParameters has cloud_dns, node cpu-0 is up, and this host finds no address for its name; remove cloud_dns, or correct the name service"}},
			"another address": {with: cloudDNSLine, access: up(func(r *RunningFacts) { r.Names[0].Addresses = []string{"127.0.0.1"} }), want: []string{
				"slurm.conf:27:1: error: SlurmctldParameters has cloud_dns, node cpu-0 is up at 10.1.0.1, and this host finds 127.0.0.1 for its name; remove cloud_dns, or correct the name service"}},
		},
		good: map[string]sample{
			"found": {with: cloudDNSLine, access: up(nil)}, "without cloud_dns": {access: up(func(r *RunningFacts) { r.Names[0].Addresses = nil })},
			"slurmctld has the name": {with: cloudDNSLine, access: up(func(r *RunningFacts) { r.Nodes[0].Address = "cpu-0" })},
			"none is up":             {with: cloudDNSLine, access: up(func(r *RunningFacts) { r.Names = nil })}, "not asked": {with: cloudDNSLine}, "slurmctld did not answer": {with: cloudDNSLine, access: &AccessFacts{}},
		},
	},
	"not-reconfigured": {
		bad: map[string]sample{
			"not there": {access: up(func(r *RunningFacts) { r.Nodes = append(r.Nodes[:3], r.Nodes[5:]...) }), byHand: true,
				want: []string{"slurm.conf:25:1: warning: slurmctld knows no cpu-[3-4]; scontrol reconfigure, if this is slurmctld's file"}},
			"not CLOUD": {access: up(func(r *RunningFacts) { r.Nodes[3].Cloud = false }), byHand: true,
				want: []string{"slurm.conf:25:1: warning: slurmctld has cpu-3 without State=CLOUD; restart slurmctld, if this is its file"}},
		},
		good: map[string]sample{"all": {access: up(nil)}, "hidden from us": {access: up(func(r *RunningFacts) { r.Nodes = nil })}, "not asked": {}, "slurmctld did not answer": {access: &AccessFacts{}}},
	},
	"name-server": {
		bad: map[string]sample{"the second": {access: &AccessFacts{NameServers: []NameServer{{Address: "10.0.0.1"}, {Address: "10.0.0.2", Silent: true}}}, byHand: true,
			want: []string{"/etc/resolv.conf: warning: name server 10.0.0.2 does not answer; remove the server, or have it answer"}}},
		good: map[string]sample{"both answer": {access: &AccessFacts{NameServers: []NameServer{{Address: "10.0.0.1"}, {Address: "10.0.0.2"}}}}, "not asked": {}},
	},
	"request-rate": {
		bad: map[string]sample{
			"low": {access: &AccessFacts{QPS: 5, Burst: 10}, with: manyNodes, sets: many, byHand: true, want: []string{
				"warning: NodeSet slurm/big has 1000 nodes: with --kube-qps=5 the last pod is made after 3m18s, and ResumeTimeout is 600; give the bridge --kube-qps=17"}},
			"slurmctld is faster": {access: &AccessFacts{QPS: 5, Burst: 10}, with: manyNodes + "\nResumeRate=301", sets: many, byHand: true, want: []string{
				"warning: NodeSet slurm/big has 1000 nodes: with --kube-qps=5 the last pod is made after 3m18s, and ResumeTimeout is 600; give the bridge --kube-qps=17"}},
			"two sets, one budget": {access: &AccessFacts{QPS: 10, Burst: 0}, with: manyNodes + "\n" + moreNodes, sets: append(many, more...), byHand: true, want: []string{
				"warning: NodeSets slurm/big, slurm/more have 1100 nodes: with --kube-qps=10 the last pod is made after 1m50s, and ResumeTimeout is 600; give the bridge --kube-qps=19"}},
			"the shortest time counts": {access: &AccessFacts{QPS: 20, Burst: 0}, with: manyNodes + "\n" + moreNodes + "\nPartitionName=more Nodes=more-[1-100] ResumeTimeout=300", sets: append(many, more...), byHand: true, want: []string{
				"warning: NodeSets slurm/big, slurm/more have 1100 nodes: with --kube-qps=20 the last pod is made after 55s, and ResumeTimeout is 300; give the bridge --kube-qps=37"}},
			"most of them": {access: &AccessFacts{QPS: 5, Burst: 0}, with: manyNodes + "\nSlurmctldParameters=max_powered_nodes=400", sets: many, byHand: true, want: []string{
				"warning: NodeSet slurm/big has 1000 nodes, of which 400 may be up: with --kube-qps=5 the last pod is made after 1m20s, and ResumeTimeout is 600; give the bridge --kube-qps=7"}},
		},
		good: map[string]sample{
			"each would be enough for all":   {access: &AccessFacts{QPS: 20, Burst: 0}, with: manyNodes + "\n" + moreNodes, sets: append(many, more...)},
			"few may be up":                  {access: &AccessFacts{QPS: 5, Burst: 0}, with: manyNodes + "\nSlurmctldParameters=max_powered_nodes=300", sets: many},
			"names that Slurm does not have": {access: &AccessFacts{QPS: 20, Burst: 0}, with: manyNodes, sets: append(many, more...)},
			"enough":                         {access: &AccessFacts{QPS: 9.9, Burst: 406}, with: manyNodes, sets: many}, "few nodes": {access: &AccessFacts{QPS: 5, Burst: 10}, sets: set(nil)},
			"slurmctld is slower": {access: &AccessFacts{QPS: 5, Burst: 10}, with: manyNodes + "\nResumeRate=300", sets: many}, "not known": {access: &AccessFacts{}, with: manyNodes, sets: many},
			"no end": {access: &AccessFacts{QPS: 5, Burst: 10}, with: manyNodes + "\nResumeTimeout=INFINITE", sets: many}, "not asked": {},
		},
	},
}

const (
	manyNodes = "NodeName=big-[1-1000] CPUs=4 RealMemory=8000 State=CLOUD"
	moreNodes = "NodeName=more-[1-100] CPUs=4 RealMemory=8000 State=CLOUD"
)

var (
	many = set(func(s *NodeSet) { s.Name, s.Nodes = "slurm/big", nodes("big-[1-1000]") })
	more = set(func(s *NodeSet) { s.Name, s.Nodes = "slurm/more", nodes("more-[1-100]") })
)
