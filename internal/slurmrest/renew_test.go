package slurmrest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// Each node is looked at just before its idle time is renewed, since that would undo a drain.
func TestRenew(t *testing.T) {
	shown := func(states ...string) func(http.ResponseWriter) error {
		var nodes []string
		for i, s := range states {
			s, reason, _ := strings.Cut(s, "!")
			words, _ := json.Marshal(strings.Split(s, "+"))
			nodes = append(nodes, fmt.Sprintf(`{"name":"c%d","state":%s,"reason":%q}`, i, words, reason))
		}
		return func(w http.ResponseWriter) error {
			_, err := fmt.Fprintf(w, `{"nodes":[%s],"errors":[]}`, strings.Join(nodes, ","))
			return err
		}
	}
	for name, tc := range map[string]struct {
		states []string
		sent   []string
	}{
		"idle":                {[]string{"IDLE+CLOUD", "IDLE+CLOUD+PLANNED", "IDLE+CLOUD+RESERVED"}, []string{"c0", "c1", "c2"}},
		"ours was the reason": {[]string{"IDLE+CLOUD!slurmtide: x", "IDLE+CLOUD!Not responding", "IDLE!ResumeTimeout reached"}, []string{"c0", "c1", "c2"}},
		"drained meanwhile":   {[]string{"IDLE+CLOUD+DRAIN!mine", "IDLE+CLOUD", "IDLE+CLOUD+FAIL!mine"}, []string{"c1"}},
		"somebody's reason":   {[]string{"IDLE+CLOUD!mine", "IDLE+CLOUD"}, []string{"c1"}},
		"busy":                {[]string{"ALLOCATED+CLOUD", "MIXED+CLOUD", "IDLE+CLOUD+COMPLETING"}, nil},
		"power":               {[]string{"IDLE+CLOUD+POWERED_DOWN", "IDLE+CLOUD+POWERING_DOWN", "IDLE+CLOUD+POWERING_UP", "IDLE+CLOUD+POWER_DOWN"}, nil},
		"of no use":           {[]string{"DOWN+CLOUD", "IDLE+CLOUD+NOT_RESPONDING", "IDLE+CLOUD+MAINTENANCE", "IDLE+CLOUD+REBOOT_REQUESTED", "IDLE+NEW_WORD"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			f.script = []func(http.ResponseWriter) error{shown(tc.states...)}
			var names []string
			for i := range tc.states {
				names = append(names, fmt.Sprintf("c%d", i))
			}
			// More than are asked for one by one.
			for len(names) <= minSingle {
				names = append(names, names[0])
			}
			f.reset()
			require.NoError(t, c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: names, State: powersave.StateRenew}))
			if tc.sent == nil {
				require.Len(t, f.seen(), 1, "nothing may be sent")
				return
			}
			require.Len(t, f.seen(), 2)
			var sent struct{ Name, State []string }
			require.NoError(t, json.Unmarshal([]byte(f.bodies[1]), &sent))
			assert.Equal(t, tc.sent, sent.Name)
			assert.Equal(t, []string{"IDLE"}, sent.State)
		})
	}
}

func TestRenewFailures(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	idle := func(w http.ResponseWriter) error {
		_, err := fmt.Fprint(w, `{"nodes":[{"name":"c0","state":["IDLE","CLOUD"]}],"errors":[]}`)
		return err
	}
	renew := powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateRenew}
	f.script = []func(http.ResponseWriter) error{idle, reply(500, errInvalidTransition, "Invalid node state transition")}
	require.NoError(t, c.UpdateNodes(t.Context(), renew), "a job has come: that is as well")
	f.script = []func(http.ResponseWriter) error{idle, reply(500, errAccessDenied, "Access denied")}
	require.ErrorContains(t, c.UpdateNodes(t.Context(), renew), "Access denied")
	err := c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: []string{"ALL"}, State: powersave.StateRenew})
	require.True(t, IsNotFound(err), "%v", err)

	// Many are looked at and renewed a few at a time.
	var many []string
	f.script = nil
	for i := range 40 {
		many = append(many, fmt.Sprintf("m%d", i))
	}
	list := func(w http.ResponseWriter) error {
		var nodes []string
		for _, n := range many {
			nodes = append(nodes, fmt.Sprintf(`{"name":%q,"state":["IDLE","CLOUD"]}`, n))
		}
		_, err := fmt.Fprintf(w, `{"nodes":[%s],"errors":[]}`, strings.Join(nodes, ","))
		return err
	}
	f.nodes = many
	f.script = []func(http.ResponseWriter) error{list, nil, list, nil, list, nil}
	f.reset()
	require.NoError(t, c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: many, State: powersave.StateRenew}))
	var renewed []string
	for i, r := range f.seen() {
		if strings.HasPrefix(r, "POST") {
			var sent struct{ Name []string }
			require.NoError(t, json.Unmarshal([]byte(f.bodies[i]), &sent))
			assert.LessOrEqual(t, len(sent.Name), renewAtOnce)
			renewed = append(renewed, sent.Name...)
		}
	}
	slices.Sort(renewed)
	slices.Sort(many)
	assert.Equal(t, many, renewed)
}
