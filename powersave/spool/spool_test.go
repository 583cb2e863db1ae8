package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is renamed into a directory while it is listed shows or not, whatever its name.
func TestListingIsInOrder(t *testing.T) {
	const first, second, third = "1700000000000000001-0000007.json", "1700000000000000002-0000003.json", "1700000000000000003-0000005.json"
	tests := map[string]struct{ listings, want []string }{
		"nothing":                    {listings: []string{""}},
		"a smaller one was missed":   {listings: []string{second, first + " " + second}, want: []string{first, second}},
		"a larger one waits":         {listings: []string{first, first + " " + third}, want: []string{first}},
		"one came after a draft":     {listings: []string{".tmp-1", first}},
		"one was done":               {listings: []string{first + " " + second, second}, want: []string{second}},
		"what is none is no bound":   {listings: []string{second + " core", first + " " + second + " " + third + " core"}, want: []string{first, second, "core"}},
		"what is none is not wanted": {listings: []string{"core", first + " core"}, want: []string{"core"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			got, err := inOrder(func() ([]fs.DirEntry, error) {
				clear(files)
				for _, name := range strings.Fields(test.listings[0]) {
					files[name] = &fstest.MapFile{}
				}
				test.listings = test.listings[1:]
				return files.ReadDir(".")
			})
			require.NoError(t, err)
			var names []string
			for _, e := range got {
				names = append(names, e.Name())
			}
			assert.Equal(t, test.want, names)
			assert.Empty(t, test.listings, "listed once more")
		})
	}
}

// Enough wait that one listing takes several calls of the system, between which requests come.
func TestReadInOrderWhileWritten(t *testing.T) {
	dir := newDir(t)
	s, err := Open(dir)
	require.NoError(t, err)
	submit := func() {
		_, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
		assert.NoError(t, err)
	}
	for range 400 {
		submit()
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 200 {
				submit()
			}
		})
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()

	var ids []string
	for last := false; !last; {
		select {
		case <-written:
			last = true
		default:
		}
		reqs, corrupt, err := s.Pending(func(id string) bool { return slices.Contains(ids, id) })
		require.NoError(t, err)
		require.Empty(t, corrupt)
		for _, r := range reqs {
			ids = append(ids, r.ID)
		}
	}
	assert.Len(t, ids, 1200)
	assert.True(t, slices.IsSorted(ids), "a request was read after one with a larger ID")
}

func TestCorruptEntriesAreSetAside(t *testing.T) {
	const id = "1700000000000000000-0000007"
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte(content), 0o600)) }
	}
	tests := map[string]struct {
		name    string // default: a valid one
		make    func(t *testing.T, path string)
		message string
	}{
		"empty":           {make: write(""), message: "not a request: unexpected end of JSON input"},
		"cut short":       {make: write(`{"version":1,"kind":"resume","nodes":"a"`), message: "not a request"},
		"binary":          {make: write("\x00\x01"), message: "not a request"},
		"wrong type":      {make: write(`{"version":"1"}`), message: "not a request"},
		"no version":      {make: write(`{"kind":"resume","nodes":"a"}`), message: "written with version 0"},
		"newer":           {make: write(`{"version":2,"kind":"resume","nodes":"a"}`), message: "written with version 2, this program knows versions 1 to 1"},
		"unknown kind":    {make: write(`{"version":1,"kind":"reboot","nodes":"a"}`), message: `unknown kind "reboot"`},
		"no nodes":        {make: write(`{"version":1,"kind":"resume"}`), message: "not a hostlist: it is empty"},
		"bad nodes":       {make: write(`{"version":1,"kind":"resume","nodes":"a;b"}`), message: `character ';' at byte 1`},
		"bad resume file": {make: write(`{"version":1,"kind":"resume","nodes":"a","resume_file":[]}`), message: "does not hold a JSON object"},
		"strange name":    {name: "core", make: write("x"), message: "does not have the form <id>.json"},
		"directory":       {make: func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, message: "not a regular file"},
		"pipe":            {make: func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, message: "not a regular file"},
		"link":            {make: func(t *testing.T, path string) { require.NoError(t, os.Symlink("/etc/passwd", path)) }, message: "not a regular file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			good, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
			require.NoError(t, err)
			s, err := Open(dir)
			require.NoError(t, err)
			if test.name == "" {
				test.name = id + ".json"
			}
			test.make(t, filepath.Join(s.requests(), test.name))

			reqs, corrupt, err := s.Pending(nil)
			require.NoError(t, err)
			require.Len(t, reqs, 1, "the good one is not held up")
			assert.Equal(t, good, reqs[0].ID)
			require.Len(t, corrupt, 1)
			require.ErrorContains(t, corrupt[0].Err, test.message)
			assert.Equal(t, filepath.Join(s.bad(), test.name), corrupt[0].Path)
			_, err = os.Lstat(corrupt[0].Path)
			require.NoError(t, err)

			_, corrupt, err = s.Pending(nil)
			require.NoError(t, err)
			assert.Empty(t, corrupt, "reported once")
			st, err := s.Stats()
			require.NoError(t, err)
			assert.Equal(t, 1, st.Depth)
			assert.Equal(t, 1, st.Bad)
		})
	}
}

