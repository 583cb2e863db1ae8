package dynamic

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

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

// Jobs run on in a pod that somebody deletes and gives time.
func TestPodLeaves(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	j := w.submit(1)
	w.seconds(5)
	require.True(t, j.running)
	pod := w.pods["dyn-0"]
	pod.Phase, pod.Ends = powersave.PodTerminating, w.now.Add(time.Hour)
	w.seconds(60)
	require.Contains(t, w.records["dyn-0"].Reason, "pod is being deleted, jobs have until ")
	require.Equal(t, pod, w.pods["dyn-0"])
	require.Equal(t, 1, w.running(), "its job has time")

	w.end(j)
	w.vanish("dyn-0")
	w.seconds(60)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

// While Kubernetes cannot be read all pods are taken to be as they were.
func TestBlind(t *testing.T) {
	w := newWorld("dyn-[0-3]", 2)
	w.seconds(8)
	require.Equal(t, 2, w.planner.Counts("")[0].Ready)
	w.blind = true
	w.also = func(f *Facts) { f.Pods = nil }
	w.seconds(60)
	require.Equal(t, 2, w.planner.Counts("")[0].Ready)
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
	for len(w.planner.Counts("")[0].Breakers) == 0 || len(w.pods) > 0 {
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
