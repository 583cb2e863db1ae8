package powersave_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

func TestStatusHasNoNullInIt(t *testing.T) {
	e := powersave.New(powersave.Config{})
	raw, err := json.Marshal(e.Status(epoch))
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "null")
	assert.Contains(t, string(raw), `"notes":[]`)
}

func TestCountsOfNoNodeSet(t *testing.T) {
	e := powersave.New(powersave.Config{})
	assert.Nil(t, e.Counts())
	e.Step(epoch, powersave.NodeSetsRead{})
	assert.NotNil(t, e.Counts())
	assert.Empty(t, e.Counts())
}

func TestGateThatCameBeforeTheNodeSetsIsInHand(t *testing.T) {
	e := powersave.New(powersave.Config{})
	require.True(t, e.Settled())
	e.Step(epoch, powersave.GateOpened{ID: 1, JobID: 7, Nodes: slurmconf.NewHostlist("cpu-0")})
	assert.False(t, e.Settled())
	e.Step(epoch.Add(time.Second), powersave.GateClosed{ID: 1})
	assert.True(t, e.Settled())
}
