package doctor

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// clean is a slurm.conf in which no rule finds anything.
const clean = `ClusterName=tide
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/slurm
CredType=auth/slurm
AuthAltTypes=auth/jwt
AuthInfo=cred_expire=30
SlurmctldParameters=enable_configless,idle_on_node_suspend,power_save_interval=0,power_save_min_interval=0
ResumeProgram=/opt/slurmtide/resume
SuspendProgram=/opt/slurmtide/suspend
ResumeFailProgram=/opt/slurmtide/resume-fail
PrologSlurmctld=/opt/slurmtide/start-gate
ResumeRate=0
SuspendRate=0
ResumeTimeout=600
SuspendTimeout=120
SuspendTime=300
ReturnToService=2
SchedulerParameters=batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
SlurmdParameters=config_overrides
NodeName=metal-[0-1] CPUs=8
NodeName=cpu-[0-9] CPUs=4 RealMemory=8000 State=CLOUD
PartitionName=cpu Nodes=cpu-[0-9]
PartitionName=metal Nodes=metal-[0-1]
`

// sample is a cluster to look at: clean, with changes.
type sample struct {
	without string // keys that are taken out of clean, with blanks between
	with    string // lines that take the place of those with the same key, or are added
	version string // 26.05 unless given
	gres    string
	cgroup  string // CgroupPlugin=disabled unless given; "-": there is no such file
	conf    string // slurmtide.conf's problem
	host    *HostFacts
	sets    []NodeSet // of cluster tide, unless kube says otherwise
	kube    *KubernetesFacts
	access  *AccessFacts
	want    []string // what the rule finds, as Finding.String without the rule's name; none in good samples
	byHand  bool     // no edit mends it
}

// facts reads the sample as it would be read from disk.
func (s sample) facts(t testing.TB) Facts {
	t.Helper()
	file, err := slurmconf.ParseFile("slurm.conf", []byte(clean))
	require.NoError(t, err)
	for _, key := range strings.Fields(s.without) {
		require.NotZero(t, file.Remove(key), key)
	}
	more, _ := slurmconf.ParseFile("slurm.conf", []byte(s.with))
	require.NoError(t, file.Merge(more))
	files := map[string]string{"slurm.conf": file.String(), "cgroup.conf": "CgroupPlugin=disabled\n"}
	if s.gres != "" {
		files["gres.conf"] = s.gres
	}
	if s.cgroup != "" {
		files["cgroup.conf"] = s.cgroup
	}
	if s.cgroup == "-" {
		delete(files, "cgroup.conf")
	}
	version := slurmconf.Version{Major: 26, Minor: 5}
	if s.version != "" {
		version, err = slurmconf.ParseVersion(s.version)
		require.NoError(t, err)
	}
	f := FromTexts(version, files)
	if s.conf != "" {
		f.Settings = []string{s.conf}
	}
	f.Host, f.Kubernetes, f.Access = s.host, s.kube, s.access
	if s.sets != nil {
		f.Kubernetes = &KubernetesFacts{Cluster: "tide", NodeSets: s.sets}
	}
	return f
}

func TestClean(t *testing.T) {
	for _, version := range []string{"24.11", "26.05"} {
		assert.Empty(t, Check(sample{version: version}.facts(t)), version)
	}
}

