package powersave

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMayWrite(t *testing.T) {
	for reason, want := range map[string]struct{ mayWrite, unspoken bool }{
		"":                               {true, true},
		"slurmtide: closed: capacity: x": {true, true},
		"ResumeTimeout reached":          {true, true},
		"bad disk":                       {false, false},
		"Not responding":                 {false, true},
		"slurmtide: x : Not responding":  {true, true},
		"slurmtide: x : ResumeTimeout reached : Not responding": {true, true},
		"ResumeTimeout reached : Not responding":                {true, true},
		"slurmtide: x : Kill task failed":                       {false, false},
		"slurmtide: x : Not responding : Kill task failed":      {false, false},
		"ResumeTimeout reached : Prolog error":                  {false, false},
		"Not responding : ResumeTimeout reached":                {false, true},
		"Not responding : bad disk":                             {false, false},
		"bad disk : Not responding":                             {false, false},
	} {
		assert.Equal(t, want.mayWrite, mayWrite(reason), reason)
		assert.Equal(t, want.unspoken, SlurmNode{Reason: reason}.Unspoken(), reason)
	}
}

// Whatever is said to us, what we say of it is ours.
func TestReasonsOfOursAreOurs(t *testing.T) {
	v := Verdict{Trouble: TroubleImage, Reason: "pulling x : no : such image"}
	assert.Equal(t, "image: pulling x: no: such image", v.String())
	assert.True(t, mayWrite(ReasonPrefix+v.String()))

	var b Breakers
	set := NodeSet{Name: "cpu"}
	b.NodeSets([]NodeSet{set})
	b.Failed(breakerStart, b.Pick(breakerStart, set, nil).Attempt, v.Trouble, v.Reason)
	assert.True(t, SlurmNode{Reason: closedPrefix + b.Look(breakerStart, set, nil).Why}.drainedFor(closedPrefix))

	var hosts HostTroubles
	hosts.TakeAll(breakerStart, []Host{{Name: "h1", Trouble: "tainted : x"}}, map[string]bool{"h1": true})
	why, _, _ := hosts.Judge(breakerStart, "h1", false)
	assert.Equal(t, "h1 is tainted: x", why)
}
