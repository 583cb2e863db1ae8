package printed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

func TestParseSuspends(t *testing.T) {
	got, err := ParseSuspends(`time=2026-11-21T05:18:57.974Z level=INFO msg="request finished" request=1795238335974179197-0000691
time=2026-11-21T05:18:40.000Z level=INFO msg=request request=1795238337978034803-0000001 kind=resume nodes=cpu-[4-6] jobs=1 age=1ms
time=2026-11-21T05:18:57.979Z level=INFO msg=request request=1795238337978034803-0000724 kind=suspend nodes=cpu-[4-6] jobs=0 age=9ms
time=2026-11-21T05:19:57.000Z level=INFO msg=request request=1795238337978034803-0000725 kind=suspend nodes="cpu-1,gpu-[0-1]" jobs=0 age=0s
`)
	require.NoError(t, err)
	stamp := time.Date(2026, 11, 21, 5, 18, 57, 979e6, time.UTC)
	assert.Equal(t, []Suspend{
		{Requested: stamp.Add(-9 * time.Millisecond), Accepted: stamp, Nodes: slurmconf.NewHostlist("cpu-4", "cpu-5", "cpu-6")},
		{Requested: time.Date(2026, 11, 21, 5, 19, 57, 0, time.UTC), Accepted: time.Date(2026, 11, 21, 5, 19, 57, 0, time.UTC), Nodes: slurmconf.NewHostlist("cpu-1", "gpu-0", "gpu-1")},
	}, got)

	for name, line := range map[string]string{
		"no time":  "msg=request kind=suspend nodes=cpu-1 age=1ms",
		"no age":   "time=2026-11-21T05:18:57.979Z msg=request kind=suspend nodes=cpu-1",
		"no nodes": "time=2026-11-21T05:18:57.979Z msg=request kind=suspend nodes=cpu-[ age=1ms",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSuspends(line)
			assert.ErrorContains(t, err, "bridge's log")
		})
	}
}
