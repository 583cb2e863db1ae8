package answer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestNoVal(t *testing.T) {
	for text, want := range map[string]Number{
		`{"set":true,"infinite":false,"number":90}`:   {set: true, number: 90},
		`{"set":false,"infinite":false,"number":0}`:   {},
		`{"set":false,"infinite":true,"number":0}`:    {infinite: true},
		`{"set":true,"number":1.5e3}`:                 {set: true, number: 1500},
		`{"set":true,"number":1e300}`:                 {set: true},
		`90`:                                          {set: true, number: 90},
		`null`:                                        {},
		`"Infinity"`:                                  {infinite: true},
		`{"set":true,"infinite":false,"number":1e18}`: {set: true, number: 1e18},
	} {
		var got Number
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{`"soon"`, `[1]`, `true`, `{"set":1}`} {
		var got Number
		require.Error(t, json.Unmarshal([]byte(text), &got), text)
	}
	assert.Equal(t, Infinite, Number{infinite: true}.Duration())
	assert.Equal(t, Infinite, Number{set: true, number: 65535}.Duration())
	assert.Equal(t, 90*time.Second, Number{set: true, number: 90}.Duration())
	assert.Zero(t, Number{number: 90}.Duration())
	assert.True(t, Number{set: true, number: 0}.Time().IsZero())
}

func TestDecodeNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		state powersave.NodeState
		err   string
	}{
		"words of v0.0.45 for pairs": {`{"nodes":[{"name":"c","state":["IDLE","POWERED_DOWN","POWER_DOWN","POWER_DOWN_FORCE"]}]}`,
			powersave.NodeIdle | powersave.NodePoweredDown | powersave.NodePowerDown, ""},
		"a word of the future": {`{"nodes":[{"name":"c","state":["IDLE","DREAMING"]}]}`, powersave.NodeIdle | powersave.NodeOther, ""},
		"other keys around":    {`{"last_update":{"a":[1,{}]},"nodes":[{"x":{"name":"no"},"name":"c","state":["DOWN"]}],"z":null}`, powersave.NodeDown, ""},
		"no name":              {`{"nodes":[{"state":["DOWN"]}]}`, 0, "a node without a name"},
		"no state":             {`{"nodes":[{"name":"c"}]}`, 0, "state of node c: it is missing"},
		"empty state":          {`{"nodes":[{"name":"c","state":[]}]}`, 0, "state of node c: it is missing"},
		"state is a word":      {`{"nodes":[{"name":"c","state":"IDLE"}]}`, 0, "state of node c"},
		"cut in a node":        {`{"nodes":[{"name":"c","sta`, 0, "unexpected EOF"},
		"cut after a node":     {`{"nodes":[{"name":"c","state":["DOWN"]}`, 0, "unexpected EOF"},
		"cut after the list":   {`{"nodes":[{"name":"c","state":["DOWN"]}]`, 0, "unexpected EOF"},
		"nodes is no list":     {`{"nodes":{}}`, 0, "instead of a list"},
		"no object":            {`[]`, 0, "instead of {"},
		"nothing":              {``, 0, "unexpected EOF"},
		"errors is no list":    {`{"nodes":[],"errors":"many"}`, 0, `reading "errors"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewNodes(nil)
			_, err := Decode(strings.NewReader(tc.text), "nodes", r.Read)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, r.List, 1)
			assert.Equal(t, tc.state, r.List[0].State, "%v", r.List[0].State)
		})
	}
	for text, want := range map[string]string{
		`{"nodes":null}`:                     "",
		`{"nodes":[]}`:                       "",
		`{"errors":[{"error_number":2002}]}`: "", // the caller looks at the errors
		`{}`:                                 `there are no "nodes" in it: is it slurmrestd's?`,
		`{"errors":null,"meta":null}`:        `there are no "nodes" in it`,
		`{"status":"ok"}`:                    `there are no "nodes" in it`,
		`null`:                               "instead of {",
		`[]`:                                 "[ instead of {",
		`<html>please log in</html>`:         "invalid character '<'",
		``:                                   "unexpected EOF",
	} {
		r := NewNodes(nil)
		_, err := Decode(strings.NewReader(text), "nodes", r.Read)
		assert.Empty(t, r.List)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}

// Answers recorded from slurmrestd 24.11.5 and 26.05.5: c0 boots, c1 runs a slurmd,
// c2 was powered down while off (or is powering down), g0 failed, g1 is off.
func TestRecordedNodes(t *testing.T) {
	files, err := filepath.Glob("testdata/*/nodes-*.json")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			text, err := os.Open(file)
			require.NoError(t, err)
			defer text.Close()
			r := NewNodes(nil)
			env, err := Decode(text, "nodes", r.Read)
			require.NoError(t, err)
			assert.Empty(t, env.Errors)
			assert.Equal(t, filepath.Base(filepath.Dir(file)), env.Meta.Slurm.Release)
			var names []string
			for _, n := range r.List {
				names = append(names, n.Name)
			}
			require.Equal(t, []string{"c0", "c1", "c2", "g0", "g1"}, names)
			c0, c1, c2, g0, g1 := r.List[0], r.List[1], r.List[2], r.List[3], r.List[4]

			booting := powersave.NodeIdle | powersave.NodeCloud | powersave.NodePoweringUp | powersave.NodeNotResponding
			assert.Equal(t, booting, c0.State)
			assert.True(t, c0.BootTime.IsZero(), "never booted")
			assert.Equal(t, "c0", c0.Address)
			assert.Equal(t, []string{"cpu", "burst"}, c0.Features)
			assert.Equal(t, 2, c0.CPUs)
			assert.EqualValues(t, 100, c0.RealMemory)

			assert.Equal(t, powersave.NodeIdle|powersave.NodeCloud, c1.State)
			assert.Equal(t, int64(1795235098), c1.BootTime.Unix())
			assert.Equal(t, "127.0.0.1", c1.Address)

			assert.False(t, c2.State.Any(powersave.NodeOther), "POWER_DOWN_FORCE is two flags, not a third: %v", c2.State)
			assert.True(t, c2.State.Any(powersave.NodePowerDown|powersave.NodePoweringDown))

			assert.Equal(t, powersave.NodeDown|powersave.NodeCloud|powersave.NodePoweringUp|powersave.NodeNotResponding, g0.State)
			assert.Equal(t, "slurmtide: no capacity in zone a", g0.Reason)
			assert.Equal(t, "gpu:2", g0.Gres)
			assert.Equal(t, []string{"all", "gpu"}, g0.Partitions)
			assert.Equal(t, powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown, g1.State)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"nodes":[{"name":"c1","state":["IDLE","CLOUD"],"boot_time":{"set":true,"infinite":false,"number":1795235098},"features":["cpu"],"cpus":64}],
		"meta":{"slurm":{"release":"26.05.5"}},"errors":[],"warnings":[{"description":"mind"}]}`))
	f.Add([]byte(`{"":[1],"nodes":null,"errors":[{"error_number":-1}]}`))
	f.Add([]byte(`{"nodes":[{"name":"c","state":["DOWN"],"boot_time":"Infinity","features":null}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewNodes(nil)
		_, err := Decode(bytes.NewReader(text), "nodes", r.Read)
		for _, n := range r.List {
			if n.Name == "" || n.State == 0 {
				t.Fatalf("half a node: %+v", n)
			}
		}
		if err == nil && !json.Valid(firstValue(text)) {
			t.Fatalf("accepted although it is no JSON")
		}
		DecodeFailure(bytes.NewReader(text))
		var v Number
		_ = v.UnmarshalJSON(text)
	})
}

