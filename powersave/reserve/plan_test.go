package reserve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func TestPlan(t *testing.T) {
	r := func(nodes string, begin, end int) powersave.Reserve {
		return powersave.Reserve{Begin: at(begin), End: at(end), Nodes: nodes}
	}
	wants := func(nodes string, begin, end int) wish { w := r(nodes, begin, end); return wish{&w, true} }
	none := wish{nil, true}
	for name, tc := range map[string]struct {
		have   map[string]powersave.Reserve
		wishes map[string]wish
		want   []Step
	}{
		"nothing": {wishes: map[string]wish{"cpu": none}},
		"new": {
			wishes: map[string]wish{"cpu": wants("cpu-[0-1]", 10, 40)},
			want:   []Step{{NodeSet: "cpu", Begin: at(10), End: at(40), Nodes: []string{"cpu-0", "cpu-1"}}},
		},
		"new, in the window": {
			wishes: map[string]wish{"cpu": wants("cpu-0", -10, 20)},
			want:   []Step{{NodeSet: "cpu", Begin: at(0), End: at(20), Nodes: []string{"cpu-0"}}},
		},
		"new, about to end": {wishes: map[string]wish{"cpu": {&powersave.Reserve{Begin: at(-10), End: noon.Add(59 * time.Second), Nodes: "cpu-0"}, true}}},
		"as it is":          {have: map[string]powersave.Reserve{"cpu": r("cpu-[0-1]", 10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-[1,0]", 10, 40)}},
		"as it is, begun late": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", -3, 40)}, wishes: map[string]wish{"cpu": wants("cpu-0", -10, 40)},
		},
		"fewer nodes": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-[0-1]", 10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-1", 10, 40)},
			want: []Step{{NodeSet: "cpu", Made: true, Begin: at(10), End: at(40), Nodes: []string{"cpu-1"}}},
		},
		"fewer nodes, begun": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-[0-1]", -10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-1", -10, 40)},
			want: []Step{{NodeSet: "cpu", Made: true, End: at(40), Nodes: []string{"cpu-1"}}},
		},
		"fewer nodes, about to end": {
			have: map[string]powersave.Reserve{"cpu": {Begin: at(-10), End: noon.Add(59 * time.Second), Nodes: "cpu-[0-1]"}}, wishes: map[string]wish{"cpu": {&powersave.Reserve{Begin: at(-10), End: noon.Add(59 * time.Second), Nodes: "cpu-1"}, true}},
			want: []Step{{NodeSet: "cpu", Made: true, End: noon.Add(59 * time.Second), Nodes: []string{"cpu-1"}}},
		},
		"another end": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", -10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-0", -10, 90)},
			want: []Step{{NodeSet: "cpu", Made: true, End: at(90), Nodes: []string{"cpu-0"}}},
		},
		"another beginning": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", 10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-0", 20, 50)},
			want: []Step{{NodeSet: "cpu", Made: true, Begin: at(20), End: at(50), Nodes: []string{"cpu-0"}}},
		},
		"another beginning, at once": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", 10, 40)}, wishes: map[string]wish{"cpu": wants("cpu-0", -1, 40)},
			want: []Step{{NodeSet: "cpu", Made: true, Begin: at(0), End: at(40), Nodes: []string{"cpu-0"}}},
		},
		"put off when it has begun": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", -1, 40)}, wishes: map[string]wish{"cpu": wants("cpu-0", 60, 90)},
			want: []Step{{NodeSet: "cpu", Drop: true, Made: true}, {NodeSet: "cpu", Begin: at(60), End: at(90), Nodes: []string{"cpu-0"}}},
		},
		"done": {
			have: map[string]powersave.Reserve{"cpu": r("cpu-0", -1, 40)}, wishes: map[string]wish{"cpu": none},
			want: []Step{{NodeSet: "cpu", Drop: true, Made: true}},
		},
		"not known":               {have: map[string]powersave.Reserve{"cpu": r("cpu-0", -1, 40)}, wishes: map[string]wish{"cpu": {}}},
		"its NodeSet is gone":     {have: map[string]powersave.Reserve{"gpu": r("gpu-0", -1, 40)}, wishes: map[string]wish{"cpu": none}, want: []Step{{NodeSet: "gpu", Drop: true, Made: true}}},
		"the last one is gone":    {have: map[string]powersave.Reserve{"gpu": r("gpu-0", -1, 40)}, wishes: map[string]wish{}, want: []Step{{NodeSet: "gpu", Drop: true, Made: true}}},
		"no NodeSet is known":     {have: map[string]powersave.Reserve{"gpu": r("gpu-0", -1, 40)}},
		"of several, one is done": {have: map[string]powersave.Reserve{"a": r("a-0", 1, 40), "b": r("b-0", 1, 40)}, wishes: map[string]wish{"a": none, "b": wants("b-0", 1, 40)}, want: []Step{{NodeSet: "a", Drop: true, Made: true}}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, plan(noon, tc.have, tc.wishes)) })
	}
}

func TestWishes(t *testing.T) {
	assert.Nil(t, wishesOf(nil))
	assert.Equal(t, map[string]wish{}, wishesOf([]powersave.NodeSetCounts{}))
	r := &powersave.Reserve{Nodes: "cpu-0"}
	assert.Equal(t, map[string]wish{"new": {}, "unread": {}, "idle": {nil, true}, "cpu": {r, true}}, wishesOf([]powersave.NodeSetCounts{
		{Name: "new"}, {Name: "unread", Update: &powersave.UpdateCounts{Why: powersave.UpdateUnread}}, {Name: "idle", Update: &powersave.UpdateCounts{}},
		{Name: "cpu", Update: &powersave.UpdateCounts{Why: powersave.UpdateScheduled, Reserve: r}},
	}))
}

// What others have reserved is theirs, also a Slurmtide of another namespace.
func TestOwn(t *testing.T) {
	all := map[string]powersave.Reserve{Name("slurm", "cpu"): {}, Name("slurm", "a.b"): {}, Name("slurm2", "cpu"): {}, "root_1": {}, "slurmtide.slurm.": {}}
	assert.Equal(t, map[string]powersave.Reserve{"cpu": {}, "a.b": {}}, own(all, prefix("slurm")))
}
