package dynamic

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// What people, and slurmctld, say of nodes.

// A slurmd that hangs is replaced, also when a reservation or a job names its node, and without a change of mind at each read.
func TestSilentAndNamed(t *testing.T) {
	for name, reserved := range map[string]bool{"by a reservation": true, "by a job": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 1)
			w.seconds(4)
			uid := w.pods["dyn-0"].UID
			j := w.submit(1, "dyn-0")
			if reserved {
				w.end(j)
				w.reserved["dyn-0"] = "later"
			}
			w.records["dyn-0"].State |= powersave.NodeNotResponding
			updates := w.updates
			w.seconds(150)
			require.Less(t, w.updates-updates, 8)
			require.NotContains(t, w.podUIDs(), uid)
			require.Contains(t, w.records, "dyn-0")
			if !reserved {
				require.Equal(t, 1, w.running())
			}
			require.Empty(t, w.broken)
		})
	}
}

func (w *world) podUIDs() (uids []string) {
	for _, p := range w.pods {
		uids = append(uids, p.UID)
	}
	return uids
}

// Nodes that somebody has taken out of use stay as they are, whoever plans.
func TestSomebodyElses(t *testing.T) {
	for name, state := range map[string]powersave.NodeState{
		"down":               powersave.NodeDown,
		"drained":            powersave.NodeIdle | powersave.NodeDrain,
		"drained and silent": powersave.NodeIdle | powersave.NodeDrain | powersave.NodeNotResponding,
		"failing":            powersave.NodeIdle | powersave.NodeFail,
		"failing and silent": powersave.NodeIdle | powersave.NodeFail | powersave.NodeNotResponding,
	} {
		for when, restart := range map[string]bool{"": false, ", and a new planner": true} {
			t.Run(name+when, func(t *testing.T) {
				w := newWorld("dyn-[0-3]", 0)
				w.end(w.startOne(t))
				r := w.records["dyn-0"]
				r.State, r.Reason = state|powersave.NodeDynamicNorm, "maintenance"
				w.seconds(400)
				if restart {
					w.planner = New(Config{Owner: owner})
				}
				w.seconds(400)
				require.Contains(t, w.pods, "dyn-0")
				require.Equal(t, "maintenance", r.Reason)
				require.Equal(t, state|powersave.NodeDynamicNorm, r.State)
				require.Empty(t, w.planner.Counts()[0].Breakers, "it did boot")
			})
		}
	}
}

// For the floor another one takes the place of such a node, as far as maxPoweredUp lets it.
func TestFloorReplaces(t *testing.T) {
	for name, tc := range map[string]struct{ most, want int }{"": {0, 3}, "capped": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 2, func(s *powersave.NodeSet) { s.MaxPoweredUp = tc.most })
			w.seconds(5)
			require.Len(t, w.pods, 2)
			w.records["dyn-0"].State |= powersave.NodeDrain
			w.records["dyn-0"].Reason = "bad fan"
			w.seconds(20)
			require.Len(t, w.pods, tc.want)
			floor := w.planner.Counts()[0].Floor
			if tc.most > 0 {
				require.Equal(t, powersave.FloorCapped, floor.Why)
			} else {
				require.Equal(t, &powersave.FloorCounts{Wanted: 2, Held: 2}, floor)
			}
			w.records["dyn-0"].State &^= powersave.NodeDrain
			w.seconds(60)
			require.Len(t, w.pods, 2)
		})
	}
}

func TestFloorWithoutNames(t *testing.T) {
	w := newWorld("dyn-0", 1)
	w.seconds(5)
	w.records["dyn-0"].State |= powersave.NodeDrain
	w.records["dyn-0"].Reason = "bad fan"
	w.seconds(5)
	require.Equal(t, powersave.FloorNoNodes, w.planner.Counts()[0].Floor.Why)
}

// Who is not wanted keeps no node up, only its record.
func TestExcluded(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 3))
	j := w.submit(1)
	j.avoids, j.held = "dyn-1", true
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Contains(t, w.records, "dyn-1", "slurmctld would end the job when it is started again")
	require.Len(t, w.records, 1)

	// Such a record is used again, once other names are.
	all := w.submit(4)
	w.seconds(10)
	require.True(t, all.running)
	w.end(all)
	w.end(j)
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