// Every rule has samples in which it finds what it should, and others that are near to these in which it finds nothing.
func TestRules(t *testing.T) {
	samples := allSamples()
	names := map[string]bool{}
	for _, rule := range Rules() {
		assert.False(t, names[rule.Name], "two rules %s", rule.Name)
		names[rule.Name] = true
		for what, text := range map[string]string{"Why": rule.Why, "Remedy": rule.Remedy, "Source": rule.Source} {
			assert.NotEmpty(t, text, "%s of %s", what, rule.Name)
		}
		of := samples[rule.Name]
		assert.NotEmpty(t, of.bad, "rule %s has no bad sample", rule.Name)
		assert.NotEmpty(t, of.good, "rule %s has no good sample", rule.Name)
		for name, s := range of.bad {
			t.Run(rule.Name+"/bad/"+name, func(t *testing.T) { s.check(t, rule) })
		}
		for name, s := range of.good {
			t.Run(rule.Name+"/good/"+name, func(t *testing.T) {
				f := s.facts(t)
				require.True(t, f.Cluster != nil || rule.text, "the sample is refused by Slurm: %v", f.Slurm.Check(slurmconf.SlurmConf, f.Version).Err())
				assert.Empty(t, rule.find(&f))
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		assert.True(t, names[name], "there is no rule %s", name)
	}
}

// samplesOf are those of a rule.
type samplesOf struct{ bad, good map[string]sample }

// allSamples are those of all rules, by name.
func allSamples() map[string]samplesOf {
	all := map[string]samplesOf{}
	for _, some := range []map[string]samplesOf{textSamples, programSamples, hostSamples, timeSamples, parameterSamples, exceptionSamples, nodeSamples, gresSamples, podSamples, nodeSetSamples, accessSamples, runningSamples} {
		maps.Copy(all, some)
	}
	return all
}

// check wants the findings, and none after they have been mended.
func (s sample) check(t *testing.T, rule Rule) {
	f := s.facts(t)
	require.NotEmpty(t, s.want, "a bad sample wants findings")
	require.True(t, f.Cluster != nil || rule.text, "the sample is refused by Slurm: %v", f.Slurm.Check(slurmconf.SlurmConf, f.Version).Err())
	findings := rule.find(&f)
	var got []string
	for _, finding := range findings {
		got = append(got, strings.TrimSuffix(finding.String(), " ("+rule.Name+")"))
		assert.Equal(t, !s.byHand, finding.Fixable(), "%s: an edit", finding)
	}
	assert.Equal(t, s.want, got)
	if s.byHand {
		return
	}
	mended := mend(t, f, findings)
	assert.Empty(t, rule.find(&mended), "after the edits")
}

// mend is what there is after the edits of findings.
func mend(t *testing.T, f Facts, findings []Finding) Facts {
	t.Helper()
	texts := map[string]string{}
	for _, file := range f.Slurm.Files() {
		texts[file.Name()] = file.String()
	}
	fixed, err := Fixed(f, findings)
	require.NoError(t, err)
	maps.Copy(texts, fixed)
	mended := FromTexts(f.Version, texts)
	mended.Gres, mended.Cgroup, mended.Settings, mended.Host, mended.Kubernetes, mended.Access = f.Gres, f.Cgroup, f.Settings, f.Host, f.Kubernetes, f.Access
	require.True(t, mended.Cluster != nil || f.Cluster == nil, "what was mended is refused by Slurm: %v", mended.Slurm.Check(slurmconf.SlurmConf, f.Version).Err())
	return mended
}

// All edits together leave nothing that an edit mends: none undoes what another rule asks for.
func TestFixAll(t *testing.T) {
	several := map[string]sample{
		"deadline above boots": {with: "ResumeTimeout=100", sets: set(func(s *NodeSet) { s.Deadline, s.P95 = 900*time.Second, 100*time.Second })},
		"boots above deadline": {with: "ResumeTimeout=100", sets: set(func(s *NodeSet) { s.Deadline, s.P95 = 200*time.Second, 900*time.Second })},
		"the second of two sets": {with: "ResumeTimeout=100", sets: append(set(func(s *NodeSet) { s.Nodes, s.Deadline = nodes("cpu-[0-4]"), 900*time.Second }),
			set(func(s *NodeSet) { s.Name, s.Nodes, s.Deadline = "slurm/more", nodes("cpu-[5-9]"), 300*time.Second })...)},
		"too short at all":               {with: "ResumeTimeout=10\nSuspendTimeout=10", sets: set(func(s *NodeSet) { s.Deadline = time.Hour })},
		"no timeouts":                    {without: "ResumeTimeout SuspendTimeout", sets: set(func(s *NodeSet) { s.P95 = time.Hour })},
		"never given up":                 {with: "ResumeTimeout=INFINITE\nPartitionName=b Nodes=cpu-1 ResumeTimeout=900", sets: set(func(s *NodeSet) { s.Deadline = time.Hour })},
		"never given up, of a partition": {with: "PartitionName=b Nodes=cpu-1 ResumeTimeout=INFINITE"},
		"partitions with longer ones": {with: "ResumeTimeout=10\nSuspendTimeout=10\nPartitionName=b Nodes=cpu-1 ResumeTimeout=900 SuspendTimeout=900",
			sets: set(func(s *NodeSet) { s.Deadline = 10 * time.Minute })},
		"partitions with short ones": {with: "ResumeTimeout=300\nSuspendTimeout=60\nPartitionName=b Nodes=cpu-1 ResumeTimeout=10 SuspendTimeout=10"},
	}
	for name, s := range several {
		t.Run(name, func(t *testing.T) {
			f := s.facts(t)
			mended := mend(t, f, Check(f))
			for _, finding := range Check(mended) {
				assert.False(t, finding.Fixable(), "after the edits: %s", finding)
			}
		})
	}
}

// Nor does one in any other sample. What comes to light only by an edit, such as GresTypes by Gres, may be left.
func TestFixSamples(t *testing.T) {
	for rule, of := range allSamples() {
		for name, s := range of.bad {
			t.Run(rule+"/"+name, func(t *testing.T) {
				f := s.facts(t)
				findings, before := Check(f), map[string]bool{}
				for _, finding := range findings {
					before[finding.Rule] = before[finding.Rule] || finding.Fixable()
				}
				mended := mend(t, f, findings)
				for _, finding := range Check(mended) {
					assert.False(t, before[finding.Rule] && finding.Fixable(), "after the edits: %s", finding)
				}
			})
		}
	}
}

// The keys that slurmctld opens.
func TestKeyFiles(t *testing.T) {
	for lines, want := range map[string][]string{
		"":                                     {"slurm.key", "/var/spool/jwt_hs256.key"},
		"StateSaveLocation=/state":             {"slurm.key", "/state/jwt_hs256.key"},
		"AuthAltParameters=jwt_key=/a":         {"slurm.key", "/a"},
		"AuthAltParameters=jwks=/b":            {"slurm.key"},
		"AuthAltParameters=jwks=/b,jwt_key=/a": {"slurm.key", "/a"},
		"AuthType=auth/munge\nAuthAltParameters=jwt_key=/a": {"/a"},
		"AuthType=auth/munge\nAuthAltTypes=auth/slurm":      nil,
	} {
		f := sample{with: lines}.facts(t)
		assert.Equal(t, want, f.KeyFiles(), lines)
	}
}

// A diff names each file once, and leaves out those that nothing is mended in.
func TestDiff(t *testing.T) {
	f := FromTexts(slurmconf.Version{Major: 26, Minor: 5}, map[string]string{
		"slurm.conf": "ClusterName=a\nSlurmctldHost=b\nInclude one.conf\nInclude two.conf\nNodeName=c State=CLOUD\n", "one.conf": "ReturnToService=1\n", "two.conf": "KillWait=5\n",
	})
	var some []Finding
	for _, finding := range Check(f) {
		if finding.Rule == "return-to-service" {
			some = append(some, finding)
		}
	}
	diff, err := Diff(f, some)
	require.NoError(t, err)
	assert.Equal(t, "--- a/one.conf\n+++ b/one.conf\n@@ -1,1 +1,1 @@\n-ReturnToService=1\n+ReturnToService=2\n", diff)
	_, err = Fixed(f, []Finding{{Rule: "x", edits: []edit{{"none.conf", nil}}}})
	require.EqualError(t, err, "mending x: none.conf was not read")
}

// What may not be read may say anything.
func TestFilesThatMayNotBeRead(t *testing.T) {
	f := sample{with: gpus}.facts(t)
	f.Gres, f.Cgroup = nil, nil
	f.AddFiles(func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}, "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf")
	assert.Empty(t, Check(f))
	slices.Sort(f.Unread)
	assert.Equal(t, []string{"open /etc/slurm/cgroup.conf: permission denied", "open /etc/slurm/gres.conf: permission denied"}, f.Unread)
}
