package history

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// teller feeds a recorder, at so many milliseconds after noon.
type teller struct {
	t *testing.T
	*Recorder
	entries []Entry
}

func newTeller(t *testing.T) *teller { return &teller{t: t, Recorder: NewRecorder()} }

func ms(n int) time.Time { return noon.Add(time.Duration(n) * time.Millisecond) }

func (r *teller) at(n int, ev powersave.Event, actions ...powersave.Action) {
	r.entries = append(r.entries, r.Step(ms(n), ev, actions)...)
}

func (r *teller) restart(n int) {
	r.Recorder = NewRecorder()
	r.entries = append(r.entries, Begun(ms(n), "v1.2.3"))
}

func list(t *testing.T, s string) slurmconf.Hostlist {
	nodes, err := slurmconf.ParseHostlist(s)
	require.NoError(t, err)
	return nodes
}

func (r *teller) resume(n int, id, nodes string, jobs ...powersave.Job) {
	r.at(n, powersave.RequestAccepted{Request: powersave.Request{ID: id, Kind: spool.KindResume, Started: ms(n - 15), Nodes: list(r.t, nodes), Jobs: jobs}})
}

func (r *teller) create(n int, request, offering, node string, job uint32) {
	r.at(n, powersave.Tick{}, powersave.CreatePod{Node: node, NodeSet: "cpu", Offering: offering, Request: request, Job: job})
}

func (r *teller) pod(n int, request, offering, node, uid, host string, phase powersave.PodPhase) {
	r.at(n, powersave.PodSeen{Pod: powersave.Pod{Node: node, NodeSet: "cpu", UID: uid, Request: request, Offering: offering, Host: host, Phase: phase}})
}

func (r *teller) registers(n int, request, node string, jobs ...uint32) {
	uid := ""
	if b := r.boots[node]; b != nil {
		uid = b.PodUID
	}
	r.at(n, powersave.SlurmRead{}, powersave.BootDone{Boot: powersave.Boot{Node: node, NodeSet: "cpu", Request: request, Jobs: jobs, UID: uid}})
}

// tell checks the story against a file, as text and as JSON that can be read again.
func (r *teller) tell(a Answer) {
	r.t.Helper()
	a.Entries = nil
	for _, e := range r.entries {
		line, err := json.Marshal(e)
		require.NoError(r.t, err)
		var again Entry
		require.NoError(r.t, json.Unmarshal(line, &again))
		if again.about(a.Subject) {
			a.Entries = append(a.Entries, again)
		}
	}
	var out strings.Builder
	require.NoError(r.t, Tell(a).WriteText(&out))
	golden.Compare(r.t, "testdata/"+strings.ReplaceAll(strings.ToLower(r.t.Name()), "/", "_")+".txt", out.String())
}

func job7(t *testing.T, nodes string) powersave.Job {
	return powersave.Job{ID: 7, Nodes: list(t, nodes)}
}

