package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler/ask"
)

func TestDemandLists(t *testing.T) {
	var d ask.Demand
	for i := range mostNodeSets + 3 {
		d.NodeSets = append(d.NodeSets, ask.NodeSet{Name: fmt.Sprintf("s%03d", i), PowerUp: min(i, 1)})
	}
	d.Never = make([]ask.Never, mostMisses+2)
	got := demand(d, nil)
	require.Len(t, got.NodeSets.Items, mostNodeSets)
	assert.Equal(t, 3, got.NodeSets.LeftOut)
	assert.Equal(t, "s001", got.NodeSets.Items[0].Name, "that for which nothing is to be powered up is left out")
	assert.Equal(t, "s000", d.NodeSets[0].Name, "what was told stays as it is")
	assert.Equal(t, 2, got.Never.LeftOut)

	text, err := json.Marshal(demand(ask.Demand{}, errors.New("away")))
	require.NoError(t, err)
	assert.JSONEq(t, `{"error":"away","nodeSets":{"items":[]},"pending":[],"never":{"items":[]}}`, string(text))
}

// asked is what a scaler says.
var asked = ask.Demand{
	NodeSets: []ask.NodeSet{{Name: "cpu", Needed: 19, PowerUp: 7, InUse: 7, FreeingSoon: 1, Jobs: 12}, {Name: "gpu"}},
	Pending:  []ask.Pending{{Why: "capacity", Says: "need nodes that are off", Counts: true, Jobs: 12}, {Why: "held", Says: "are held", Jobs: 1000}},
	Never:    []ask.Never{{Miss: "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8", Jobs: 2}},
}

// fakeScaler counts how often it is asked.
type fakeScaler struct {
	mu    sync.Mutex
	asked int
	told  ask.Demand
	err   error
	hangs bool
}

func (f *fakeScaler) demand(ctx context.Context) (ask.Demand, error) {
	f.mu.Lock()
	f.asked++
	told, err, hangs := f.told, f.err, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ask.Demand{}, ctx.Err()
	}
	return told, err
}

func (f *fakeScaler) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// The scaler is asked while somebody watches, and the rest does not wait for it.
func TestDemandIsFollowed(t *testing.T) {
	f := newFake()
	s := &f.scaler
	p := newPage(f)
	p.Demand, p.scalerEvery, p.every = s.demand, 10*time.Millisecond, 10*time.Millisecond
	run(t, p)
	view := func() (v View) {
		shown, _ := p.live.frame()
		if shown.view != nil {
			require.NoError(t, json.Unmarshal(shown.view, &v))
		}
		return v
	}
	time.Sleep(50 * time.Millisecond)
	s.set(func() { assert.Zero(t, s.asked, "nobody watches") })

	require.True(t, p.live.enter(10))
	within := func(what string, ok func(View) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return ok(view()) }, 10*time.Second, 5*time.Millisecond, what)
	}
	within("figures", func(v View) bool { return v.Scaler && v.Demand != nil && v.Demand.NodeSets.Items[0].Needed == 19 })
	s.set(func() { s.err = errors.New("connection refused") })
	within("an error", func(v View) bool {
		return v.Demand != nil && v.Demand.Error == "connection refused" && len(v.Demand.NodeSets.Items) == 0
	})
	p.live.leave()
	require.Eventually(t, func() bool { return p.demanded.Load() == nil }, 10*time.Second, 5*time.Millisecond, "the next who watches must not see what was")
	require.True(t, p.live.enter(10))
	s.set(func() { s.hangs = true })
	time.Sleep(30 * time.Millisecond)
	f.set(func() { f.st.Version = "newer" })
	within("the rest while the scaler hangs", func(v View) bool { return v.Version == "newer" })
	p.live.leave()
}

func TestWithoutScaler(t *testing.T) {
	p := newPage(newFake())
	_, text, err := p.see(t.Context())
	require.NoError(t, err)
	var v View
	require.NoError(t, json.Unmarshal(text, &v))
	assert.False(t, v.Scaler)
	assert.Nil(t, v.Demand)
	assert.Equal(t, http.StatusOK, call(t, p.Handler(), "GET", "/").StatusCode)
}
