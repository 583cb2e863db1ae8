package slurmconf

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawNames draws names that often follow each other, repeat or differ by a zero only.
func drawNames(t *rapid.T, label string) []string {
	name := rapid.Custom(func(t *rapid.T) string {
		prefix := rapid.SampledFrom([]string{"n", "n0", "r1n", "r01n", "gpu-", ""}).Draw(t, "prefix")
		number := rapid.OneOf(
			rapid.StringMatching(`0{0,2}[0-9]{1,2}`),
			rapid.SampledFrom([]string{"9", "10", "99", "100", "0100", "18446744073709551615", "18446744073709551616"}),
		).Draw(t, "number")
		return prefix + number + rapid.SampledFrom([]string{"", "", "", "-ib", "x"}).Draw(t, "suffix")
	})
	return rapid.SliceOfN(name, 0, 30).Draw(t, label)
}

func TestHostlistKeepsNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := drawNames(t, "names")
		h := NewHostlist(names...)
		require.Equal(t, len(names), h.Len())
		require.Equal(t, names, h.Expand())
		require.Equal(t, names, slices.AppendSeq([]string{}, h.All()))

		again, err := ParseHostlist(h.String())
		require.NoError(t, err)
		require.Equal(t, names, again.Expand())
		require.Equal(t, h.String(), again.String())

		from := rapid.IntRange(0, len(names)).Draw(t, "from")
		to := rapid.IntRange(from, len(names)).Draw(t, "to")
		require.Equal(t, names[from:to], h.Slice(from, to).Expand())
		require.Equal(t, names, h.Slice(0, from).Append(h.Slice(from, len(names))).Expand())
		for i, name := range names {
			require.Equal(t, name, h.At(i))
			require.Equal(t, slices.Index(names, name), h.Index(name))
		}
	})
}

func TestHostlistSetsLikeMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNames(t, "a"), drawNames(t, "b")
		union, intersect, minus := []string{}, []string{}, []string{}
		for _, name := range a {
			if slices.Contains(b, name) {
				intersect = append(intersect, name)
			} else {
				minus = append(minus, name)
			}
		}
		for _, name := range slices.Concat(a, b) {
			if !slices.Contains(union, name) {
				union = append(union, name)
			}
		}
		ha, hb := NewHostlist(a...), NewHostlist(b...)
		require.Equal(t, union, ha.Union(hb).Expand())
		require.Equal(t, intersect, ha.Intersect(hb).Expand())
		require.Equal(t, minus, ha.Minus(hb).Expand())
	})
}

// drawHostlist draws a well-formed list in Slurm's grammar, of least or more names.
func drawHostlist(t *rapid.T, least int) string {
	item := rapid.Custom(func(t *rapid.T) string {
		lo := rapid.IntRange(0, 120).Draw(t, "lo")
		text := string(appendNumber(nil, uint64(lo), rapid.IntRange(1, 4).Draw(t, "width")))
		if rapid.Bool().Draw(t, "range") {
			hi := lo + rapid.IntRange(0, 12).Draw(t, "more")
			text += "-" + string(appendNumber(nil, uint64(hi), rapid.IntRange(1, 4).Draw(t, "width of the end")))
		}
		return text
	})
	text := rapid.SampledFrom([]string{"n", "n0", "r1-", "", "x10y", "01"})
	name := rapid.Custom(func(t *rapid.T) string {
		s := text.Draw(t, "text")
		brackets := rapid.IntRange(0, 3).Draw(t, "brackets")
		if brackets == 0 && s == "" {
			s = "plain"
		}
		for range brackets {
			s += "["
			for i, it := range rapid.SliceOfN(item, 1, 3).Draw(t, "items") {
				if i > 0 {
					s += ","
				}
				s += it
			}
			s += "]" + text.Draw(t, "text after")
		}
		return s
	})
	s := ""
	for _, n := range rapid.SliceOfN(name, least, 4).Draw(t, "names") {
		s += n + rapid.SampledFrom([]string{",", ",,", " ", "\n", "\t,"}).Draw(t, "separator")
	}
	return s
}

func TestParseHostlistReadsItsGrammar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkHostlist(t, drawHostlist(t, 0)) })
}

func FuzzParseHostlist(f *testing.F) {
	for _, s := range []string{
		"", "n1", "n[1-3,5]", "n[08-11]-ib,x", "r[0-1]n[01-10,12]", "a[0-1]b[0-1]c[0-1]", "n[1", "n]1", "n[2-1]", "n[1,,2]",
		"n[0-1048575]", "n[0-999]m[0-999]o[0-999]", "n[18446744073709551614-18446744073709551615]", " ,\n", "n99999999999999999999", "n[0-9:2]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkHostlist(t, s) })
}

// checkHostlist checks what holds for every string.
func checkHostlist(t require.TestingT, s string) {
	h, err := ParseHostlist(s)
	if err != nil {
		var bad *HostlistError
		require.ErrorAs(t, err, &bad)
		require.GreaterOrEqual(t, bad.Offset, 0)
		require.Less(t, bad.Offset, len(s))
		require.NotEmpty(t, bad.Text)
		require.Zero(t, h.Len())
		return
	}
	require.LessOrEqual(t, h.Len(), MaxHostlistNames)
	if h.Len() > 20_000 {
		h = h.Slice(h.Len()-20_000, h.Len()) // enough to look at
	}
	names := h.Expand()
	require.Len(t, names, h.Len())
	require.Equal(t, names, slices.AppendSeq([]string{}, h.All()))
	again, err := ParseHostlist(h.String())
	require.NoError(t, err)
	require.Equal(t, names, again.Expand())
	compressed := CompressHostlist(names)
	again, err = ParseHostlist(compressed)
	require.NoError(t, err)
	require.Equal(t, names, again.Expand())
	require.Equal(t, compressed, again.String())
	for i, name := range names[:min(len(names), 50)] {
		require.Equal(t, slices.Index(names, name), h.Index(name))
		require.Equal(t, name, h.At(i))
	}
}

func FuzzParseResumeFile(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"jobs":[{"job_id":1,"nodes_alloc":"n[1-2]","priority":4}],"all_nodes_resume":"n1"}`,
		`{"jobs":[{"job_id":1,"nodes_alloc":3,"priority":-4},null,{"job_id":"x"}],"all_nodes_resume":"n[1","more":{"a":[1e9,null]}}`,
		`{"jobs":{},"all_nodes_resume":null}`, "{\"jobs\":[{\"job_id\":7,\"extra\":\"\xff<&\u2028\"}]}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseResumeFile(data)
		if err != nil {
			assert.False(t, json.Valid(data) && len(data) > 0 && slices.Contains(data, '{') && data[0] == '{', "a JSON object was refused: %v", err)
			return
		}
		written, err := json.Marshal(file)
		require.NoError(t, err)
		again, err := ParseResumeFile(written)
		require.NoError(t, err)
		require.Len(t, again.Jobs, len(file.Jobs))
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
		for _, j := range file.Jobs {
			require.NotZero(t, j.JobID)
		}
	})
}