// firstValue is the text up to the end of its first JSON value; what follows is not read.
func firstValue(text []byte) []byte {
	var raw json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&raw); err != nil {
		return nil
	}
	return raw
}

// manyNodes is an answer like slurmrestd 26.05's for n nodes, about 2.5 kB each.
func manyNodes(tb testing.TB, n int) []byte {
	tb.Helper()
	text, err := os.ReadFile("testdata/26.05.5/nodes-v0.0.45.json")
	require.NoError(tb, err)
	var answer struct {
		Nodes []map[string]any `json:"nodes"`
	}
	require.NoError(tb, json.Unmarshal(text, &answer))
	out := map[string]any{"errors": []any{}}
	nodes := make([]map[string]any, n)
	for i := range nodes {
		node := map[string]any{}
		for k, v := range answer.Nodes[i%len(answer.Nodes)] {
			node[k] = v
		}
		node["name"] = "node-" + strings.Repeat("0", i%3) + string(rune('a'+i%26))
		nodes[i] = node
	}
	out["nodes"] = nodes
	text, err = json.MarshalIndent(out, "", "  ")
	require.NoError(tb, err)
	return text
}

func TestDecodeMemory(t *testing.T) {
	text := manyNodes(t, 2_000)
	r := NewNodes(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := Decode(bytes.NewReader(text), "nodes", r.Read)
	require.NoError(t, err)
	require.Len(t, r.List, 2_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d nodes: %.1f MB of JSON, %.1f MB allocated, %.1f MB kept", len(r.List), float64(len(text))/1e6, float64(after.TotalAlloc-before.TotalAlloc)/1e6, float64(kept)/1e6)
	assert.Less(t, kept, int64(2<<20), "a node must not keep its JSON alive")
	runtime.KeepAlive(r)
	runtime.KeepAlive(text)
}

func BenchmarkDecode10000Nodes(b *testing.B) {
	text := manyNodes(b, 10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewNodes(nil)
		if _, err := Decode(bytes.NewReader(text), "nodes", r.Read); err != nil {
			b.Fatal(err)
		}
	}
}
