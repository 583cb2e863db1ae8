package slurmrest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
)

func TestDeleteNode(t *testing.T) {
	for _, version := range []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"} {
		t.Run(version, func(t *testing.T) {
			f := newFake()
			f.versions = []string{version}
			c := dialFake(t, f)
			require.NoError(t, c.DeleteNode(t.Context(), "c0"))
			assert.Equal(t, []string{"DELETE /slurm/" + version + "/node/c0"}, f.seen())
		})
	}
}

func TestDeleteNodeRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter) error
		check  func(t *testing.T, err error)
	}{
		"gone already": {reply(500, errInvalidNodeName, "Invalid node name specified"), func(t *testing.T, err error) {
			assert.ErrorAs(t, err, new(*NotFoundError))
		}},
		"in use": {reply(500, 2016, "Requested nodes are busy"), func(t *testing.T, err error) {
			require.ErrorContains(t, err, "delete node (c0)")
			require.ErrorContains(t, err, "Requested nodes are busy")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			f.script = append(f.script, tc.answer)
			tc.check(t, c.DeleteNode(t.Context(), "c0"))
			assert.Len(t, f.seen(), 1)
		})
	}
}

// A list, ALL and an empty name would delete other nodes than the one that was meant.
func TestDeleteNodeOneByOne(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	for _, name := range []string{"", "ALL", "all", "c[0-1]", "c0,c1", "../jobs"} {
		require.ErrorContains(t, c.DeleteNode(t.Context(), name), "is no node's name")
	}
	assert.Empty(t, f.seen())
}

func TestReservations(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	f.script = append(f.script, func(w http.ResponseWriter) error {
		return json.NewEncoder(w).Encode(map[string]any{"reservations": []any{
			map[string]any{"name": "now", "node_list": "c[0-1]"}, map[string]any{"name": "later", "node_list": "c3"}, map[string]any{"name": "licences"},
		}})
	})
	got, err := c.Reservations(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"now": "c[0-1]", "later": "c3", "licences": ""}, got)

	f.script = append(f.script, reply(502, 1800, "Unable to contact slurm controller"))
	cfg := f.config()
	cfg.Retries = -1
	c, err = New(cfg)
	require.NoError(t, err)
	_, err = c.Reservations(t.Context())
	require.Error(t, err, "none must not look like no reservations")
}

func TestReservationFieldsOfVersions(t *testing.T) {
	const text = `{"name":"r","node_list":"c[0-1]","start_time":{"set":true,"infinite":false,"number":1795248446}}`
	read := func(text []byte) map[string]string {
		var r answer.Reservations
		require.NoError(t, r.Read(json.NewDecoder(strings.NewReader(string(text)))))
		assert.Equal(t, time.Unix(1795248446, 0), r.Starts["r"])
		return r.Nodes
	}
	for name, typed := range map[string]any{
		"v0.0.42": &v0042.V0042ReservationInfo{}, "v0.0.43": &v0043.V0043ReservationInfo{}, "v0.0.44": &v0044.V0044ReservationInfo{}, "v0.0.45": &v0045.V0045ReservationInfo{},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, json.Unmarshal([]byte(text), typed))
			again, err := json.Marshal(typed)
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"r": "c[0-1]"}, read(again))
		})
	}
}
