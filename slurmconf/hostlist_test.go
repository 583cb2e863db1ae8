package slurmconf

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseHostlist(t *testing.T) {
	tests := map[string]struct {
		in, names, str string // names separated by blanks; str "" means in
	}{
		"empty":                       {in: ""},
		"separators only":             {in: " ,\t\n,", str: "-"},
		"plain":                       {in: "login", names: "login"},
		"one number":                  {in: "n1", names: "n1"},
		"range":                       {in: "n[8-11]", names: "n8 n9 n10 n11"},
		"padded range":                {in: "n[08-11]", names: "n08 n09 n10 n11"},
		"mixed widths":                {in: "n[01,2,003]", names: "n01 n2 n003"},
		"single in brackets":          {in: "n[5]", names: "n5", str: "n5"},
		"no prefix":                   {in: "[1-3]", names: "1 2 3"},
		"joined names":                {in: "tux1,tux2", names: "tux1 tux2", str: "tux[1-2]"},
		"joined padded names":         {in: "tux01,tux02,tux3", names: "tux01 tux02 tux3", str: "tux[01-02,3]"},
		"join over digits":            {in: "n98,n99,n100", names: "n98 n99 n100", str: "n[98-100]"},
		"join padded over digits":     {in: "n[08-99],n100", str: "n[08-100]"},
		"no join of other padding":    {in: "n08,n9,n10", names: "n08 n9 n10", str: "n[08,9-10]"},
		"not sorted":                  {in: "n3,n1,n2", names: "n3 n1 n2", str: "n[3,1-2]"},
		"duplicates kept":             {in: "n[1,1,1],n1,a,a", names: "n1 n1 n1 n1 a a", str: "n[1,1,1,1],a,a"},
		"separators":                  {in: "\tn1 ,, n2\n", names: "n1 n2", str: "n[1-2]"},
		"two brackets":                {in: "r[0-1]n[01-02,12]", names: "r0n01 r0n02 r0n12 r1n01 r1n02 r1n12", str: "r0n[01-02,12],r1n[01-02,12]"},
		"three brackets":              {in: "a[0-1]b[0-1]c[0-1]", names: "a0b0c0 a0b0c1 a1b0c0 a1b0c1 a0b1c0 a0b1c1 a1b1c0 a1b1c1", str: "a0b0c[0-1],a1b0c[0-1],a0b1c[0-1],a1b1c[0-1]"},
		"brackets side by side":       {in: "n[1-2][3-4]", names: "n13 n14 n23 n24", str: "n1[3-4],n2[3-4]"},
		"padded first bracket":        {in: "r[09-10]n[1]", names: "r09n1 r10n1", str: "r09n1,r10n1"},
		"suffix":                      {in: "n[1-3]-ib", names: "n1-ib n2-ib n3-ib", str: "n1-ib,n2-ib,n3-ib"},
		"suffix and brackets":         {in: "r[1-2]n[08-09]-x,b", names: "r1n08-x r1n09-x r2n08-x r2n09-x b", str: "r1n08-x,r1n09-x,r2n08-x,r2n09-x,b"},
		"only the last number":        {in: "a1b2,a1b3,a2b3", names: "a1b2 a1b3 a2b3", str: "a1b[2-3],a2b3"},
		"digits before bracket":       {in: "n0[1-2],n03", names: "n01 n02 n03"},
		"number beyond 64 bits":       {in: "n99999999999999999999", names: "n99999999999999999999"},
		"largest 64-bit number":       {in: "n18446744073709551615,n0", names: "n18446744073709551615 n0", str: "n[18446744073709551615,0]"},
		"range up to the largest":     {in: "n[18446744073709551614-18446744073709551615]", names: "n18446744073709551614 n18446744073709551615"},
		"long zero padding":           {in: "n[0000000000000000000000001-0000000000000000000000002]", names: "n0000000000000000000000001 n0000000000000000000000002"},
		"more than Slurm's 64K range": {in: "n[0-99999]"},
		"same names by other splits":  {in: "a01b[1-2],a1b[3-4]", names: "a01b1 a01b2 a1b3 a1b4"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHostlist(tt.in)
			require.NoError(t, err)
			want := tt.str
			switch want {
			case "":
				want = tt.in
			case "-":
				want = ""
			}
			assert.Equal(t, want, h.String())
			names := h.Expand()
			assert.Len(t, names, h.Len())
			if tt.names != "" {
				assert.Equal(t, strings.Fields(tt.names), names)
			}
			again, err := ParseHostlist(CompressHostlist(names))
			require.NoError(t, err)
			assert.Equal(t, names, again.Expand())
			i := 0
			for n := range h.All() {
				require.Equal(t, names[i], n)
				require.True(t, h.Contains(n))
				i++
			}
			assert.Equal(t, len(names), i)
		})
	}
}

