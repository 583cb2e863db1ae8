package stack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

const starts = `time=2026-11-21T10:00:00Z level=INFO msg="bridge starts" version=dev` + "\n"

func TestGoesOn(t *testing.T) {
	tests := map[string]struct {
		log     string
		want    Onward
		waiting []string
	}{
		"nothing in hand": {starts + `time=2026-11-21T10:00:01Z level=INFO msg="pod created" node=gpu-0` + "\n", Onward{}, nil},
		"by node": {starts +
			`time=2026-11-21T10:00:00.1Z level=INFO msg=request request=r1 kind=resume nodes=cpu-[0-9] jobs=1 age=2.5s` + "\n" +
			`time=2026-11-21T10:00:00.4Z level=INFO msg="pod created" node=cpu-1 nodeset=cpu request=r1` + "\n" +
			`time=2026-11-21T10:00:00.9Z level=INFO msg="node registered" node=cpu-1 nodeset=cpu request=r1 jobs="[5 6]"` + "\n",
			Onward{InHand: []string{"cpu-0", "cpu-1"}, First: map[string]Step{"cpu-1": {"pod created", 400 * time.Millisecond}}}, []string{"cpu-0"}},
		"by the nodes of an update": {starts +
			`time=2026-11-21T10:00:00.1Z level=INFO msg=request request=r1 kind=suspend nodes=cpu-[0-1] jobs=0 age=2m0s` + "\n" +
			`time=2026-11-21T10:00:00.5Z level=INFO msg="nodes updated" update="resume cpu-[1-3]" reason=""` + "\n" +
			`time=2026-11-21T10:00:00.7Z level=INFO msg="nodes updated" update="power_down_force cpu-0" reason="slurmtide: job 7 given back: \"x=1\""` + "\n",
			Onward{InHand: []string{"cpu-0", "cpu-1"}, First: map[string]Step{
				"cpu-0": {"nodes updated", 700 * time.Millisecond}, "cpu-1": {"nodes updated", 500 * time.Millisecond}}}, nil},
		"by the request": {starts +
			`time=2026-11-21T10:00:00.1Z level=INFO msg=request request=r1 kind=resume nodes=cpu-0 jobs=1 age=1s` + "\n" +
			`time=2026-11-21T10:00:00.1Z level=INFO msg=request request=r2 kind=resume nodes=cpu-1 jobs=1 age=1s` + "\n" +
			`time=2026-11-21T10:00:00.2Z level=INFO msg="request finished" request=r1` + "\n",
			Onward{InHand: []string{"cpu-0", "cpu-1"}, First: map[string]Step{"cpu-0": {"request finished", 200 * time.Millisecond}}}, []string{"cpu-1"}},
		"a request that came later": {starts +
			`time=2026-11-21T10:00:09Z level=INFO msg=request request=r1 kind=resume nodes=cpu-0 jobs=1 age=10ms` + "\n" +
			`time=2026-11-21T10:00:09.1Z level=INFO msg="boot failed" node=cpu-0 request=r1` + "\n",
			Onward{InHand: []string{"cpu-0"}, First: map[string]Step{"cpu-0": {"boot failed", 110 * time.Millisecond}}}, nil},
		"only since the newest start": {
			`time=2026-11-21T09:00:00Z level=INFO msg="bridge starts" version=dev` + "\n" +
				`time=2026-11-21T09:00:00.1Z level=INFO msg=request request=r1 kind=resume nodes=cpu-0 jobs=1 age=1s` + "\n" +
				`time=2026-11-21T09:00:00.2Z level=INFO msg="pod created" node=cpu-0` + "\n" + "panic: no line of slog\n" + starts,
			Onward{}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			nodes, err := slurmconf.ParseHostlist("cpu-[0-1]")
			require.NoError(t, err)
			if tc.want.First == nil {
				tc.want.First = map[string]Step{}
			}
			on, err := GoesOn(tc.log, nodes)
			require.NoError(t, err)
			assert.Equal(t, tc.want, on)
			assert.ElementsMatch(t, tc.waiting, on.Waiting())
			for _, first := range on.First {
				assert.LessOrEqual(t, first.After, on.Slowest().After)
			}
		})
	}
	for name, log := range map[string]string{
		"no start":    `time=2026-11-21T10:00:00.4Z level=INFO msg="pod created" node=cpu-1` + "\n",
		"no nodes":    starts + `time=2026-11-21T10:00:00.4Z level=INFO msg="pod created" node=cpu-[` + "\n",
		"no age":      starts + `time=2026-11-21T10:00:00.4Z level=INFO msg=request nodes=cpu-0` + "\n",
		"broken line": starts + `time=2026-11-21T10:00:00.4Z level=INFO msg="pod` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := GoesOn(log, slurmconf.Hostlist{})
			assert.Error(t, err)
		})
	}
}