func (w *world) submitAndRun(t *testing.T, nodes int) *job {
	t.Helper()
	j := w.submit(nodes)
	w.seconds(8)
	require.True(t, j.running)
	return j
}

// A job that may not run yet keeps no node up either.
func TestHeldJobNames(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 3))
	j := w.submit(1, "dyn-1")
	j.held = true
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Len(t, w.records, 1)
	j.held = false
	w.seconds(10)
	require.True(t, j.running)
	require.Equal(t, []string{"dyn-1"}, j.on)
	require.Empty(t, w.broken)
}

// slurmctld refuses a slurmd that offers less than its record says.
func TestRecordOfAnotherShape(t *testing.T) {
	for name, tc := range map[string]struct {
		cpus   int
		memory int64
		want   bool
	}{
		"the same":    {2, 1000, true},
		"less":        {1, 500, true},
		"more CPUs":   {4, 1000, false},
		"more memory": {2, 2000, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 0)
			w.end(w.startOne(t))
			keep := w.submit(1)
			keep.avoids, keep.held = "dyn-0", true
			w.seconds(60)
			require.Empty(t, w.pods)
			w.records["dyn-0"].CPUs, w.records["dyn-0"].RealMemory = tc.cpus, tc.memory
			w.submit(1, "dyn-0")
			w.seconds(20)
			require.Equal(t, tc.want, len(w.pods) == 1)
		})
	}
}

// Pods that were left when their NodeSet went are nobody's in the end.
func TestNodeSetGone(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j := w.submitAndRun(t, 2)
	other := newWorld("other-[0-3]", 0, func(s *powersave.NodeSet) { s.Name, s.UID = "other", "other" })
	w.sets = other.sets
	w.seconds(400)
	require.Len(t, w.pods, 2, "with a job")
	w.end(j)
	w.seconds(400)
	require.Empty(t, w.pods)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

// The node that a job names is made, and no other that somebody names.
func TestAskedByName(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 4))
	not := w.submit(1)
	not.avoids, not.held = "dyn-0,dyn-1,dyn-2,dyn-3", true
	for _, name := range []string{"dyn-0", "dyn-1", "dyn-2", "dyn-3"} {
		w.vanish(name)
	}
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Len(t, w.records, 4)
	w.submit(1, "dyn-3")
	made := w.created
	w.seconds(10)
	require.Equal(t, 1, w.running())
	require.Equal(t, made+1, w.created)
}

// A record that slurmctld set down while nobody looked is used again for the job that names it.
func TestDownByItself(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.startOne(t))
	w.vanish("dyn-0")
	r := w.records["dyn-0"]
	r.State, r.Reason = powersave.NodeDown|powersave.NodeDynamicNorm, "Not responding"
	j := w.submit(1, "dyn-0")
	w.planner = New(Config{Owner: owner})
	w.seconds(30)
	require.True(t, j.running)
	require.Empty(t, w.broken)
}

// A list that cannot be read may name anything.
func TestUnreadableList(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.startOne(t))
	j := w.submit(1, "dyn-[0-")
	j.held = true
	w.seconds(100)
	require.Contains(t, w.pods, "dyn-0")
	require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
	w.vanish("dyn-0")
	w.seconds(100)
	require.Contains(t, w.records, "dyn-0")
	warned := 0
	for _, r := range w.reports {
		if r.Warning && r.Node == "" {
			warned++
			require.Contains(t, r.Text, "nothing is taken down: the nodes of job 2 cannot be read: hostlist: ")
		}
	}
	require.Equal(t, 1, warned)
	w.end(j)
	w.seconds(60)
	require.Empty(t, w.records)
}

// Jobs whose pods are lost.

