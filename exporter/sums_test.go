package exporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestNodeSums(t *testing.T) {
	var s NodeSums
	read := func(seconds int64, states map[string]powersave.NodeState) {
		tally := NewNodeTally(Options{PerNode: true})
		for name, state := range states {
			tally.Add(Node{Name: name, State: state})
		}
		s.Read(time.Unix(seconds, 0), tally, time.Minute)
	}
	seconds := func(state string) float64 { return value(t, s.Samples(Options{}), mNodeSeconds, state) }
	failed := func(state string) float64 { return value(t, s.Samples(Options{}), mNodesFailed, state) }
	const (
		up, down, silent = powersave.NodeMixed, powersave.NodeDown, powersave.NodeIdle | powersave.NodeNotResponding
		off              = powersave.NodeIdle | powersave.NodePoweredDown
	)
	read(100, map[string]powersave.NodeState{"a": up, "b": down, "c": off})
	assert.Zero(t, failed("down"), "b may have been down for weeks")
	assert.Zero(t, seconds("mixed"))
	read(115, map[string]powersave.NodeState{"a": silent, "b": down, "c": off})
	assert.InDelta(t, 15, seconds("mixed"), 0)
	assert.InDelta(t, 15, seconds("powered_down"), 0)
	assert.InDelta(t, 1, failed("not_responding"), 0)
	read(130, map[string]powersave.NodeState{"a": down, "b": up, "c": off | powersave.NodeDrain})
	assert.Zero(t, failed("down"), "a has failed once, and c not at all")
	assert.InDelta(t, 15, seconds("not_responding"), 0)
	assert.InDelta(t, 30, seconds("down"), 0)
	read(145, map[string]powersave.NodeState{"a": up, "b": down, "d": down})
	assert.InDelta(t, 2, failed("down"), 0, "b again, and d, which nobody has seen before")
	read(160, map[string]powersave.NodeState{"a": down, "b": down, "d": down})
	assert.InDelta(t, 3, failed("down"), 0)
	read(1000, nil)
	assert.InDelta(t, 30+15+30, seconds("down"), 0, "nobody knows what was for a quarter of an hour")
	read(1010, map[string]powersave.NodeState{"a": down})
	read(900, map[string]powersave.NodeState{"a": down})
	assert.InDelta(t, 75, seconds("down"), 0, "a clock that was set back takes nothing away")
	for _, sample := range s.Samples(Options{}) {
		assert.NotEqual(t, mNodeFailed, sample.Metric, "nobody has asked for nodes")
	}
}

// How often each node has failed is told as long as it is there: names of nodes may be as many as pods ever had. Sums of all nodes keep what they had.
func TestNodeFailures(t *testing.T) {
	const up, down = powersave.NodeMixed, powersave.NodeDown
	for name, test := range map[string]struct {
		reads []map[string]powersave.NodeState
		want  map[string]float64 // by node
		all   float64
	}{
		"none yet":          {[]map[string]powersave.NodeState{{"a": up}}, map[string]float64{"a": 0}, 0},
		"at first sight":    {[]map[string]powersave.NodeState{{"a": down}, {"a": down}}, map[string]float64{"a": 0}, 0},
		"twice":             {[]map[string]powersave.NodeState{{"a": up}, {"a": down}, {"a": up}, {"a": down}}, map[string]float64{"a": 2}, 2},
		"a new one":         {[]map[string]powersave.NodeState{{"a": up}, {"a": up, "b": down}}, map[string]float64{"a": 0, "b": 1}, 1},
		"gone":              {[]map[string]powersave.NodeState{{"a": up, "b": up}, {"a": up, "b": down}, {"a": up}}, map[string]float64{"a": 0}, 1},
		"gone, and back":    {[]map[string]powersave.NodeState{{"a": up}, {"a": down}, {}, {"a": up}}, map[string]float64{"a": 0}, 1},
		"gone, and worse":   {[]map[string]powersave.NodeState{{"a": up}, {"a": down}, {}, {"a": down}}, map[string]float64{"a": 1}, 2},
		"one after another": {[]map[string]powersave.NodeState{{"a": up}, {"b": down}, {"c": down}, {"d": down}}, map[string]float64{"d": 1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{{PerNode: true}, {}} {
				var s NodeSums
				for i, states := range test.reads {
					tally := NewNodeTally(o)
					for name, state := range states {
						tally.Add(Node{Name: name, State: state})
					}
					s.Read(time.Unix(int64(100+15*i), 0), tally, time.Minute)
				}
				got := map[string]float64{}
				for _, sample := range s.Samples(o) {
					if sample.Metric == mNodeFailed {
						got[sample.Labels[0]] = sample.Value
					}
				}
				assert.InDelta(t, test.all, value(t, s.Samples(o), mNodesFailed, "down"), 0)
				if o.PerNode {
					assert.Equal(t, test.want, got)
				} else {
					assert.Empty(t, got, "nobody has asked for nodes")
					assert.Empty(t, s.nodes)
				}
			}
		})
	}
}