func TestUnknownFieldsOfARequestAreIgnored(t *testing.T) {
	r, err := decodeRequest([]byte(`{"version":1,"kind":"suspend","nodes":"a","later":{"x":1}}`))
	require.NoError(t, err)
	assert.Equal(t, "a", r.Nodes)
}

func TestBadStaysSmall(t *testing.T) {
	s, err := Open(newDir(t))
	require.NoError(t, err)
	s.maxBad = 3
	for i := range 5 {
		require.NoError(t, os.WriteFile(filepath.Join(s.requests(), fmt.Sprintf("bad-%d", i)), nil, 0o600))
	}
	_, corrupt, err := s.Pending(nil)
	require.NoError(t, err)
	assert.Len(t, corrupt, 5)
	left, err := os.ReadDir(s.bad())
	require.NoError(t, err)
	require.Len(t, left, 3)
	assert.Equal(t, "bad-2", left[0].Name(), "the oldest go first")
}

func TestPendingLeavesOutWhatIsKnown(t *testing.T) {
	dir := newDir(t)
	first, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
	require.NoError(t, err)
	second, err := Submit(dir, Request{Kind: KindResume, Nodes: "b"})
	require.NoError(t, err)
	s, err := Open(dir)
	require.NoError(t, err)
	reqs, _, err := s.Pending(func(id string) bool { return id == first })
	require.NoError(t, err)
	require.Len(t, reqs, 1)
	assert.Equal(t, second, reqs[0].ID)
	assert.Equal(t, idNumber(second), reqs[0].Sequence())
}

func TestSetAsideAfterReading(t *testing.T) {
	dir := newDir(t)
	id, err := Submit(dir, Request{Kind: KindResume, Nodes: "a"})
	require.NoError(t, err)
	s, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.SetAside(id, errors.New("no such node")))
	assert.Empty(t, pending(t, dir))
	assert.FileExists(t, filepath.Join(s.bad(), id+".json"))
	require.ErrorContains(t, s.SetAside("../version", errors.New("x")), "is not the ID of a request")
	assert.ErrorIs(t, s.SetAside(id, errors.New("again")), os.ErrNotExist)
}