// No further job comes to a node whose pod has gone; that it has is known before it is set down.
func TestDrainedBeforeDown(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"gone":  func(w *world) { w.vanish("dyn-0") },
		"ended": func(w *world) { w.pods["dyn-0"].Phase = powersave.PodFailed },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-0", 0)
			j := w.startOne(t)
			w.records["dyn-0"].State ^= powersave.NodeAllocated | powersave.NodeMixed
			lose(w)
			w.seconds(3)
			require.True(t, w.records["dyn-0"].State.Has(powersave.NodeDrain|powersave.NodeMixed), "%v", w.records["dyn-0"].State)
			require.Equal(t, []string{"dyn-0"}, j.on)
		})
	}
}

// What slurmctld waits for on a node that is gone ends before SlurmdTimeout.
func TestLostWithoutRunning(t *testing.T) {
	for name, lose := range map[string]func(*world, *job){
		"completing": func(w *world, j *job) {
			w.end(j)
			w.records["dyn-0"].State |= powersave.NodeCompleting
		},
		"suspended": func(w *world, j *job) { w.suspend(j, true) },
	} {
		for how, end := range map[string]func(*world){
			"gone":  func(w *world) { w.vanish("dyn-0") },
			"ended": func(w *world) { w.pods["dyn-0"].Phase = powersave.PodFailed },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld("dyn-0", 0)
				j := w.startOne(t)
				lose(w, j)
				w.seconds(5)
				end(w)
				w.seconds(60)
				if len(w.jobs) > 0 {
					require.Equal(t, 1, w.running())
					require.False(t, j.suspended, "requeued")
					require.Equal(t, 2, w.created)
				} else {
					require.Empty(t, w.records)
				}
				require.Empty(t, w.broken)
			})
		}
	}
}

// A suspended job leaves its nodes idle, as slurmctld shows them.
func TestSuspended(t *testing.T) {
	w := newWorld("dyn-0", 0)
	j := w.startOne(t)
	w.suspend(j, true)
	w.seconds(100)
	require.Contains(t, w.pods, "dyn-0")
	w.suspend(j, false)
	w.end(j)
	w.seconds(60)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

// It does not count for those that pending jobs are about to take.
func TestSuspendedBesideIdle(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j, other := w.submit(1), w.submit(1)
	w.seconds(8)
	w.suspend(j, true)
	w.end(other)
	w.submit(1)
	uid := w.pods[other.on[0]].UID
	updates := w.updates
	for range 60 { // slurmctld is slow
		w.late(0)
	}
	require.Equal(t, updates, w.updates, "not even for a moment")
	w.seconds(2)
	require.Equal(t, 2, w.running())
	require.Contains(t, w.podUIDs(), uid)
}

// late is a second in which slurmctld starts no jobs, and what it says of itself is so old.
func (w *world) late(by time.Duration) {
	w.now = w.now.Add(time.Second)
	w.reading = w.read()
	w.reading.Answered = w.now.Add(-by)
	w.step()
	for _, a := range w.todo {
		w.carry(a, false, false)
	}
	w.todo = nil
}

// What states tell of, lists may not tell of yet.
func TestSpokenFor(t *testing.T) {
	for name, state := range map[string]powersave.NodeState{"reserved": powersave.NodeReserved, "in maintenance": powersave.NodeMaintenance, "planned": powersave.NodePlanned} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-0", 0)
			w.end(w.startOne(t))
			w.vanish("dyn-0")
			w.records["dyn-0"].State |= state
			w.seconds(60)
			require.Contains(t, w.records, "dyn-0")
			w.records["dyn-0"].State &^= state
			w.seconds(30)
			require.Empty(t, w.records)
		})
	}
}

// A read that comes late takes nothing down.
func TestLateReads(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j := w.startOne(t)
	w.vanish("dyn-0")
	w.end(w.submitAndRun(t, 2))
	for _, r := range w.records {
		if w.pods[r.Name] != nil && r.State.Any(powersave.NodeIdle) {
			r.State |= powersave.NodeDrain
			r.Reason = "slurmtide: idle for 30s"
		}
	}
	require.True(t, j.running)
	pods, records, on := len(w.pods), len(w.records), j.on
	w.submit(2)
	for range 100 {
		w.late(6 * time.Second)
	}
	require.Len(t, w.pods, pods)
	require.Len(t, w.records, records)
	require.Equal(t, on, j.on)
}

