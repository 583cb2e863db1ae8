package slurmrest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

func names(nodes []powersave.SlurmNode) []string {
	out := []string{}
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

func TestNodes(t *testing.T) {
	const list, single = "GET /slurm/v0.0.45/nodes/", "GET /slurm/v0.0.45/node/"
	for name, tc := range map[string]struct {
		ask      []string
		want     []string
		missing  []string
		requests []string
	}{
		"all":                  {nil, []string{"c0", "c1", "c2", "c3", "c4", "c5", "g0"}, nil, []string{list}},
		"few":                  {[]string{"g0", "c1"}, []string{"g0", "c1"}, nil, []string{single + "g0", single + "c1"}},
		"many":                 {[]string{"g0", "c5", "c1", "c0", "c2"}, []string{"g0", "c5", "c1", "c0", "c2"}, nil, []string{list}},
		"few, one unknown":     {[]string{"c1", "zz", "c0"}, []string{"c1", "c0"}, []string{"zz"}, []string{single + "c1", single + "zz", list}},
		"many, two unknown":    {[]string{"y", "c1", "zz", "c0", "c2"}, []string{"c1", "c0", "c2"}, []string{"y", "zz"}, []string{list}},
		"twice":                {[]string{"c1", "c1"}, []string{"c1"}, nil, []string{single + "c1", single + "c1"}},
		"a hostlist is a name": {[]string{"c[0-3]", "c1"}, []string{"c1"}, []string{"c[0-3]"}, []string{list}},
		"empty name":           {[]string{"", "c1"}, []string{"c1"}, []string{""}, []string{list}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			nodes, err := c.Nodes(t.Context(), tc.ask...)
			assert.Equal(t, tc.want, names(nodes))
			assert.Equal(t, tc.requests, f.seen())
			if tc.missing == nil {
				require.NoError(t, err)
			} else {
				var missing interface{ MissingNodes() []string }
				require.ErrorAs(t, err, &missing)
				assert.Equal(t, tc.missing, missing.MissingNodes())
				assert.True(t, IsNotFound(err))
			}
			for _, n := range nodes {
				assert.Equal(t, powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown, n.State)
				assert.Equal(t, tc.ask == nil, n.Partitions != nil, "partitions come with the complete list only")
			}
		})
	}
}

// On a big cluster many single requests are still cheaper than the list.
func TestNodesOfBigCluster(t *testing.T) {
	f := newFake()
	f.nodes = nil
	for i := range 80 {
		f.nodes = append(f.nodes, fmt.Sprintf("c%d", i))
	}
	c := dialFake(t, f)
	_, err := c.Nodes(t.Context())
	require.NoError(t, err)
	for n, requests := range map[int]int{10: 10, 11: 1} {
		f.reset()
		_, err = c.Nodes(t.Context(), f.nodes[:n]...)
		require.NoError(t, err)
		assert.Len(t, f.seen(), requests, "%d nodes", n)
	}
}

func TestIncompleteListIsNoList(t *testing.T) {
	f := newFake()
	f.partial = true
	cfg := f.config()
	cfg.Retries = -1
	c, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	nodes, err := c.Nodes(t.Context())
	require.ErrorContains(t, err, "unexpected EOF")
	assert.Nil(t, nodes)

	f.partial = false
	f.script = []func(http.ResponseWriter) error{func(w http.ResponseWriter) error {
		_, err := fmt.Fprint(w, `{"nodes":[{"name":"c0","state":["IDLE"]}],"errors":[{"description":"Unable to query partitions","error_number":-1,"error":"Unspecified error"}]}`)
		return err
	}}
	nodes, err = c.Nodes(t.Context())
	require.ErrorContains(t, err, "Unable to query partitions: Unspecified error")
	assert.Nil(t, nodes)
}

