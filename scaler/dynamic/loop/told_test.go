package loop

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
)

// teller keeps what a loop tells, as a bridge does.
type teller struct {
	mu      sync.Mutex
	keeper  *history.Dynamic
	entries []history.Entry
}

func (r *teller) passed(now time.Time, p history.Pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, r.keeper.Pass(now, p)...)
}

// told is what there is of a node since it was asked for last.
func (r *teller) told(node string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.entries {
		if e.Node == node || strings.Contains(e.Nodes, "dyn-[0-1]") {
			all = append(all, fmt.Sprintf("%s %s%s", e.What, e.State, e.Reason))
		}
	}
	return strings.Join(all, ", ")
}

func (r *teller) begin(t *testing.T, change ...func(*world, *Config)) *world {
	r.keeper = history.NewDynamic(nil)
	return begin(t, append(change, func(_ *world, c *Config) { c.Passed = r.passed })...)
}

// Nodes are told of when they come, serve and go, and once: also when the lead goes to and fro.
func TestLoopTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r teller
		w := r.begin(t)
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(2)
		time.Sleep(6 * time.Second)
		up := "PodCreated , PodScheduled , ContainerStarted , NodeRegistered "
		assert.Equal(t, up, r.told("dyn-0"))
		assert.Equal(t, up, r.told("dyn-1"))
		r.mu.Lock()
		for _, b := range history.Boots(r.entries) {
			assert.LessOrEqual(t, b.Created.Sub(b.Requested), 2*stepPause, b.Node)
			assert.InDelta(t, 2, b.Started.Sub(b.Created).Seconds(), 2*stepPause.Seconds(), b.Node)
			assert.False(t, b.Registered.Before(b.Started), b.Node)
		}
		r.mu.Unlock()
		w.loop.Lead(false)
		time.Sleep(time.Minute)
		w.loop.Lead(true)
		time.Sleep(10 * time.Second)
		assert.Equal(t, up, r.told("dyn-0"))
		w.mu.Lock()
		for name := range w.running {
			w.records[name].State = powersave.NodeIdle | powersave.NodeDynamicNorm
		}
		clear(w.running)
		w.changed = time.Now()
		w.mu.Unlock()
		time.Sleep(40 * time.Second)
		assert.Equal(t, up+", NodesUpdated drainslurmtide: idle for 20s, PodDeleted drained: slurmtide: idle for 20s, PodGone ", r.told("dyn-0"))
		w.loop.Lead(false)
		w.loop.Lead(true)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, strings.Count(r.told("dyn-0"), "PodGone"))
	})
}

// What comes to nothing is told with its class.
func TestLoopTellsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r teller
		w := r.begin(t, func(w *world, c *Config) { w.never, c.Plan.Deadline = true, 30*time.Second })
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(1)
		time.Sleep(40 * time.Second)
		why := "slurmd did not register by the deadline"
		assert.Regexp(t, "^PodCreated , BootFailed "+why+", PodDeleted boot failed: bootstrap: "+why+", PodGone ", r.told("dyn-0"))
		r.mu.Lock()
		defer r.mu.Unlock()
		boots := history.Boots(r.entries)
		assert.Equal(t, []any{history.Failed, "bootstrap", why}, []any{boots[0].Outcome, boots[0].Class, boots[0].Reason})
	})
}

// Without a pod a boot has failed if there is a class; of calls that failed it is told that they did.
func TestSaid(t *testing.T) {
	l := New(Config{Passed: func(time.Time, history.Pass) {}})
	l.reported(dynamic.Report{Text: "about nobody"})
	l.reported(dynamic.Report{Node: "dyn-0", NodeSet: "dyn", Text: "creating its pod failed: too many", Class: powersave.TroubleQuota, Reason: "too many"})
	l.reported(dynamic.Report{Node: "dyn-0", NodeSet: "dyn", Text: "put back"})
	update := func(u powersave.NodeUpdate, o dynamic.Outcome) { l.done(dynamic.Update{NodeUpdate: u}, o) }
	update(powersave.NodeUpdate{State: powersave.StateUndrain, Nodes: []string{"dyn-1", "dyn-0"}}, dynamic.Outcome{})
	update(powersave.NodeUpdate{Comment: "whose it is", Nodes: []string{"dyn-0"}}, dynamic.Outcome{})
	update(powersave.NodeUpdate{State: powersave.StateDrain, Nodes: []string{"dyn-0"}}, outcome(errors.New("refused")))
	var got []string
	for _, e := range l.said {
		got = append(got, fmt.Sprintf("%s %s%s %s%s", e.What, e.Node, e.Nodes, e.State, e.Reason))
	}
	assert.Equal(t, []string{"BootFailed dyn-0 too many", "Reported dyn-0 put back", "NodesUpdated dyn-[0-1] undrain"}, got)
	l.Passed, l.said = nil, nil
	l.reported(dynamic.Report{Node: "dyn-0", Text: "nobody keeps it"})
	assert.Empty(t, l.said)
}
