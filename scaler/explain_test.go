package scaler

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExplain(t *testing.T) {
	for want, j := range map[string]JobDemand{
		"job 1 counts: 1 node is to be powered up for it":                                                                  {ID: 1, Why: WhyCapacity, New: 1, Tasks: 1, Counted: 1},
		"job 1 counts: 3 nodes are to be powered up for it; 6 of at least 9 tasks of the array count":                      {ID: 1, Why: WhyCapacity, New: 3, Tasks: 9, Counted: 6, More: true},
		"job 1 counts: it fits on nodes that are powered up for jobs before it":                                            {ID: 1, Why: WhyCapacity, Tasks: 1},
		"job 1 counts: there is room for it on nodes that are up or boot, and Slurm has not come to it yet":                {ID: 1, Why: WhyRoom, Tasks: 1},
		"job 1 does not count: no NodeSet can ever run it: needs gpu:h200:8, NodeSet gpu offers gpu:h100:8":                {ID: 1, Why: WhyImpossible, Detail: "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8"},
		"job 1 does not count: it is held, and `scontrol release` lets it go (JobHeldUser)":                                {ID: 1, Why: WhyHeld, Detail: "JobHeldUser", Tasks: 5},
		"job 1 does not count, for powering up cannot help: the nodes that could run it are in use":                        {ID: 1, Why: WhyFull, Detail: "the nodes that could run it are in use"},
		"job 1 does not count: this version of Slurmtide cannot tell what it waits for (Slurm says \"New\", which is new)": {ID: 1, Why: WhyUnknown, Detail: "Slurm says \"New\", which is new"},
	} {
		assert.Equal(t, want, j.Explain())
	}
	for reason, why := range reasons { // every class has its words
		if why != whyAsk {
			assert.NotEmpty(t, kinds[why], reason)
		}
	}
}

func TestReportJob(t *testing.T) {
	r := Report{Jobs: []JobDemand{{ID: 100, Why: WhyCapacity}, {ID: 3, Why: WhyImpossible, Detail: "gpu"}}}
	j, ok := r.Job(3)
	assert.True(t, ok)
	assert.Equal(t, "gpu", j.Detail)
	_, ok = r.Job(7)
	assert.False(t, ok)
}