func TestHostlistSpanJoins(t *testing.T) {
	// A suffix keeps Slurm from printing brackets, and us from nothing else.
	h, err := ParseHostlist("n[1-2]-ib,n[3-4]-ib,n5-ib")
	require.NoError(t, err)
	assert.Equal(t, "n1-ib,n2-ib,n3-ib,n4-ib,n5-ib", h.String())
	assert.Equal(t, 4, h.Index("n5-ib"))
}

func TestHostlistIsLazy(t *testing.T) {
	for _, in := range []string{"n[0-99999]", "r[0-9]n[00000-99999]", "n[0-99999]-ib", "n[0-999999]"} {
		allocated := testing.AllocsPerRun(10, func() {
			h, err := ParseHostlist(in)
			if err != nil || h.Len() < 100_000 || !h.Contains(h.At(h.Len()-1)) {
				t.Fatal(err, h.Len())
			}
		})
		assert.Less(t, allocated, 60.0, in)
	}
}

func TestHostlistIndex(t *testing.T) {
	tests := map[string]struct {
		list, name string
		want       int
	}{
		"first":                  {"n[1-3]", "n1", 0},
		"last":                   {"a,n[1-3],b", "b", 4},
		"first of duplicates":    {"n[1-3],n2", "n2", 1},
		"split elsewhere":        {"n0[1-2]", "n02", 1},
		"suffix":                 {"n[08-11]-ib", "n10-ib", 2},
		"padding matters":        {"n[1-3]", "n01", -1},
		"padding matters back":   {"n[01-03]", "n1", -1},
		"wider than the padding": {"n[08-101]", "n100", 92},
		"too wide":               {"n[08-101]", "n0100", -1},
		"not in range":           {"n[1-3]", "n4", -1},
		"prefix alone":           {"n[1-3]", "n", -1},
		"sign":                   {"n[1-3]", "n+1", -1},
		"digits inside only":     {"n[1-3]x", "n1y", -1},
		"beyond 64 bits":         {"n[1-3]", "n99999999999999999999", -1},
		"empty name":             {"n[1-3]", "", -1},
		"overlapping prefix":     {"n[1-3]n", "n", -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHostlist(tt.list)
			require.NoError(t, err)
			assert.Equal(t, tt.want, h.Index(tt.name))
			assert.Equal(t, tt.want >= 0, h.Contains(tt.name))
		})
	}
}

func TestHostlistSets(t *testing.T) {
	tests := map[string]struct{ a, b, union, intersect, minus string }{
		"overlap":         {"n[1-4]", "n[3-6]", "n[1-6]", "n[3-4]", "n[1-2]"},
		"order of a":      {"n[3,1,2]", "n[1-3]", "n[3,1-2]", "n[3,1-2]", ""},
		"disjoint":        {"a[1-2]", "b[1-2]", "a[1-2],b[1-2]", "", "a[1-2]"},
		"empty":           {"", "n1", "n1", "", ""},
		"by the empty":    {"n[1-2]", "", "n[1-2]", "", "n[1-2]"},
		"padding differs": {"n[1-2]", "n[01-02]", "n[1-2,01-02]", "", "n[1-2]"},
		"split elsewhere": {"n0[1-2]", "n[01-03]", "n[01-03]", "n[01-02]", ""},
		"duplicates":      {"n1,n1,n2", "n1", "n[1-2]", "n[1,1]", "n2"},
		"a hole":          {"n[1-9]", "n5", "n[1-9]", "n5", "n[1-4,6-9]"},
		"suffix":          {"n[1-3]-ib", "n2-ib", "n1-ib,n2-ib,n3-ib", "n2-ib", "n1-ib,n3-ib"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := ParseHostlist(tt.a)
			require.NoError(t, err)
			b, err := ParseHostlist(tt.b)
			require.NoError(t, err)
			assert.Equal(t, tt.union, a.Union(b).String(), "union")
			assert.Equal(t, tt.intersect, a.Intersect(b).String(), "intersect")
			assert.Equal(t, tt.minus, a.Minus(b).String(), "minus")
		})
	}
}

func TestHostlistBounds(t *testing.T) {
	h, err := ParseHostlist("n[1-3],x")
	require.NoError(t, err)
	assert.PanicsWithValue(t, "slurmconf: names 4:5 of a hostlist of 4", func() { h.At(4) })
	assert.PanicsWithValue(t, "slurmconf: names -1:0 of a hostlist of 4", func() { h.At(-1) })
	assert.PanicsWithValue(t, "slurmconf: names 3:2 of a hostlist of 4", func() { h.Slice(3, 2) })
}