// What was read before an answer does not tell what came of it.
func TestReadBeforeAnswer(t *testing.T) {
	w := newWorld("dyn-0", 1)
	w.seconds(5)
	r := w.records["dyn-0"]
	r.State |= powersave.NodeDrain
	r.Reason = "slurmtide: idle for 30s"
	w.reserved["dyn-0"] = "r"
	w.now = w.now.Add(time.Second)
	w.reading = w.read()
	w.step()
	require.Len(t, w.todo, 1, "it is put back for the reservation")
	delete(w.reserved, "dyn-0")
	old := w.read()
	w.carry(w.todo[0], false, false)
	w.todo = nil
	old.Answered, w.reading = w.now, old
	w.step()
	require.Empty(t, w.todo)
	w.seconds(5)
	require.False(t, r.State.Any(powersave.NodeDrain))
	require.Equal(t, 1, w.created)
}

// Nor does what was read before a pod was seen tell that nobody uses it.
func TestReadBeforePod(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.now = w.now.Add(time.Second)
	w.reading = w.read()
	w.step()
	w.pods["dyn-0"] = &powersave.Pod{Node: "dyn-0", NodeSet: "dyn", UID: "uid-other1", Phase: powersave.PodPending, Created: w.now.Add(-time.Hour), Dynamic: true}
	w.step()
	require.Empty(t, w.todo, "it may have registered since")
	w.reading = w.read()
	w.step()
	require.Len(t, w.todo, 1)
	require.IsType(t, DeletePod{}, w.todo[0])
}

// When Slurm is to be read soon.
func TestHurry(t *testing.T) {
	w := newWorld("dyn-[0-3]", 1)
	w.seconds(8)
	require.False(t, w.planner.Hurry(), "all is well")
	w.vanish("dyn-0")
	w.step()
	require.True(t, w.planner.Hurry(), "its name can be used when Slurm has been read")
	w.seconds(20)
	require.False(t, w.planner.Hurry())

	w = newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	for !w.records["dyn-0"].State.Any(powersave.NodeDrain) {
		require.False(t, w.planner.Hurry(), "it is idle")
		w.second(true)
	}
	w.step()
	require.True(t, w.planner.Hurry(), "its pod goes when Slurm shows it drained")

	w = newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	w.pods["dyn-0"].Phase = powersave.PodTerminating
	w.seconds(5)
	require.True(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
	require.True(t, w.planner.Hurry(), "it is about to end")
	w.seconds(40)
	require.False(t, w.planner.Hurry(), "its host does not answer")
}

// While Kubernetes cannot be read all pods are taken to be as they were.
func TestBlind(t *testing.T) {
	w := newWorld("dyn-[0-3]", 2)
	w.seconds(8)
	require.Equal(t, 2, w.planner.Counts()[0].Ready)
	w.blind = true
	w.also = func(f *Facts) { f.Pods = nil }
	w.seconds(60)
	require.Equal(t, 2, w.planner.Counts()[0].Ready)
	w.blind, w.also = false, nil
	w.seconds(60)
	require.Equal(t, 2, w.created)
}

// Kubernetes.

// A probe whose pod nobody ever saw does not keep the NodeSet shut.
func TestProbeNeverSeen(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	w.submit(1)
	for range 4 {
		w.second(false)
	}
	require.Len(t, w.pods, 1)
	for name, p := range w.pods {
		p.Trouble, p.Reason = powersave.TroubleCapacity, "Unschedulable"
		require.Equal(t, "dyn-0", name)
	}
	for len(w.planner.Counts()[0].Breakers) == 0 || len(w.pods) > 0 {
		w.second(false)
	}
	made := w.created
	for w.created == made { // the probe
		w.second(false)
		require.Less(t, w.now.Sub(start), 5*time.Minute)
	}
	require.Len(t, w.pods, 1)
	for name := range w.pods {
		w.vanish(name)
	}
	w.seconds(90)
	require.Equal(t, 1, w.running())
}

// Somebody made another pod of the name while ours was being deleted.
func TestReplacedWhileDeleted(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	isDelete := func(a Action) bool { _, ok := a.(DeletePod); return ok }
	for !slices.ContainsFunc(w.todo, isDelete) {
		for _, a := range w.todo {
			w.carry(a, false, false)
		}
		w.todo = nil
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		require.Less(t, w.now.Sub(start), 5*time.Minute)
	}
	w.todo = nil
	other := *w.pods["dyn-0"]
	other.UID, other.Phase, other.Created = "uid-other1", powersave.PodPending, w.now
	w.pods["dyn-0"] = &other
	w.seconds(120)
	require.Empty(t, w.pods)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

// A mark that failed is made again: without it whoever empties hosts may take the pod away.
func TestMarkedAgain(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.submit(1)
	failed := false
	for range 60 {
		w.now = w.now.Add(time.Second)
		w.schedule()
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			_, mark := a.(MarkPod)
			w.carry(a, mark && !failed, false)
			failed = failed || mark
		}
		w.todo = nil
		w.boot("dyn-0")
	}
	require.True(t, failed)
	require.True(t, w.pods["dyn-0"].Busy)
}

// A slurmd that slurmctld does not know to be the pod's (it was put back by hand while it booted) may get a job at any moment: the boot
// is given up only when none can come.
func TestRegisteredUnderAnotherID(t *testing.T) {
	w := newWorld("dyn-0", 0, func(s *powersave.NodeSet) { s.Deadline = time.Minute })
	first := w.startOne(t)
	w.vanish("dyn-0")
	w.end(first)
	j := w.submit(1, "dyn-0")
	for w.pods["dyn-0"] == nil {
		w.second(false)
	}
	r := w.records["dyn-0"]
	require.True(t, r.State.Any(powersave.NodeDrain))
	r.State = powersave.NodeIdle | powersave.NodeDynamicNorm
	r.Reason = ""
	j.held = true
	uid := w.pods["dyn-0"].UID
	for w.pods["dyn-0"] != nil && w.pods["dyn-0"].UID == uid {
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			if _, ok := a.(DeletePod); ok {
				require.True(t, r.State.Any(powersave.NodeDrain), "a job may come")
			}
			w.carry(a, false, false)
		}
		w.todo = nil
		require.Less(t, w.now.Sub(start), 5*time.Minute)
	}
	require.Empty(t, w.broken)
}