// What is sent for each change, in each version.
func TestUpdateBodies(t *testing.T) {
	got := map[string]map[string]json.RawMessage{}
	for _, version := range []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"} {
		f := newFake()
		f.versions = []string{version}
		c := dialFake(t, f)
		got[version] = map[string]json.RawMessage{}
		for name, u := range map[string]powersave.NodeUpdate{
			"resume":           {Nodes: []string{"c0", "c1"}, State: powersave.StateResume},
			"undrain":          {Nodes: []string{"c0", "c1"}, State: powersave.StateUndrain},
			"down":             {Nodes: []string{"c0"}, State: powersave.StateDown, Reason: "slurmtide: no capacity"},
			"drain":            {Nodes: []string{"c0"}, State: powersave.StateDrain, Reason: "slurmtide: bad host"},
			"power_up":         {Nodes: []string{"c0"}, State: powersave.StatePowerUp},
			"power_down":       {Nodes: []string{"c0"}, State: powersave.StatePowerDown},
			"power_down_asap":  {Nodes: []string{"c0"}, State: powersave.StatePowerDownASAP},
			"power_down_force": {Nodes: []string{"c0"}, State: powersave.StatePowerDownForce, Reason: "slurmtide: image"},
			"texts":            {Nodes: []string{"c0"}, Comment: "boot 7", Extra: `{"a":1}`},
		} {
			f.reset()
			require.NoError(t, c.UpdateNodes(t.Context(), u))
			require.Equal(t, []string{"POST /slurm/" + version + "/nodes/"}, f.seen())
			got[version][name] = json.RawMessage(f.bodies[0])
		}
	}
	text, err := json.MarshalIndent(got, "", "  ")
	require.NoError(t, err)
	golden.Compare(t, "testdata/updates.json", string(text)+"\n")
}

// Where a node is can be said from v0.0.44 (Slurm 25.11) on: before, nothing is sent, rather than an update of nothing.
func TestUpdateOfTopology(t *testing.T) {
	u := powersave.NodeUpdate{Nodes: []string{"c0", "c1"}, Topology: "default:s1"}
	for version, offered := range map[string]bool{"v0.0.42": false, "v0.0.43": false, "v0.0.44": true, "v0.0.45": true} {
		f := newFake()
		f.versions = []string{version}
		c := dialFake(t, f)
		require.NoError(t, c.Ping(t.Context()))
		f.reset()
		err := c.UpdateNodes(t.Context(), u)
		if !offered {
			var old interface{ NotOffered() bool }
			require.ErrorAs(t, err, &old, version)
			assert.Empty(t, f.seen(), version)
			continue
		}
		require.NoError(t, err, version)
		assert.JSONEq(t, `{"name": ["c0", "c1"], "topology_str": "default:s1"}`, f.bodies[0], version)
	}
}

func TestUpdateRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		u    powersave.NodeUpdate
		says string
	}{
		"down without reason":  {powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateDown}, "a reason is required"},
		"drain without reason": {powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateDrain}, "a reason is required"},
		"unknown change":       {powersave.NodeUpdate{Nodes: []string{"c0"}, State: "explode"}, `no such state change: "explode"`},
		"ALL":                  {powersave.NodeUpdate{Nodes: []string{"all"}, State: powersave.StatePowerDownForce}, "does not know 1 of the nodes: all"},
		"hostlist":             {powersave.NodeUpdate{Nodes: []string{"c0,c1"}, State: powersave.StatePowerDownForce}, "does not know 1 of the nodes"},
		"no nodes":             {powersave.NodeUpdate{State: powersave.StatePowerDownForce}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			err := c.UpdateNodes(t.Context(), tc.u)
			if tc.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
			}
			assert.Empty(t, f.seen(), "nothing may be sent")
		})
	}
}

