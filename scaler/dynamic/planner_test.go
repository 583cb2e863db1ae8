package dynamic

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

func TestLife(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	w.seconds(5)
	require.Empty(t, w.pods, "nobody needs a node")
	w.submit(1)
	j3 := w.submit(3)
	w.second(true)
	require.Empty(t, w.pods, "demand is new: more may come")
	w.seconds(6)
	assert.Len(t, w.pods, 4)
	assert.Equal(t, 2, w.running())
	for name, r := range w.records {
		assert.Equal(t, owner+"dyn, pod "+w.pods[name].UID, r.Comment)
		assert.True(t, w.pods[name].Busy, "nobody may evict it")
	}
	w.end(j3)
	w.seconds(20)
	assert.Len(t, w.pods, 4, "not idle for long enough")
	w.seconds(20)
	assert.Len(t, w.pods, 1, "the one with a job")
	assert.Len(t, w.records, 1)
	w.end(w.jobs[0])
	w.seconds(50)
	assert.Empty(t, w.pods)
	assert.Empty(t, w.records)
	assert.Equal(t, 4, w.created)
	assert.Empty(t, w.broken)
}

// Whole jobs or nothing, and never more than there are names.
func TestWholeJobs(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	w.submit(11)
	w.seconds(20)
	assert.Empty(t, w.pods, "no NodeSet can run it")
	w.submit(8)
	w.submit(8)
	w.submit(2)
	w.seconds(20)
	assert.Len(t, w.pods, 10)
	assert.Equal(t, 2, w.running())
	assert.Equal(t, 10, w.created)
}

func TestBatch(t *testing.T) {
	w := newWorld("dyn-[0-99]", 0)
	for range 8 { // one job a second
		w.submit(1)
		w.second(false)
		require.Empty(t, w.pods)
	}
	for range 3 {
		w.submit(1)
		w.second(false)
	}
	assert.Len(t, w.pods, 11, "but not for ever")
}

func TestFloor(t *testing.T) {
	w := newWorld("dyn-[0-9]", 2)
	w.seconds(3)
	require.Len(t, w.pods, 2)
	j := w.submit(3)
	w.seconds(6)
	require.Len(t, w.pods, 3)
	w.end(j)
	w.seconds(60)
	require.Len(t, w.pods, 2, "the floor stays")
	w.setFloor(5)
	w.seconds(3)
	require.Len(t, w.pods, 5)
	require.Equal(t, &powersave.FloorCounts{Wanted: 5, Held: 5}, w.planner.Counts("")[0].Floor)
	w.setFloor(0)
	w.submit(1)
	w.seconds(60)
	require.Len(t, w.pods, 1, "lowered: idle ones go")
	require.Equal(t, 1, w.running())
	require.Empty(t, w.broken)
}

func (w *world) setFloor(n int) {
	w.sets[0].Floor = n
	w.sets[0].SpecGeneration++
}

func TestNamed(t *testing.T) {
	w := newWorld("dyn-[0-3]", 2)
	w.seconds(3)
	w.reserved["dyn-1"] = "maintenance"
	w.setFloor(0)
	for range 120 {
		w.second(true)
		require.False(t, w.records["dyn-1"].State.Any(powersave.NodeDrain), "not even for a moment")
	}
	assert.Contains(t, w.pods, "dyn-1", "a reservation has it")
	assert.NotContains(t, w.pods, "dyn-0")
	w.vanish("dyn-1")
	w.seconds(60)
	assert.Contains(t, w.records, "dyn-1", "the reservation would lose it")
	assert.True(t, w.records["dyn-1"].State.Has(powersave.NodeDrain), "no job may get a node without a pod")
	delete(w.reserved, "dyn-1")
	w.seconds(60)
	assert.Empty(t, w.records)
	assert.Empty(t, w.broken)
}

// A job that names a node which is no more gets it back.
func TestNamedByPendingJob(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	first := w.submit(2)
	w.seconds(8)
	require.Equal(t, 1, w.running())
	w.submit(1, "dyn-1")
	w.vanish("dyn-1")
	w.seconds(40)
	assert.Empty(t, w.broken)
	if first.running {
		w.end(first)
	}
	w.seconds(120)
	assert.Equal(t, 1, w.running())
	assert.Equal(t, []string{"dyn-1"}, w.jobs[len(w.jobs)-1].on)
}