func TestNodeInfo(t *testing.T) {
	tally := NewNodeTally(Options{PerNode: true})
	tally.Add(Node{Name: "a", State: powersave.NodeDown, Address: "10.0.0.7", Instance: "i-1", Reservation: "week", Reason: "ECC errors é" + string(make([]byte, 1000)), Comment: "rack 7"})
	for _, s := range tally.Samples() {
		if s.Metric == mNodeInfo {
			assert.Equal(t, []string{"a", "10.0.0.7", "i-1", "week"}, s.Labels[:4])
			assert.Contains(t, s.Labels[4], "ECC errors é")
			assert.LessOrEqual(t, len(s.Labels[4]), mostWords)
			assert.Equal(t, "rack 7", s.Labels[5])
			return
		}
	}
	t.Error("there is none")
}

func TestShort(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcde": "abcd", "abcé": "abc", "éé": "éé", "ééé": "éé"} {
		assert.Equal(t, want, short(text, 4), text)
	}
}

// How long nodes were of no use, and how long they drained, counts once it is over.
func TestSpells(t *testing.T) {
	var s NodeSums
	read := func(seconds int64, states map[string]powersave.NodeState) {
		tally := NewNodeTally(Options{})
		for name, state := range states {
			tally.Add(Node{Name: name, State: state})
		}
		s.Read(time.Unix(seconds, 0), tally, time.Minute)
	}
	counts := func(m *Metric) Histogram {
		for _, sample := range s.Samples(Options{}) {
			if sample.Metric == m {
				return *sample.Counts
			}
		}
		t.Fatal("it is not there")
		return Histogram{}
	}
	const (
		idle, down, drained = powersave.NodeIdle, powersave.NodeDown, powersave.NodeIdle | powersave.NodeDrain
		draining, off       = powersave.NodeMixed | powersave.NodeDrain, powersave.NodeIdle | powersave.NodePoweredDown
	)
	assert.Equal(t, Histogram{Below: make([]uint64, len(mDraining.Buckets))}, counts(mDraining))
	read(0, map[string]powersave.NodeState{"old": down, "a": idle, "b": idle, "c": off})
	read(30, map[string]powersave.NodeState{"old": idle, "a": draining, "b": down})
	assert.Zero(t, counts(mUnavailable).Count, "nobody knows since when, and c is off")
	read(60, map[string]powersave.NodeState{"a": draining, "b": drained})
	read(90, map[string]powersave.NodeState{"a": drained, "b": drained})
	assert.Equal(t, Histogram{1, 60, []uint64{1, 1, 1, 1, 1, 1, 1, 1, 1}}, counts(mDraining), "its jobs have ended")
	read(120, map[string]powersave.NodeState{"a": drained, "b": off})
	assert.Equal(t, Histogram{1, 90, []uint64{0, 1, 1, 1, 1, 1, 1, 1, 1}}, counts(mUnavailable), "down, and then drained, is one")
	read(150, nil)
	assert.InDelta(t, 90+60, counts(mUnavailable).Sum, 0, "a node that is gone is unavailable no more")
	read(180, map[string]powersave.NodeState{"d": down})
	read(1000, map[string]powersave.NodeState{"d": down})
	read(1030, nil)
	assert.EqualValues(t, 2, counts(mUnavailable).Count, "nobody knows what was for a quarter of an hour")
	read(1060, map[string]powersave.NodeState{"d": down})
	shown := counts(mUnavailable)
	read(1090, nil)
	assert.EqualValues(t, 2, shown.Count)
	assert.EqualValues(t, 2, shown.Below[8], "what was handed out stays as it was")
	assert.EqualValues(t, 3, counts(mUnavailable).Count)
}