// Slurm stops at the first unknown name, having changed some nodes. The others must follow, none twice.
func TestUpdatePastUnknownNames(t *testing.T) {
	state := func(node string, words ...string) string {
		text, _ := json.Marshal(map[string]any{"name": node, "state": words})
		return string(text)
	}
	for name, tc := range map[string]struct {
		change powersave.StateChange
		states []string
		second []string
	}{
		"power_up": {powersave.StatePowerUp, []string{
			state("c0", "IDLE", "CLOUD", "POWERED_DOWN", "POWER_UP"), state("c1", "IDLE", "CLOUD", "POWERING_UP"), state("c2", "IDLE", "CLOUD", "POWERED_DOWN"),
		}, []string{"c2"}},
		"resume": {powersave.StateResume, []string{
			state("c0", "IDLE", "CLOUD", "POWERED_DOWN"), state("c1", "IDLE", "CLOUD", "POWERING_DOWN"), state("c2", "DOWN", "CLOUD"),
		}, []string{"c1", "c2"}},
		"undrain": {powersave.StateUndrain, []string{
			state("c0", "IDLE", "CLOUD"), state("c1", "MIXED", "CLOUD", "DRAIN"), state("c2", "DOWN", "CLOUD", "DRAIN"),
		}, []string{"c1", "c2"}},
		"power_down_force": {powersave.StatePowerDownForce, []string{
			state("c0", "IDLE", "CLOUD", "POWER_DOWN"), state("c1", "IDLE", "CLOUD"), state("c2", "MIXED", "CLOUD"),
		}, []string{"c0", "c1", "c2"}},
		"all done": {powersave.StatePowerUp, []string{
			state("c0", "IDLE", "CLOUD", "POWER_UP"), state("c1", "IDLE", "CLOUD", "POWERING_UP"), state("c2", "IDLE", "CLOUD", "POWERING_UP"),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			f.script = []func(http.ResponseWriter) error{nil, func(w http.ResponseWriter) error {
				_, err := fmt.Fprintf(w, `{"nodes":[%s,%s,%s],"errors":[]}`, tc.states[0], tc.states[1], tc.states[2])
				return err
			}}
			err := c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: []string{"c0", "c1", "b7", "c2", "z9"}, State: tc.change})
			var unknown *NotFoundError
			require.ErrorAs(t, err, &unknown)
			assert.Equal(t, []string{"b7", "z9"}, unknown.Names)
			if tc.second == nil {
				assert.Len(t, f.seen(), 2)
				return
			}
			require.Len(t, f.seen(), 3)
			var sent struct{ Name []string }
			require.NoError(t, json.Unmarshal([]byte(f.bodies[2]), &sent))
			assert.Equal(t, tc.second, sent.Name)
		})
	}
}

func TestUpdateReportsBothErrors(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	f.script = []func(http.ResponseWriter) error{reply(422, errInvalidTransition, "Invalid node state transition")}
	err := c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: []string{"c0", "ALL"}, State: powersave.StateResume})
	assert.True(t, IsInvalidTransition(err), "%v", err)
	assert.True(t, IsNotFound(err), "%v", err)
}

func TestPing(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	require.NoError(t, c.Ping(t.Context()))
	f.reset()
	f.script = []func(http.ResponseWriter) error{reply(502, 1800, "Unable to contact slurm controller (connect failure)")}
	err := c.Ping(t.Context())
	require.ErrorContains(t, err, "is slurmctld up?")
	assert.True(t, IsTransient(err))
	assert.Equal(t, []string{"GET /slurm/v0.0.45/diag/"}, f.seen(), "asked once")
}