// A job that comes while a node is being drained gets it.
func TestDrainedInVain(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	for !slices.ContainsFunc(w.todo, isDrain) { // until it wants to drain
		for _, a := range w.todo {
			w.carry(a, false, false)
		}
		w.todo = nil
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		require.Less(t, w.now.Sub(start), 5*time.Minute)
	}
	w.submit(1)
	w.schedule()
	require.Equal(t, 1, w.running())
	uid := w.pods["dyn-0"].UID
	w.seconds(30)
	assert.Equal(t, uid, w.pods["dyn-0"].UID)
	assert.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
	assert.Empty(t, w.broken)
}

func isDrain(a Action) bool {
	u, ok := a.(Update)
	return ok && u.State == powersave.StateDrain
}

func (w *world) startOne(t *testing.T) *job {
	t.Helper()
	j := w.submit(1)
	w.seconds(8)
	require.True(t, j.running)
	return j
}

// A drained node whose pod still runs is put back rather than replaced.
func TestNeededAgain(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	for !w.records["dyn-0"].State.Any(powersave.NodeDrain) {
		w.second(true)
	}
	uid := w.pods["dyn-0"].UID
	j := w.submit(1)
	w.seconds(6)
	assert.True(t, j.running)
	assert.Equal(t, uid, w.pods["dyn-0"].UID)
	assert.Equal(t, 1, w.created)
}

func TestBootFails(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	w.submit(3)
	for range 4 {
		w.second(false)
	}
	require.Len(t, w.pods, 3)
	for _, p := range w.pods {
		p.Trouble, p.Reason, p.Message = powersave.TroubleCapacity, "Unschedulable", "0/5 nodes are available"
	}
	for range 15 {
		w.second(false)
	}
	assert.Empty(t, w.pods, "all of them are given back")
	counts := w.planner.Counts("")
	require.Len(t, counts[0].Breakers, 1)
	assert.Equal(t, []string{"all"}, counts[0].Partitions)
	assert.Equal(t, powersave.BreakerOpen, counts[0].Breakers[0].State)
	assert.Contains(t, counts[0].Breakers[0].Reason, "0/5 nodes are available")
	made := w.created
	for range 30 {
		w.second(false)
	}
	assert.Equal(t, made, w.created, "it rests")
	for range 40 {
		w.second(false)
	}
	assert.Equal(t, made+1, w.created, "one pod tries it")
	w.seconds(10)
	assert.Equal(t, 1, w.running())
	assert.Equal(t, made+3, w.created)
	assert.Empty(t, w.planner.Counts("")[0].Breakers)
	assert.Empty(t, w.broken)
}

func TestNeverRegisters(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0, func(s *powersave.NodeSet) { s.Deadline = time.Minute })
	w.submit(1)
	for range 50 {
		w.second(false)
	}
	require.Len(t, w.pods, 1)
	for range 240 {
		w.second(false)
	}
	c := w.planner.Counts("")[0]
	require.NotEmpty(t, c.Breakers)
	assert.Equal(t, powersave.TroubleBootstrap, c.Breakers[0].Class)
	assert.Equal(t, "slurmd did not register by the deadline", c.Breakers[0].Reason)
}

// slurmctld takes no node that offers less than it says.
func TestRefused(t *testing.T) {
	for name, own := range map[string]powersave.NodeState{"drained by slurmctld": powersave.NodeDrain, "and not": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-9]", 0)
			w.submit(1)
			for range 60 {
				w.second(true)
				for _, r := range w.records {
					if !r.State.Any(powersave.NodeInvalidReg) {
						r.State |= powersave.NodeInvalidReg | own
						r.Reason = "gres/gpu count reported lower than configured"
					}
				}
				if len(w.planner.Counts("")[0].Breakers) > 0 {
					break
				}
			}
			require.NotEmpty(t, w.planner.Counts("")[0].Breakers)
			assert.Equal(t, powersave.TroubleRefused, w.planner.Counts("")[0].Breakers[0].Class)
			assert.Contains(t, w.planner.Counts("")[0].Breakers[0].Reason, "gres/gpu count")
			assert.Empty(t, w.broken)
		})
	}
}

