package slurmrest

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestReserve(t *testing.T) {
	begin, end := time.Unix(1795248000, 0), time.Unix(1795251600, 0)
	for _, version := range []string{"v0.0.43", "v0.0.44", "v0.0.45"} {
		t.Run(version, func(t *testing.T) {
			f := newFake()
			f.versions = []string{version}
			c := dialFake(t, f)
			require.NoError(t, c.Reserve(t.Context(), "tide.cpu", []string{"c0", "c1"}, begin, end))
			require.NoError(t, c.Reserve(t.Context(), "tide.cpu", []string{"c1"}, time.Time{}, end))
			require.NoError(t, c.Unreserve(t.Context(), "tide.cpu"))
			path := " /slurm/" + version + "/reservation"
			assert.Equal(t, []string{"POST" + path, "POST" + path, "DELETE" + path + "/tide.cpu"}, f.seen())
			bodies := f.bodies[len(f.bodies)-3:]
			assert.JSONEq(t, `{"name":"tide.cpu","node_list":["c0","c1"],"users":["root"],"flags":["MAINT","IGNORE_JOBS"],
				"start_time":{"set":true,"number":1795248000},"end_time":{"set":true,"number":1795251600}}`, bodies[0])
			assert.NotContains(t, bodies[1], "start_time")
		})
	}
}

func TestReserveRefused(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	end := time.Unix(1795251600, 0)
	f.script = append(f.script, reply(500, errReservationInvalid, "Requested reservation is invalid"))
	require.NoError(t, c.Unreserve(t.Context(), "tide.cpu"), "it is gone")
	f.script = append(f.script, reply(500, 2055, "Requested reservation is in use"))
	require.ErrorContains(t, c.Unreserve(t.Context(), "tide.cpu"), "remove reservation (tide.cpu)")
	f.script = append(f.script, reply(500, errInvalidNodeName, "Invalid node name specified"))
	require.ErrorContains(t, c.Reserve(t.Context(), "tide.cpu", []string{"c9"}, end, end), "Invalid node name specified")
	asked := len(f.seen())
	for _, nodes := range [][]string{nil, {"ALL"}, {"c[0-1]"}} {
		require.ErrorContains(t, c.Reserve(t.Context(), "tide.cpu", nodes, end, end), "are no names of nodes")
	}
	for _, name := range []string{"", "a/b", "a,b"} {
		require.ErrorContains(t, c.Unreserve(t.Context(), name), "is no reservation's name")
	}
	assert.Len(t, f.seen(), asked)
}

func TestReserveNotOffered(t *testing.T) {
	f := newFake()
	f.versions = []string{"v0.0.42"}
	c := dialFake(t, f)
	for _, err := range []error{c.Reserve(t.Context(), "tide.cpu", []string{"c0"}, time.Time{}, time.Time{}), c.Unreserve(t.Context(), "tide.cpu")} {
		var not interface{ NotOffered() bool }
		require.ErrorAs(t, err, &not)
		assert.True(t, not.NotOffered())
	}
	assert.Empty(t, f.seen())
}

func TestReserved(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	f.script = append(f.script, func(w http.ResponseWriter) error {
		number := func(n int) any { return map[string]any{"set": true, "infinite": false, "number": n} }
		return json.NewEncoder(w).Encode(map[string]any{"reservations": []any{
			map[string]any{"name": "tide.cpu", "node_list": "c[0-1]", "start_time": number(1795248000), "end_time": number(1795251600)},
		}})
	})
	got, err := c.Reserved(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]powersave.Reserve{"tide.cpu": {Begin: time.Unix(1795248000, 0), End: time.Unix(1795251600, 0), Nodes: "c[0-1]"}}, got)
}