// canonical answers hold every field the decoder reads; each version's generated
// types must know them all, or the decoder's names are wrong.
var (
	canonicalNodes = `{"nodes":[{"name":"c1","state":["IDLE","CLOUD","POWERED_DOWN"],"reason":"slurmtide: no capacity","boot_time":{"set":true,"infinite":false,"number":1795235098},
		"last_busy":{"set":true,"infinite":false,"number":1795235099},"address":"10.0.0.7","instance_id":"5c6a1f5e","features":["cpu","burst"],"partitions":["all","gpu"],
		"gres":"gpu:2","cpus":64,"real_memory":512000}],"last_update":{"set":true,"infinite":false,"number":1795235099},` + canonicalEnvelope
	canonicalPartitions = `{"partitions":[{"name":"gpu","timeouts":{"resume":{"set":true,"infinite":false,"number":90},"suspend":{"set":true,"infinite":false,"number":15}}}],
		"last_update":{"set":true,"infinite":false,"number":1},` + canonicalEnvelope
	canonicalConf     = `{"slurm_conf":{"ResumeTimeout":120,"SuspendTimeout":20},` + canonicalEnvelope
	canonicalEnvelope = `"meta":{"slurm":{"release":"26.05.5"}},"errors":[{"description":"Failure","error_number":2018,"error":"Invalid node name specified","source":"_dump_nodes"}],
		"warnings":[{"description":"mind","source":"x"}]}`
)

func TestGeneratedTypesAgree(t *testing.T) {
	type types struct{ nodes, partitions, conf any }
	for version, gen := range map[string]types{
		"v0.0.42": {&v0042.V0042OpenapiNodesResp{}, &v0042.V0042OpenapiPartitionResp{}, nil},
		"v0.0.43": {&v0043.V0043OpenapiNodesResp{}, &v0043.V0043OpenapiPartitionResp{}, nil},
		"v0.0.44": {&v0044.V0044OpenapiNodesResp{}, &v0044.V0044OpenapiPartitionResp{}, nil},
		"v0.0.45": {&v0045.V0045OpenapiNodesResp{}, &v0045.V0045OpenapiPartitionResp{}, &v0045.V0045OpenapiConfResp{}},
	} {
		t.Run(version, func(t *testing.T) {
			through := func(canonical string, into any) []byte {
				dec := json.NewDecoder(bytes.NewReader([]byte(canonical)))
				dec.DisallowUnknownFields()
				require.NoError(t, dec.Decode(into))
				text, err := json.Marshal(into)
				require.NoError(t, err)
				return text
			}
			r := answer.NewNodes(nil)
			env, err := answer.Decode(bytes.NewReader(through(canonicalNodes, gen.nodes)), "nodes", r.Read)
			require.NoError(t, err)
			assert.Equal(t, []powersave.SlurmNode{{
				Name: "c1", State: powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweredDown, Reason: "slurmtide: no capacity",
				BootTime: time.Unix(1795235098, 0), LastBusy: time.Unix(1795235099, 0), Address: "10.0.0.7", InstanceID: "5c6a1f5e",
				Features: []string{"cpu", "burst"}, Partitions: []string{"all", "gpu"}, Gres: "gpu:2", CPUs: 64, RealMemory: 512000,
			}}, r.List)
			assert.Equal(t, "26.05.5", env.Meta.Slurm.Release)
			assert.Equal(t, []answer.Problem{{Description: "Failure", Number: 2018, Name: "Invalid node name specified", Source: "_dump_nodes"}}, env.Errors)
			assert.Equal(t, []answer.Problem{{Description: "mind", Source: "x"}}, env.Warnings)

			clear := func(text []byte) func(http.ResponseWriter) error {
				return func(w http.ResponseWriter) error {
					var m map[string]json.RawMessage
					if err := json.Unmarshal(text, &m); err != nil {
						return err
					}
					m["errors"] = json.RawMessage("[]")
					return json.NewEncoder(w).Encode(m)
				}
			}
			f := newFake()
			f.versions = []string{version}
			c := dialFake(t, f)
			want := Timeouts{Partitions: map[string]PartitionTimeouts{"gpu": {90 * time.Second, 15 * time.Second}}}
			f.script = []func(http.ResponseWriter) error{clear(through(canonicalPartitions, gen.partitions))}
			if gen.conf != nil {
				f.script = append(f.script, clear(through(canonicalConf, gen.conf)))
				want.Resume, want.Suspend = 120*time.Second, 20*time.Second
			}
			got, err := c.Timeouts(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}