// Nothing is taken down while one side cannot be read.
func TestOldReads(t *testing.T) {
	for name, blind := range map[string]bool{"Slurm": false, "Kubernetes": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-0", 0)
			w.end(w.startOne(t))
			w.seconds(2)
			w.blind = blind
			for range 200 {
				w.now = w.now.Add(time.Second)
				if blind {
					w.reading = w.read()
				}
				w.step()
				assert.Empty(t, w.todo)
			}
			w.blind = false
			w.seconds(60)
			assert.Empty(t, w.pods)
			assert.Empty(t, w.records)
		})
	}
}

// What is not ours is left alone, and counts for nothing.
func TestOthers(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.records["dyn-0"] = &powersave.SlurmNode{Name: "dyn-0", State: powersave.NodeIdle | powersave.NodeDynamicNorm | powersave.NodeDrain, Reason: "disk", InstanceID: "other", Partitions: []string{"all"}}
	w.submit(3)
	w.submit(4)
	w.seconds(20)
	assert.Equal(t, 1, w.running())
	assert.Len(t, w.pods, 3)
	w.end(w.jobs[0])
	w.end(w.jobs[0])
	w.seconds(60)
	assert.Empty(t, w.pods)
	assert.Len(t, w.records, 1)
	assert.Empty(t, w.broken)
}

func TestAdministratorsDrain(t *testing.T) {
	w := newWorld("dyn-[0-3]", 1)
	w.seconds(4)
	r := w.records["dyn-0"]
	r.State |= powersave.NodeDrain
	r.Reason = "bad fan"
	w.seconds(200)
	assert.Contains(t, w.pods, "dyn-0")
	assert.Equal(t, "bad fan", w.records["dyn-0"].Reason)
}

// After a restart all that must be known stands in Slurm and Kubernetes.
func TestRestart(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j := w.startOne(t)
	w.planner = New(Config{Owner: owner})
	w.seconds(5)
	assert.Len(t, w.pods, 1)
	w.end(j)
	for !w.records["dyn-0"].State.Any(powersave.NodeDrain) {
		w.second(true)
	}
	w.planner = New(Config{Owner: owner})
	for len(w.pods) > 0 { // drained by the one before
		w.second(true)
	}
	w.planner = New(Config{Owner: owner})
	w.seconds(5)
	assert.Len(t, w.records, 1, "nobody saw the pod go")
	w.seconds(15)
	assert.Empty(t, w.records)
}

func TestPodLost(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j := w.startOne(t)
	w.vanish("dyn-0")
	w.seconds(5)
	assert.True(t, j.running)
	assert.Equal(t, []string{"dyn-0"}, j.on, "one sighting is none")
	assert.Equal(t, 1, w.created)
	w.seconds(20)
	assert.True(t, j.running, "requeued, and started again")
	require.Len(t, w.pods, 1)
	assert.Equal(t, w.pods[j.on[0]].UID, w.records[j.on[0]].InstanceID)
	assert.Empty(t, w.broken)
}