// twoNodes lets job 7 start on two nodes.
func twoNodes(t *testing.T) *teller {
	r := newTeller(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-[0-1]"), Attempt: 1})
	r.resume(430, "r1", "cpu-[0-1]", job7(t, "cpu-[0-1]"))
	for i, node := range []string{"cpu-0", "cpu-1"} {
		n := 440 + 60*i
		uid := "uid-" + node
		r.create(n, "r1", "", node, 7)
		r.at(n+20, powersave.PodCreated{Node: node, UID: uid})
		r.pod(n+25, "r1", "", node, uid, "", powersave.PodPending)
		r.pod(n+50, "r1", "", node, uid, "host-a", powersave.PodScheduled)
		r.pod(n+800, "r1", "", node, uid, "host-a", powersave.PodRunning)
		r.pod(n+850, "r1", "", node, uid, "host-a", powersave.PodReady)
		r.registers(n+1200, "r1", node, 7)
	}
	r.at(1701, powersave.Tick{}, powersave.AnswerGate{ID: 1, Ready: true})
	assert.Empty(t, r.Due(ms(2700), 4))
	assert.Equal(t, []uint32{7}, r.Due(ms(2701), 4), "a second later")
	assert.Empty(t, r.Due(ms(2702), 4))
	r.entries = append(r.entries, Seen(ms(2750), powersave.SlurmJob{ID: 7, State: powersave.JobRunning, StateReason: "None", Nodes: []string{"cpu-0", "cpu-1"}, Submitted: ms(-1000), Begin: ms(-1000)}))
	return r
}

func TestJobThatRuns(t *testing.T) {
	twoNodes(t).tell(Answer{Subject: Subject{Job: 7}, Time: ms(60_000), Slurm: []Shown{{Name: "job 7", State: "RUNNING", Nodes: "cpu-[0-1]", Reason: "None"}}})
}

func TestNodeUpAndDown(t *testing.T) {
	r := twoNodes(t)
	r.at(100_000, powersave.RequestAccepted{Request: powersave.Request{ID: "s1", Kind: spool.KindSuspend, Started: ms(99_980), Nodes: list(t, "cpu-[0-1]")}})
	r.at(100_100, powersave.SlurmRead{}, powersave.DeletePod{Node: "cpu-0", UID: "uid-cpu-0", Why: "powered down"})
	r.at(101_000, powersave.PodGone{Node: "cpu-0", UID: "uid-cpu-0"})
	r.at(101_020, powersave.NodesUpdated{Update: powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1"}, State: powersave.StateResume}})
	r.at(101_030, powersave.NodesUpdated{Update: powersave.NodeUpdate{Nodes: []string{"cpu-0"}, State: powersave.StateRenew}})
	r.at(101_040, powersave.NodesUpdated{Update: powersave.NodeUpdate{Nodes: []string{"cpu-0"}, State: powersave.StateDown}, Err: "refused"})
	r.tell(Answer{Subject: Subject{Node: "cpu-0"}, Time: ms(200_000), Slurm: []Shown{{Name: "node cpu-0", State: "IDLE+CLOUD+POWERED_DOWN"}}})
}

// inVain has job 7 given back for want of room, on both offerings.
func inVain(t *testing.T) *teller {
	r := newTeller(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-[0-1]"), Attempt: 2})
	r.resume(430, "r1", "cpu-[0-1]", job7(t, "cpu-[0-1]"))
	r.create(440, "r1", "spot", "cpu-0", 7)
	r.create(440, "r1", "spot", "cpu-1", 7)
	r.pod(460, "r1", "spot", "cpu-0", "u0", "", powersave.PodPending)
	r.pod(465, "r1", "spot", "cpu-1", "u1", "", powersave.PodPending)
	r.pod(480, "r1", "spot", "cpu-0", "u0", "host-a", powersave.PodScheduled)
	say := func(n int, text string) {
		r.at(n, powersave.Tick{}, powersave.Report{Level: powersave.Warn, Node: "cpu-1", NodeSet: "cpu", Request: "r1", Text: text})
	}
	say(900, "pod is pending: 0/5 nodes are available: 5 Insufficient cpu")
	say(10_900, "capacity: 0/5 nodes are available: 5 Insufficient cpu: trying another offering")
	r.create(12_000, "r1", "on-demand", "cpu-1", 7)
	r.pod(12_020, "r1", "on-demand", "cpu-1", "u2", "", powersave.PodPending)
	v := powersave.Verdict{Trouble: powersave.TroubleCapacity, Reason: "0/5 nodes are available: 5 are tainted"}
	r.at(23_000, powersave.Tick{}, powersave.BootFailed{Node: "cpu-1", NodeSet: "cpu", Offering: "on-demand", UID: "u2", Request: "r1", Jobs: []uint32{7}, Verdict: v},
		powersave.Report{Level: powersave.Warn, Node: "cpu-1", NodeSet: "cpu", Text: v.String()},
		powersave.TellJob{Job: 7, Reason: powersave.ReasonPrefix + v.String()})
	r.at(23_040, powersave.JobTold{Job: 7, Times: 2, Attempt: 2})
	r.at(23_100, powersave.NodesUpdated{Update: powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1"}, State: powersave.StatePowerDownForce, Reason: "slurmtide: " + v.String()}},
		powersave.AnswerGate{ID: 1, Reason: v.String()})
	r.at(23_200, powersave.Tick{}, powersave.HoldJob{Job: 7, Delay: time.Minute})
	r.at(23_250, powersave.JobHeld{Job: 7})
	breaker := powersave.BreakerRecord{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "on-demand"}, State: powersave.BreakerOpen, Class: v.Trouble, Reason: v.Reason, Until: ms(83_000), Tries: 1}
	for range 2 {
		r.entries = append(r.entries, r.Counts(ms(23_300), []powersave.NodeSetCounts{{Name: "cpu", Breakers: []powersave.BreakerRecord{breaker}}})...)
	}
	return r
}

var cpuOpen = powersave.NodeSetCounts{Name: "cpu", Nodes: 10, Breakers: []powersave.BreakerRecord{
	{Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerClosed},
	{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "on-demand"}, State: powersave.BreakerOpen, Class: powersave.TroubleCapacity, Reason: "0/5 nodes are available: 5 are tainted", Until: ms(83_000)},
	{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "spot"}, State: powersave.BreakerHalfOpen, Class: powersave.TroubleCapacity, Reason: "0/5"},
}}

func TestJobGivenBack(t *testing.T) {
	r := inVain(t)
	r.registers(23_400, "r1", "cpu-0", 7) // too late: the job waits for all of them
	r.tell(Answer{Subject: Subject{Job: 7}, Time: ms(30_000), NodeSets: []powersave.NodeSetCounts{cpuOpen},
		Slurm: []Shown{{Name: "job 7", State: "PENDING", Reason: "BeginTime"}}})
}

func TestJobThatRunsAfterAll(t *testing.T) {
	r := inVain(t)
	r.at(90_000, powersave.GateOpened{ID: 2, JobID: 7, Nodes: list(t, "cpu-[2-3]"), Attempt: 3})
	r.resume(90_500, "r2", "cpu-[2-3]", job7(t, "cpu-[2-3]"))
	for _, node := range []string{"cpu-2", "cpu-3"} {
		r.create(90_510, "r2", "spot", node, 7)
		r.pod(90_520, "r2", "spot", node, "uid-"+node, "host-b", powersave.PodRunning)
		r.registers(91_000, "r2", node, 7)
	}
	r.at(91_001, powersave.Tick{}, powersave.AnswerGate{ID: 2, Ready: true})
	seen := func(n, restarts, submitted, begin int, state powersave.JobState) {
		r.entries = append(r.entries, Seen(ms(n), powersave.SlurmJob{ID: 7, State: state, Restarts: restarts, Submitted: ms(submitted), Begin: ms(begin)}))
	}
	seen(23_020, 1, -2000, -1000, powersave.JobRunning|powersave.JobConfiguring) // before it was told
	seen(92_001, 2, 23_000, 83_250, powersave.JobRunning)                        // a whole second: in truth after 23.1
	r.tell(Answer{Subject: Subject{Job: 7}, Time: ms(100_000)})
}

// Without a gate nobody says that the nodes are there, but Slurm shows that the job runs.
func TestJobThatRunsAfterAllWithoutAGate(t *testing.T) {
	r := inVain(t)
	for state, want := range map[string]struct{ why, next bool }{
		"RUNNING": {}, "COMPLETED": {}, "RUNNING+CONFIGURING": {why: true, next: true}, "PENDING": {why: true, next: true}, "NODE_FAIL": {why: true},
	} {
		a := Answer{Subject: Subject{Job: 7}, Time: ms(200_000), NodeSets: []powersave.NodeSetCounts{cpuOpen}, Slurm: []Shown{{Name: "job 7", State: state}}}
		a.Entries = r.entries
		s := Tell(a)
		assert.Equal(t, want.why, s.Why != "", "%s: %s", state, s.Why)
		assert.Equal(t, want.next, len(s.Next) > 0, "%s: %s", state, s.Next)
		assert.Equal(t, want.why, s.Do != "", "%s: %s", state, s.Do)
	}
	a := Answer{Subject: Subject{Job: 7}, Time: ms(200_000)}
	a.Entries = append(slices.Clone(r.entries), Seen(ms(100_000), powersave.SlurmJob{ID: 7, State: powersave.JobRunning, Restarts: 2}))
	assert.Empty(t, Tell(a).Why, "slurmrestd is away, and the job was seen to run")
}

func TestNodeSetWithBreakers(t *testing.T) {
	r := inVain(t)
	r.at(24_000, powersave.Tick{}, powersave.FloorShort{NodeSet: "cpu", Why: powersave.FloorBooting})
	r.at(25_000, powersave.KubernetesUnread{Err: "connection refused"})
	r.at(26_000, powersave.KubernetesUnread{})
	r.tell(Answer{Subject: Subject{NodeSet: "cpu"}, Time: ms(30_000), NodeSets: []powersave.NodeSetCounts{cpuOpen}})
}

// TestBridgeStartedAnew has it killed between: what it sees again is told once.
func TestBridgeStartedAnew(t *testing.T) {
	r := newTeller(t)
	r.entries = append(r.entries, Begun(ms(-5000), "v1.2.2"))
	r.resume(430, "r1", "cpu-0", job7(t, "cpu-0"))
	r.create(440, "r1", "", "cpu-0", 7)
	r.pod(460, "r1", "", "cpu-0", "u0", "", powersave.PodPending)
	r.pod(480, "r1", "", "cpu-0", "u0", "host-a", powersave.PodScheduled)
	r.restart(2000)
	r.resume(2010, "r1", "cpu-0", job7(t, "cpu-0"))
	r.at(2020, powersave.PodsRead{Pods: []powersave.Pod{
		{Node: "cpu-0", NodeSet: "cpu", UID: "u0", Request: "r1", Host: "host-a", Phase: powersave.PodRunning},
		{Node: "cpu-5", NodeSet: "cpu", UID: "u5", Request: "r0", Host: "host-a", Phase: powersave.PodReady},
	}})
	r.at(2030, powersave.SlurmReadFailed{Err: "no answer"})
	r.at(2040, powersave.SlurmReadFailed{Err: "no answer"})
	r.registers(3000, "r1", "cpu-0", 7)
	r.restart(9000)
	r.resume(9010, "r1", "cpu-0", job7(t, "cpu-0")) // it could not be removed
	r.tell(Answer{Subject: Subject{Job: 7}, Time: ms(10_000), BridgeError: "no bridge runs", Found: Found{Broken: 1, LeftOut: 3}})
	for _, e := range r.entries {
		assert.NotEqual(t, "cpu-5", e.Node, "a pod that has served for long is no news")
	}
}

// TestContainerThatKubernetesTellsOfLate has slurmd registered before the kubelet says that it runs.
func TestContainerThatKubernetesTellsOfLate(t *testing.T) {
	r := newTeller(t)
	r.resume(430, "r1", "cpu-0", job7(t, "cpu-0"))
	r.create(440, "r1", "", "cpu-0", 7)
	r.pod(450, "r0", "", "cpu-0", "u-old", "host-b", powersave.PodRunning) // of an earlier boot
	r.pod(460, "r1", "", "cpu-0", "u0", "host-a", powersave.PodScheduled)
	r.registers(1000, "r1", "cpu-0", 7)
	r.pod(1700, "r1", "", "cpu-0", "u0", "host-a", powersave.PodRunning)
	r.pod(1800, "r1", "", "cpu-0", "u0", "host-a", powersave.PodReady)
	r.at(5000, powersave.Tick{}, powersave.Report{Node: "cpu-0", NodeSet: "cpu", Text: "host is cordoned: draining the node"})
	r.tell(Answer{Subject: Subject{Job: 7}, Time: ms(60_000)})
	assert.Empty(t, r.boots)
}

// TestAgain tells apart what happens to a node twice, and what happens to two at different times.
func TestAgain(t *testing.T) {
	r := newTeller(t)
	r.resume(400, "r1", "cpu-[0-2]", job7(t, "cpu-[0-2]"))
	for _, node := range []string{"cpu-0", "cpu-1", "cpu-2"} {
		r.create(410, "r1", "", node, 7)
	}
	r.pod(500, "r1", "", "cpu-0", "u0", "", powersave.PodPending)
	r.pod(600, "r1", "", "cpu-1", "u1", "", powersave.PodPending)
	r.pod(700, "r1", "", "cpu-0", "u0again", "", powersave.PodPending)
	r.pod(800, "r1", "", "cpu-1", "u1again", "", powersave.PodPending)
	r.pod(30_601, "r1", "", "cpu-2", "u2", "", powersave.PodPending)
	s := Tell(Answer{Subject: Subject{Job: 7}, Time: ms(40_000), Found: Found{Entries: r.entries}})
	var created []string
	for _, step := range s.Steps {
		if step.What == PodCreated {
			created = append(created, step.Text)
		}
	}
	assert.Equal(t, []string{"pods created: cpu-[0-1]", "pods created: cpu-[0-1]", "pod created: cpu-2"}, created)
	require.Len(t, s.Boots, 3)
	assert.Equal(t, 2, s.Boots[0].Pods)
}

func TestBootInFlight(t *testing.T) {
	r := newTeller(t)
	r.resume(430, "r1", "cpu-0")
	r.create(440, "r1", "", "cpu-0", 0)
	r.pod(460, "r1", "", "cpu-0", "u0", "", powersave.PodPending)
	r.tell(Answer{Subject: Subject{Node: "cpu-0"}, Time: ms(10_000), Boots: []powersave.Boot{{Node: "cpu-0", Phase: powersave.PhasePending, Problem: "0/5 nodes are available"}},
		SlurmError: "no answer", KubernetesError: "refused"})
}

func TestManyNodes(t *testing.T) {
	r := newTeller(t)
	r.resume(400, "r1", "cpu-[0-99]", job7(t, "cpu-[0-99]"))
	for i := range 100 {
		node := entry(i).Node
		r.create(410, "r1", "", node, 7)
		r.pod(420+i, "r1", "", node, "uid-"+node, "", powersave.PodPending)
		r.pod(2000+10*i, "r1", "", node, "uid-"+node, "host-"+node[:5], powersave.PodRunning)
		r.registers(4000+100*i, "r1", node, 7)
	}
	r.tell(Answer{Subject: Subject{Job: 7}, Time: ms(100_000)})
}

func TestPulled(t *testing.T) {
	for want, pulls := range map[string][]string{
		"image pulled, ":                           {""},
		"image was on the host, ":                  {powersave.PullThere, powersave.PullThere},
		"image pulled in 1m2.5s, ":                 {"1m2.5s"},
		"image pulled by 2 of 3 in up to 12.25s, ": {"900ms", powersave.PullThere, "12.25s"},
	} {
		assert.Equal(t, want, pulled(pulls))
	}
	assert.Equal(t, "image pulled, ", pulled([]string{"1s", ""}), "of one it is not known")
}

// TestNoStory leaves jobs out that start on nodes which are up.
func TestNoStory(t *testing.T) {
	r := newTeller(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-0")}, powersave.AnswerGate{ID: 1, Ready: true})
	r.at(1, powersave.PodSeen{Pod: powersave.Pod{Node: "cpu-0", Phase: powersave.PodReady}})
	assert.Empty(t, r.entries)
	a := Answer{Subject: Subject{Job: 7}, Found: Found{Entries: []Entry{Begun(noon, "")}}}
	assert.False(t, a.Known())
	assert.Empty(t, (*Recorder)(nil).Step(noon, powersave.Tick{}, nil))
	assert.Empty(t, (*Recorder)(nil).Counts(noon, nil))
}

// TestAdviceForEachClass: who adds a class says what people can do, and who adds a phase what it waits for.
func TestAdviceForEachClass(t *testing.T) {
	facts := mustRead(t, "../facts.go")
	for class := range advice {
		assert.Contains(t, facts, `= "`+class+`"`)
	}
	assert.Len(t, advice, strings.Count(facts, " Trouble = ")-1, "all but none")
	assert.Len(t, waitsFor, strings.Count(mustRead(t, "../status.go"), " Phase = ")-1, "all but registered")
	assert.Contains(t, mustRead(t, "../attempt.go"), `v.String()+"`+otherOffering+`"`, "it is what the engine says")
}

func mustRead(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