func TestMayGo(t *testing.T) {
	const idle, drained, allocated = powersave.NodeIdle, powersave.NodeIdle | powersave.NodeDrain, powersave.NodeAllocated
	for name, tc := range map[string]struct {
		state powersave.NodeState
		id    string
		want  bool
	}{
		"idle":                         {idle, "uid", false},
		"drained":                      {drained, "uid", true},
		"down":                         {powersave.NodeDown, "uid", true},
		"draining":                     {allocated | powersave.NodeDrain, "uid", false},
		"completing":                   {drained | powersave.NodeCompleting, "uid", false},
		"another's, idle":              {idle, "other", true},
		"another's, with a job":        {allocated, "other", false},
		"another's, with parts of one": {powersave.NodeMixed, "other", false},
		"nobody's, completing":         {idle | powersave.NodeCompleting, "", false},
	} {
		assert.Equal(t, tc.want, MayGo(powersave.SlurmNode{State: tc.state, InstanceID: tc.id}, "uid"), name)
	}
}

func TestMayForget(t *testing.T) {
	const drained = powersave.NodeIdle | powersave.NodeDrain
	for name, tc := range map[string]struct {
		state powersave.NodeState
		id    string
		want  bool
	}{
		"drained":                {drained, "uid", true},
		"down":                   {powersave.NodeDown, "uid", true},
		"idle":                   {powersave.NodeIdle, "uid", false},
		"with a job":             {powersave.NodeAllocated | powersave.NodeDrain, "uid", false},
		"completing":             {drained | powersave.NodeCompleting, "uid", false},
		"reserved":               {drained | powersave.NodeReserved, "uid", false},
		"another has registered": {drained, "other", false},
	} {
		assert.Equal(t, tc.want, DeleteRecord{Node: "n", InstanceID: "uid"}.MayForget(powersave.SlurmNode{State: tc.state, InstanceID: tc.id}), name)
	}
}
