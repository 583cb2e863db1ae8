package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

func TestFind(t *testing.T) {
	st, entries := day()
	over := boots(st.Engine, entries)
	st.Engine.Offs = []powersave.Boot{{Node: "cpu-90", Phase: powersave.PhaseFreeing}}
	for words, want := range map[string]string{
		"":            "",
		"  ":          "",
		"cpu":         "nodeset cpu, node cpu, node cpu-12, node cpu-11, node cpu-9, node cpu-90, node cpu-13, node cpu-2, node cpu-1",
		"CPU-1":       "node cpu-1, node cpu-12, node cpu-11, node cpu-13",
		"node cpu-90": "node cpu-90",
		"7":           "job 7, node 7",
		"job 7":       "job 7, node 7",
		"10":          "job 10, node 10",
		"4711":        "job 4711, node 4711", // nothing of it is new
		"nodeset gpu": "nodeset gpu, node gpu, node gpu-0, node gpu-1",
		"elsewhere-3": "node elsewhere-3",
		"cpu-[0-9]":   "",
		"../nodes":    "",
		"0":           "node 0, job 10, node cpu-90, node gpu-0", // no job
		"<img src=x>": "",
		"-1":          "node cpu-12, node cpu-11, node cpu-13, node cpu-1, node gpu-1",
		"99999999999": "node 99999999999",
	} {
		t.Run(words, func(t *testing.T) {
			var got []string
			for _, h := range find(words, st.Engine, over).Items {
				assert.NotEmpty(t, h.Text)
				got = append(got, h.Kind+" "+h.Name)
			}
			assert.Equal(t, want, strings.Join(got, ", "))
		})
	}
}

func TestFindBounds(t *testing.T) {
	st, _ := large()
	got := find("node-7", st.Engine, nil)
	require.Len(t, got.Items, mostHits)
	assert.Equal(t, Hit{"node", "node-7", "boots: pending"}, got.Items[0])
	assert.Equal(t, 1111-mostHits, got.LeftOut)
}

func TestSubject(t *testing.T) {
	for query, want := range map[string]any{
		"job=7":                            history.Subject{Job: 7},
		"node=cpu-0":                       history.Subject{Node: "cpu-0"},
		"node=Host_1.a":                    history.Subject{Node: "Host_1.a"},
		"nodeset=cpu":                      history.Subject{NodeSet: "cpu"},
		"nodeset=cpu&job=":                 history.Subject{NodeSet: "cpu"},
		"":                                 "ask about one of job, node and nodeset",
		"job=7&node=cpu-0":                 "ask about one of job, node and nodeset",
		"job=0":                            `"0" is not the number of a job`,
		"job=7_1":                          `"7_1" is not the number of a job`,
		"job=99999999999":                  `"99999999999" is not the number of a job`,
		"node=cpu-[0-9]":                   `"cpu-[0-9]" is not the name of a node`,
		"node=a/b":                         `"a/b" is not the name of a node`,
		"node=a%0ab":                       `"a\nb" is not the name of a node`,
		"nodeset=..":                       `".." is not the name of a nodeset`,
		"node=" + strings.Repeat("a", 254): fmt.Sprintf("%q is not the name of a node", strings.Repeat("a", 254)),
	} {
		t.Run(query, func(t *testing.T) {
			values, err := url.ParseQuery(query)
			require.NoError(t, err)
			got, err := subject(values)
			if text, wrong := want.(string); wrong {
				require.EqualError(t, err, text)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

// jobFive is what is known of a job that was given back.
func jobFive() history.Answer {
	_, entries := day()
	a := history.Answer{Subject: history.Subject{Job: 5}, Time: noon, Slurm: []history.Shown{{Name: "job 5", State: "PENDING", Reason: "BeginTime"}}}
	for _, e := range entries {
		if len(e.Jobs) == 1 && e.Jobs[0] == 5 || strings.HasPrefix(e.Node, "gpu-") {
			a.Entries = append(a.Entries, e)
		}
	}
	return a
}

func TestTell(t *testing.T) {
	golden.Compare(t, "testdata/story.json", indented(t, tell(jobFive())))
}

// What is under way is worth asking again; a pending job's demand the scaler knows. Of what was tried only the newest is told.
func TestToldFlags(t *testing.T) {
	a := jobFive()
	assert.False(t, tell(a).Active)
	assert.True(t, tell(a).Pending)
	a.Boots = []powersave.Boot{{Node: "gpu-0", Jobs: []uint32{5}}}
	assert.True(t, tell(a).Active)
	a.Slurm[0].State = "RUNNING"
	assert.False(t, tell(a).Pending)
	a.Slurm[0].State, a.Subject = "PENDING", history.Subject{Node: "gpu-0"}
	assert.False(t, tell(a).Pending, "nodes are no demand")
}

// A story of a job of 10,000 nodes ends somewhere, and has the slowest boots.
func TestTellBounds(t *testing.T) {
	a := history.Answer{Subject: history.Subject{Job: 5}, Time: noon}
	for i := range 10_000 {
		node := fmt.Sprint("cpu-", i)
		a.Entries = append(a.Entries,
			history.Entry{Time: ms(10 * i), What: history.RequestAccepted, Nodes: node, Request: node, Kind: "resume", Jobs: []uint32{5}, Requested: ms(10 * i)},
			history.Entry{Time: ms(11 * i), What: history.NodeRegistered, Node: node, NodeSet: "cpu", Request: node, Jobs: []uint32{5}})
	}
	got := tell(a)
	require.Len(t, got.Steps, mostSteps)
	require.Len(t, got.Waterfall, mostTold)
	assert.Equal(t, 10_000-mostTold, got.BootsLeft)
	assert.Equal(t, "cpu-9999", got.Waterfall[0].Node)
	assert.Positive(t, got.StepsLeft)
	a.Subject = history.Subject{NodeSet: "cpu"}
	assert.Equal(t, "cpu-9999", tell(a).Waterfall[0].Node, "the newest")
}