func TestDoneAndStats(t *testing.T) {
	dir := newDir(t)
	w := newWriter(dir)
	var ids []string
	for i := range 3 {
		w.now = func() time.Time { return time.Unix(int64(1000+i), 0) }
		id, err := w.submit(&Request{Kind: KindResume, Nodes: "a"})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	s, err := Open(dir)
	require.NoError(t, err)
	st, err := s.Stats()
	require.NoError(t, err)
	size := st.Bytes / 3
	assert.Equal(t, Stats{Depth: 3, Oldest: time.Unix(1000, 0), Bytes: 3 * size}, st)
	assert.Positive(t, size)

	require.NoError(t, s.Done(ids[0]))
	require.NoError(t, s.Done(ids[0]), "twice is no error")
	st, err = s.Stats()
	require.NoError(t, err)
	assert.Equal(t, Stats{Depth: 2, Oldest: time.Unix(1001, 0), Bytes: 2 * size}, st)
	seq, err := s.lock(0)
	require.NoError(t, err)
	defer seq.unlock()
	assert.EqualValues(t, 2, seq.count)
	assert.Equal(t, 2*size, seq.bytes)

	for _, id := range []string{"", "..", "../version", "1", strings.Repeat("1", 19) + "-/../../x"} {
		assert.ErrorContains(t, s.Done(id), "is not the ID of a request", id)
	}
}

func TestOpenSweepsOldLeftovers(t *testing.T) {
	dir := newDir(t)
	s, err := Open(dir)
	require.NoError(t, err)
	old, fresh := filepath.Join(s.requests(), tempPrefix+"old"), filepath.Join(s.requests(), tempPrefix+"fresh")
	for _, f := range []string{old, fresh} {
		require.NoError(t, os.WriteFile(f, []byte("half"), 0o600))
	}
	past := time.Now().Add(-2 * staleTemp)
	require.NoError(t, os.Chtimes(old, past, past))
	s, err = Open(dir)
	require.NoError(t, err)
	assert.NoFileExists(t, old)
	assert.FileExists(t, fresh, "its writer may be alive")
	reqs, corrupt, err := s.Pending(nil)
	require.NoError(t, err)
	assert.Empty(t, reqs)
	assert.Empty(t, corrupt)
}

func TestCheckHostlist(t *testing.T) {
	tests := map[string]string{
		"cpu-[0-49]":                       "",
		"a":                                "",
		"rack[1-3]node[01-04]-x":           "",
		"a,b,c[1,3,5-7]":                   "",
		"n1.example.org,10_x":              "",
		"_a":                               "",
		"":                                 "it is empty",
		"[]":                               "it names no node",
		",a":                               "it begins with ','",
		"-h":                               "it begins with '-'",
		"--help":                           "it begins with '-'",
		"a b":                              `character ' ' at byte 1: "a b"`,
		"a;rm":                             "character ';' at byte 1",
		"a/b":                              "character '/' at byte 1",
		"$(x)":                             "character '$' at byte 0",
		"(null)":                           "character '(' at byte 0",
		"a\nb":                             `character '\n' at byte 1: "a\nb"`,
		"a\x00":                            `character '\x00'`,
		"knoten-ä":                         "at byte 7",
		"a[1":                              "it ends inside a bracket",
		"a]":                               "unbalanced ']' at byte 1",
		"a[[1]]":                           "unbalanced '[' at byte 2",
		strings.Repeat("a", maxHostlist+1): "it has 131073 bytes",
	}
	for list, want := range tests {
		t.Run(shorten(list), func(t *testing.T) {
			err := checkHostlist(list)
			if want == "" {
				assert.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errHostlist)
			assert.ErrorContains(t, err, want)
		})
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"resume","started":"2026-03-01T12:00:00Z","nodes":"cpu-[0-9]","resume_file":{"jobs":[]}}`))
	f.Add([]byte(`{"version":1,"kind":"suspend","nodes":"a","resume_file":null}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRequest(data)
		if err != nil {
			return
		}
		require.True(t, r.Kind.known())
		require.NoError(t, checkHostlist(r.Nodes))
		if r.ResumeFile != nil {
			require.True(t, json.Valid(r.ResumeFile))
		}
	})
}

func FuzzEncodeHead(f *testing.F) {
	f.Add("cpu-[0-9]", "/etc/slurm/slurm.conf", "", int64(0))
	f.Add("a", `"nodes":""`, `\"`, int64(1))
	f.Fuzz(func(t *testing.T, nodes, conf, fileError string, when int64) {
		if checkHostlist(nodes) != nil {
			return
		}
		want := Request{Version: Version, Kind: KindResume, Started: time.Unix(0, when).UTC(), Nodes: nodes, SlurmConf: conf, ResumeFileError: fileError}
		head, err := encodeHead(&want)
		require.NoError(t, err)
		// What encoding/json makes of the same, invalid UTF-8 replaced included.
		plain, err := json.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, string(plain), string(head)+"}")
	})
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"a":[1,-2.5e+3,true,false,null,"x\u00e9\n"]}`, ` { "a" : { } , "b" : [ ] } `, `[[[]]]`, `{"a":1,}`, `[1,]`, `{,}`, `[}`, `{]`,
		`"0123456789abcdef\"0123456789"`, `"` + "\x7f\x80\xff" + `01234567"`, "\"a\nb1234567890\"", `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `-0`, `0.0`, `tru`, `truee`,
		`nul`, `{"a"}`, `{"a":}`, `{1:2}`, `"\x"`, `"\u12g4"`, `"\`, `"`, `""x`, `1 2`, strings.Repeat("[", 100), strings.Repeat(`{"a":[`, 50) + strings.Repeat("]}", 50),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		require.Equal(t, json.Valid(data), checkJSON(data) == nil)
	})
}

func TestCheckJSONDepth(t *testing.T) {
	for depth, want := range map[int]bool{maxJSONDepth: true, maxJSONDepth + 1: false} {
		data := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		assert.Equal(t, want, checkJSON(data) == nil, depth)
		assert.Equal(t, want, json.Valid(data), depth)
	}
}
