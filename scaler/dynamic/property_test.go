package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/powersave"
)

// Whatever happens in whatever order, no promise is broken; and when nothing goes wrong any more, every job that
// can run does, and then nothing is left but the floor.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		floor := draw(3, "floor")
		w := newWorld("dyn-[0-5]", floor)
		revision := 1
		w.revise(revision)
		w.sets[0].Rolling = []*powersave.RollingUpdate{nil, {MaxUnavailable: 1}, {MaxUnavailable: 2}}[draw(3, "rolling")]
		if draw(3, "foreign") == 0 {
			w.records["dyn-2"] = &powersave.SlurmNode{Name: "dyn-2", State: powersave.NodeIdle | powersave.NodeDynamicNorm | powersave.NodeDrain, Reason: "disk", InstanceID: "other", Partitions: []string{"all"}}
		}
		pickNode := func(of []string) string {
			if len(of) == 0 {
				return ""
			}
			return of[draw(len(of), "which")]
		}
		var begun *Reading
		unknown := false
		w.watchHosts()
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(1+draw(40, "time")) * 100 * time.Millisecond)
			switch draw(21, "event") {
			case 15:
				if draw(4, "change") == 0 {
					revision = max(1, revision+2*draw(2, "back")-1)
					w.revise(revision)
				}
			case 0:
				w.submit(1 + draw(4, "nodes"))
			case 1:
				if len(w.jobs) > 0 {
					w.end(w.jobs[draw(len(w.jobs), "job")])
				}
			case 2, 3:
				w.boot(pickNode(slices.Sorted(maps.Keys(w.pods))))
			case 4:
				if name := pickNode(slices.Sorted(maps.Keys(w.pods))); name != "" && draw(4, "vanish") == 0 {
					unknown = unknown || !w.shown[w.pods[name].UID]
					w.vanish(name)
				}
			case 5:
				if pod := w.pods[pickNode(slices.Sorted(maps.Keys(w.pods)))]; pod != nil {
					switch draw(4, "trouble") {
					case 0:
						pod.Phase, pod.Trouble, pod.Reason = powersave.PodFailed, powersave.TroubleCrash, "Error"
					case 1:
						if pod.Phase == powersave.PodPending {
							pod.Trouble, pod.Reason = powersave.TroubleCapacity, "Unschedulable"
						}
					}
				}
			case 6:
				if name := pickNode(slices.Sorted(maps.Keys(w.records))); name != "" && w.mine(w.records[name]) && !w.records[name].State.Any(powersave.NodeDrain|powersave.NodeDown) {
					w.reserved[name] = "r"
				}
			case 7:
				for name := range w.reserved {
					delete(w.reserved, name)
				}
			case 8:
				w.setFloor(draw(4, "new floor"))
			case 9:
				w.planner = New(Config{Owner: owner})
				w.todo, unknown = nil, true
				w.reading, begun = nil, nil // the loop gives a new planner none of the reads of the one before
			case 10:
				w.blind = draw(4, "blind") == 0
			case 11:
				if name := pickNode(slices.Sorted(maps.Keys(w.records))); name != "" && draw(3, "wants") == 0 && !w.records[name].State.Any(powersave.NodeDrain|powersave.NodeDown) {
					w.submit(1, name)
				}
			case 12:
				w.trouble(fmt.Sprintf("h%d", draw(2, "host")), []string{"", powersave.HostCordoned, powersave.HostNotReady}[draw(3, "what")])
			case 13:
				if len(w.jobs) > 0 {
					w.suspend(w.jobs[draw(len(w.jobs), "suspended")], draw(2, "or not") == 0)
				}
			case 14:
				if name := pickNode(slices.Sorted(maps.Keys(w.records))); name != "" && !w.records[name].State.Any(powersave.NodeDrain|powersave.NodeDown) {
					j := w.submit(1)
					j.avoids, j.held = name, draw(2, "held") == 0
				}
			default:
				w.schedule()
			}
			// Reads and calls end late, and in any order.
			if draw(3, "read") > 0 {
				if begun == nil {
					begun = w.read()
				} else {
					begun.Answered, w.reading, begun = w.now, begun, nil
				}
			}
			w.step()
			for range draw(4, "calls") {
				if len(w.todo) == 0 {
					break
				}
				i := draw(len(w.todo), "call")
				a := w.todo[i]
				w.todo = slices.Delete(w.todo, i, i+1)
				fate := draw(8, "fate")
				w.carry(a, fate == 0, fate == 1)
			}
			require.Empty(t, w.broken)
		}
		w.blind, begun = false, nil
		for _, a := range w.todo {
			w.carry(a, false, false)
		}
		w.todo = nil
		clear(w.reserved)
		w.trouble("h0", "")
		w.trouble("h1", "")
		w.setFloor(floor)
		for _, pod := range w.pods {
			if pod.Phase != powersave.PodFailed {
				pod.Trouble = powersave.TroubleNone
			}
		}
		names := 6
		for _, r := range w.records {
			if w.mine(r) && r.Comment == "" && unknown {
				names-- // perhaps
			}
		}
		if w.records["dyn-2"] != nil && !w.mine(w.records["dyn-2"]) {
			names--
		}
		for _, j := range slices.Clone(w.jobs) {
			w.suspend(j, false)
			j.held = false
			if j.count > names || j.wants != "" && w.records[j.wants] == nil {
				w.end(j)
			}
		}
		for range 3 * 3600 { // breakers may be open
			w.second(true)
			for _, j := range slices.Clone(w.jobs) {
				if w.suspend(j, false); j.running && !j.suspended {
					w.end(j)
				}
			}
			if len(w.jobs) == 0 {
				break
			}
		}
		require.Empty(t, w.jobs, "every job has run: %s", w.tell())
		w.seconds(200)
		count := 0
		for _, r := range w.records {
			// A pod that went before its node was welcomed leaves a record that a planner which never saw the pod cannot know.
			if w.mine(r) && (r.Comment != "" || !unknown) {
				count++
			}
		}
		require.Len(t, w.pods, floor, "pods: %s", w.tell())
		require.Equal(t, floor, count, "records: %s", w.tell())
		for _, pod := range w.pods {
			require.True(t, w.sets[0].Rolling == nil || pod.Revision == w.sets[0].Revision, "revision: %s", w.tell())
		}
		require.Empty(t, w.broken)
	})
}

func (w *world) tell() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		text += fmt.Sprintf("record %+v\n", *w.records[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		text += fmt.Sprintf("pod %+v\n", *w.pods[name])
	}
	for _, j := range w.jobs {
		text += fmt.Sprintf("job %+v\n", *j)
	}
	for name, n := range w.planner.nodes {
		text += fmt.Sprintf("node %s %+v\n", name, *n)
	}
	for _, c := range w.planner.Counts("") {
		text += fmt.Sprintf("%+v\n", c)
	}
	return text
}