func TestHostlistText(t *testing.T) {
	var v struct{ Nodes Hostlist }
	require.NoError(t, json.Unmarshal([]byte(`{"Nodes":"n1,n2"}`), &v))
	out, err := json.Marshal(v)
	require.NoError(t, err)
	assert.JSONEq(t, `{"Nodes":"n[1-2]"}`, string(out))
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"Nodes":"n[1"}`), &v), "this [ has no closing ]")
}

func TestHostlistWriteNames(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a\n", "n[1-2],b": "n1;n2;b\n"} {
		h, err := ParseHostlist(in)
		require.NoError(t, err)
		var out strings.Builder
		require.NoError(t, h.WriteNames(&out, ";"))
		assert.Equal(t, want, out.String())
	}
	h, err := ParseHostlist("n[0-99999]")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, h.WriteNames(&out, "\n"))
	assert.Equal(t, strings.Join(h.Expand(), "\n")+"\n", out.String())
	full := errors.New("disk full")
	assert.ErrorIs(t, h.WriteNames(failingWriter{full}, ","), full)
}

func TestParseHostlistErrors(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"backwards":             {"a,n[2-1]", `hostlist: "2-1" at position 5: the range runs backwards; write 1-2`},
		"unclosed":              {"a,n[1", `hostlist: "[1" at position 4: this [ has no closing ]`},
		"unclosed before more":  {"n[1,m2 m3", `hostlist: "[1,m2 m3" at position 2: this [ has no closing ]`},
		"nested":                {"n[1[2-3]]", `hostlist: "[1[2-3]]" at position 2: this [ has no closing ]`},
		"stray close":           {"n1]", `hostlist: "n1]" at position 1: this ] closes nothing; remove it or add the [ before it`},
		"stray close after":     {"n[1]]", `hostlist: "n[1]]" at position 1: this ] closes nothing; remove it or add the [ before it`},
		"empty brackets":        {"n[]", `hostlist: "[]" at position 2: empty range in brackets; write a number or first-last`},
		"empty item":            {"n[1,,2]", `hostlist: ",," at position 4: empty range in brackets; write a number or first-last`},
		"trailing comma":        {"n[1,]", `hostlist: ",]" at position 4: empty range in brackets; write a number or first-last`},
		"no end":                {"n[1-]", `hostlist: "1-" at position 3: a range needs a first and a last number`},
		"no start":              {"n[-1]", `hostlist: "-1" at position 3: a range needs a first and a last number`},
		"two dashes":            {"n[1-2-3]", `hostlist: "1-2-3" at position 3: not a number or a range of numbers first-last`},
		"step":                  {"n[0-10:2]", `hostlist: "0-10:2" at position 3: Slurm hostlists have no steps; list the numbers`},
		"letters":               {"n[1-a]", `hostlist: "1-a" at position 3: not a number or a range of numbers first-last`},
		"white space inside":    {"n[1, 2]", `hostlist: " 2" at position 5: not a number or a range of numbers first-last`},
		"sign":                  {"n[+1]", `hostlist: "+1" at position 3: not a number or a range of numbers first-last`},
		"function":              {"feature{gpu}", `hostlist: "feature{" at position 1: functions such as feature{x} are expanded by slurmctld alone; list the nodes`},
		"control character":     {"a\x00b", `hostlist: "a\x00" at position 1: control character in a node name`},
		"number too large":      {"n[99999999999999999999]", `hostlist: "99999999999999999999" at position 3: number too large`},
		"range too large":       {"n[0-999999999]x[1-2]", `hostlist: "0-999999999" at position 3: more than 1048576 names in one range`},
		"whole range of uint64": {"n[0-18446744073709551615]", `hostlist: "0-18446744073709551615" at position 3: more than 1048576 names in one range`},
		"list too large":        {"n[0-999999],m[0-999999]", `hostlist: "m[0-999999]" at position 13: more than 1048576 names in one list`},
		"product too large":     {"n[0-9999]x[0-9999]", `hostlist: "n[0-9999]x[0-9999]" at position 1: more than 1048576 names in one list`},
		"too many prefixes":     {"n[0-999]x[0-999]y[1]", `hostlist: "n[0-999]x[0-999]y[1]" at position 1: the brackets before the last stand for more than 262144 prefixes`},
		"prefixes over tokens":  {"n[0-199999]x[1],n[0-199999]x[1]", `hostlist: "n[0-199999]x[1]" at position 17: the brackets before the last stand for more than 262144 prefixes`},
		"name too long":         {strings.Repeat("n", 256), `hostlist: "` + strings.Repeat("n", 60) + `..." at position 1: a node name has at most 255 bytes`},
		"padding too long":      {"n[" + strings.Repeat("0", 255) + "-1]", `hostlist: "n[` + strings.Repeat("0", 58) + `..." at position 1: a node name has at most 255 bytes`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHostlist(tt.in)
			require.EqualError(t, err, tt.want)
			var he *HostlistError
			require.ErrorAs(t, err, &he)
			assert.Zero(t, h.Len())
		})
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