// A pod that goes before its node is welcomed leaves a record without our comment. What is read later than that has to show it
// before the name is used again, or nobody would know whose it is.
func TestGoneBeforeWelcome(t *testing.T) {
	for name, next := range map[string]func(*world, Action){
		"its next pod is not made": func(w *world, a Action) { w.carry(a, true, false) },
		"its next pod is made, and the answer lost": func(w *world, a Action) {
			w.carry(a, false, true)
			w.vanish("dyn-0")
		},
		"its next pod does not register": func(w *world, a Action) {
			w.carry(a, false, false)
			w.step()
			w.vanish("dyn-0")
			w.step()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-0", 1)
			w.second(false)
			w.step()
			require.Contains(t, w.pods, "dyn-0")
			w.reading = w.read() // which does not have the record yet
			w.boot("dyn-0")
			w.vanish("dyn-0")
			w.step()
			assert.Empty(t, w.todo, "nothing read since tells of the name")
			for w.sets[0].Floor > 0 {
				require.Less(t, w.now.Sub(start), time.Minute)
				todo := w.todo
				w.todo = nil
				for _, a := range todo {
					if _, ok := a.(CreatePod); ok {
						next(w, a)
						w.setFloor(0)
						continue
					}
					w.carry(a, false, false)
				}
				w.now = w.now.Add(2 * time.Second)
				w.step() // the next read takes longer than the rest after a failure
				w.reading = w.read()
				w.step()
			}
			w.seconds(60)
			assert.Empty(t, w.pods)
			assert.Empty(t, w.records)
			assert.Empty(t, w.broken)
		})
	}
}

// A job that is just ending counts as one.
func TestCompleting(t *testing.T) {
	w := newWorld("dyn-0", 0)
	w.end(w.startOne(t))
	for !w.records["dyn-0"].State.Any(powersave.NodeDrain) {
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			w.carry(a, false, false)
		}
		w.todo = nil
	}
	w.records["dyn-0"].State |= powersave.NodeCompleting
	w.seconds(60)
	require.Len(t, w.pods, 1)
	w.records["dyn-0"].State &^= powersave.NodeCompleting
	w.seconds(20)
	assert.Empty(t, w.records)
}

// Idle nodes that pending jobs are about to take stay.
func TestAboutToBeTaken(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	first := w.submit(3)
	w.seconds(8)
	require.True(t, first.running)
	w.end(first)
	w.submit(2)
	for range 60 { // slurmctld is slow
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			w.carry(a, false, false)
		}
		w.todo = nil
	}
	assert.Len(t, w.pods, 2)
	w.seconds(2)
	assert.Equal(t, 1, w.running())
	assert.Equal(t, 3, w.created)
}

func TestNamesRemoved(t *testing.T) {
	w := newWorld("dyn-[0-3]", 2)
	w.seconds(5)
	require.Contains(t, w.pods, "dyn-1")
	other := newWorld("dyn-[0,2-3]", 2)
	w.sets[0].Nodes = other.sets[0].Nodes
	w.sets[0].SpecGeneration++
	w.seconds(15)
	assert.NotContains(t, w.pods, "dyn-1")
	assert.NotContains(t, w.records, "dyn-1")
	assert.Len(t, w.pods, 2)
	assert.Empty(t, w.broken)
}

func BenchmarkStep(b *testing.B) {
	w := newWorld("dyn-[0-4999]", 5000)
	w.seconds(5)
	if len(w.records) != 5000 {
		b.Fatal(len(w.records))
	}
	for range 1000 {
		w.submit(1)
	}
	f := Facts{Sets: w.sets, Asked: w.asked}
	for _, p := range w.pods {
		f.Pods = append(f.Pods, *p)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := w.read()
		f.Slurm, f.Asked = r, r.Number
		w.planner.Step(w.now, f)
	}
}

// TestPartitions: a NodeSet that does not say so is in partitions with Nodes=ALL, and in those with the line of slurm.conf that a Controller writes for it.
func TestPartitions(t *testing.T) {
	all := []scaler.Partition{{Name: "cpu", NodeSets: []string{"cpu"}}, {Name: "all", AllNodes: true}, {Name: "dyn", NodeSets: []string{"dyn"}}, {Name: "both", NodeSets: []string{"cpu", "dyn"}}}
	assert.Equal(t, []string{"all", "dyn", "both"}, partitionsOf("dyn", &powersave.Dynamic{Features: []string{"big", "dyn"}}, all))
	assert.Equal(t, []string{"all"}, partitionsOf("dyn", &powersave.Dynamic{Features: []string{"big"}}, all), "its nodes are not found by their feature")
	assert.Equal(t, []string{"cpu"}, partitionsOf("dyn", &powersave.Dynamic{Features: []string{"dyn"}, Partitions: []string{"cpu"}}, all), "it says so")
}
