package powersave_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Whatever Slurm shows: what is asked of nodes for a floor, or for jobs to come, is fit for what the read shows that it follows.
func TestFloorAsksForWhatIsFit(t *testing.T) {
	const nodes = 6
	states := []powersave.NodeState{
		powersave.NodeIdle | powersave.NodeCloud, powersave.NodeIdle | powersave.NodeCloud | powersave.NodePlanned,
		powersave.NodeAllocated | powersave.NodeCloud, powersave.NodeMixed | powersave.NodeCloud, powersave.NodeIdle | powersave.NodeCompleting,
		powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown, powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown,
		powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown | powersave.NodePowerUp, powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweringUp,
		powersave.NodeAllocated | powersave.NodeCloud | powersave.NodePoweredDown, powersave.NodeMixed | powersave.NodeCloud | powersave.NodePoweredDown,
		powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweringDown, powersave.NodeIdle | powersave.NodeCloud | powersave.NodePowerDown,
		powersave.NodeIdle | powersave.NodeCloud | powersave.NodeDrain, powersave.NodeDown | powersave.NodeCloud,
		powersave.NodeIdle | powersave.NodeCloud | powersave.NodeNotResponding, powersave.NodeIdle | powersave.NodeCloud | powersave.NodeMaintenance,
	}
	changes := map[powersave.StateChange]powersave.NodeState{powersave.StatePowerUp: powersave.NodePowerUp, powersave.StatePowerDown: powersave.NodePowerDown}
	counts := map[powersave.StateChange]int{}
	property := func(t *rapid.T) {
		e := powersave.New(powersave.Config{Alone: true})
		now := epoch
		shown := map[string]powersave.SlurmNode{} // what is known: by the newest read, and what was done since it was asked for
		wish, wishUntil := 0, epoch
		floor, most, lowered := 0, 0, 0 // lowered: by how much, since all was powered down for it
		keep := func() int {
			if most > 0 {
				return min(floor, most)
			}
			return floor
		}
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprintf("cpu-%d", i))
		}
		var pending []powersave.NodeUpdate
		reading := false
		asked := map[string]powersave.StateChange{} // of nodes, and not answered yet
		stale := map[string]bool{}                  // the read under way was asked for before they were changed
		step := func(ev powersave.Event) {
			for _, a := range e.Step(now, ev) {
				switch a := a.(type) {
				case powersave.ReadSlurm:
					reading = true
				case powersave.UpdateNodes:
					u := a.Update
					if u.State != powersave.StatePowerUp && u.State != powersave.StatePowerDown && u.State != powersave.StateRenew {
						continue
					}
					counts[u.State]++
					pending = append(pending, u)
					on, busy, serve := 0, 0, 0
					ahead := wish
					if !now.Before(wishUntil) {
						ahead = 0
					}
					for name, s := range shown {
						if asked[name] == powersave.StatePowerUp || !s.State.Any(powersave.NodePoweredDown) || s.State.Any(powersave.NodePowerUp|powersave.NodeAllocated|powersave.NodeMixed) {
							on++
						}
						if asked[name] != powersave.StatePowerDown && !s.State.Any(powersave.NodePowerDown) && s.State.Any(powersave.NodeAllocated|powersave.NodeMixed) {
							busy++
							if !s.State.Any(powersave.NodePoweredDown) {
								serve++
							}
						}
					}
					for _, n := range u.Nodes {
						require.Empty(t, asked[n], "%s %s", u.State, n)
						s := shown[n]
						switch u.State {
						case powersave.StatePowerUp:
							require.True(t, s.State.Has(powersave.NodePoweredDown) && !s.State.Any(powersave.NodePowerUp|powersave.NodeDrain|powersave.NodeAllocated|powersave.NodeMixed), "power up %s: %s", n, s.State)
							require.NotEqual(t, "mine", s.Reason)
						case powersave.StatePowerDown:
							require.True(t, s.PlainlyIdle() && !s.State.Any(powersave.NodePlanned), "power down %s: %s", n, s.State)
							lowered--
						default:
							require.True(t, s.PlainlyIdle(), "renew %s: %s", n, s.State)
						}
					}
					switch u.State {
					case powersave.StatePowerUp:
						require.True(t, most == 0 || on+len(u.Nodes) <= most, "%d on, %d more, at most %d", on, len(u.Nodes), most)
						require.LessOrEqual(t, len(u.Nodes), max(floor-busy, ahead))
					case powersave.StatePowerDown:
						require.GreaterOrEqual(t, lowered, 0, "only what was lowered is powered down")
					default:
						require.LessOrEqual(t, len(u.Nodes), max(keep()-serve, 0)+ahead)
					}
					for _, n := range u.Nodes {
						asked[n] = u.State
					}
				}
			}
		}
		set := func() {
			list := slurmconf.NewHostlist(names...)
			step(powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{{Name: "cpu", Nodes: list, Floor: floor, MaxPoweredUp: most}}})
		}
		set()
		step(powersave.PodsRead{})
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"read", "answer", "floor", "read", "answer", "wish", "read", "answer"}).Draw(t, "what") {
			case "floor":
				before := keep()
				floor = rapid.IntRange(0, nodes+1).Draw(t, "floor")
				most = rapid.SampledFrom([]int{0, 0, 3, 5}).Draw(t, "most")
				lowered = max(lowered+before-keep(), 0)
				set()
			case "wish":
				wish, wishUntil = rapid.IntRange(0, nodes).Draw(t, "wish"), now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "for"))*time.Second)
				step(powersave.WarmWished{Wishes: []powersave.WarmWish{{NodeSet: "cpu", Nodes: wish, Names: names[rapid.IntRange(0, nodes-1).Draw(t, "from"):], Until: wishUntil}}})
			case "answer":
				if len(pending) == 0 {
					continue
				}
				u := pending[0]
				pending = slices.Delete(pending, 0, 1)
				err := rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "err")
				if u.State == powersave.StatePowerDown && err != "" {
					lowered += len(u.Nodes)
				}
				for _, n := range u.Nodes {
					delete(asked, n)
					if change := changes[u.State]; change != 0 && err == "" {
						s := shown[n]
						s.State |= change
						shown[n], stale[n] = s, reading
					}
				}
				step(powersave.NodesUpdated{Update: u, Err: err})
			default:
				step(powersave.Tick{})
				if !reading {
					continue
				}
				reading = false
				read := powersave.SlurmRead{Complete: true}
				for _, n := range names {
					s, seen := shown[n]
					if !seen || stale[n] || rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "changes") {
						s = powersave.SlurmNode{
							Name: n, State: rapid.SampledFrom(states).Draw(t, n), Reason: rapid.SampledFrom([]string{"", "", "", "", "mine"}).Draw(t, "reason"),
						}
					}
					if !stale[n] {
						shown[n] = s
					}
					read.Nodes = append(read.Nodes, s)
				}
				clear(stale)
				step(read)
			}
		}
	}
	for range 4 { // a hundred draws sometimes miss one of the changes
		rapid.Check(t, property)
	}
	for _, c := range []powersave.StateChange{powersave.StatePowerUp, powersave.StatePowerDown, powersave.StateRenew} {
		require.NotZero(t, counts[c], "%s never came", c)
	}
}
