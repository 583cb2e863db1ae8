package history

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTail(t *testing.T) {
	line := func(n int) string {
		return fmt.Sprintf(`{"time":"2026-05-01T12:00:00Z","what":"PodCreated","node":"cpu-%d"}`+"\n", n)
	}
	lines := func(from, to int) (text string) {
		for n := from; n < to; n++ {
			text += line(n)
		}
		return text
	}
	size := int64(len(line(0)))
	nodes := func(from, to int) (names []string) {
		for n := from; n < to; n++ {
			names = append(names, fmt.Sprint("cpu-", n))
		}
		return names
	}
	for name, test := range map[string]struct {
		older, newer string
		most         int64
		want         []string
	}{
		"none":                    {"", "", 1000, nil},
		"all":                     {"", lines(0, 3), 1000, nodes(0, 3)},
		"the end":                 {"", lines(0, 9), 3*size + 1, nodes(6, 9)},
		"the end, by whole lines": {"", lines(0, 9), 3 * size, nodes(7, 9)}, // whether the first of them is whole cannot be seen
		"both files":              {lines(0, 4), lines(4, 6), 1000, nodes(0, 6)},
		"the end of both":         {lines(0, 4), lines(4, 6), 4 * size, nodes(3, 6)},
		"the newer alone":         {lines(0, 4), lines(4, 6), 2 * size, nodes(4, 6)},
		"a line without an end":   {"", lines(0, 2) + `{"what":"Pod`, 1000, nodes(0, 2)},
		"no entries":              {"", "what?\n{}\n" + lines(0, 1), 1000, nodes(0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{fileName + ".1": test.older, fileName: test.newer} {
				if text != "" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
				}
			}
			entries, err := NewTail(dir, test.most).Newest()
			require.NoError(t, err)
			var got []string
			for _, e := range entries {
				got = append(got, e.Node)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// What is written between two looks is seen by the second one, also when the file has become the older one.
func TestTailFollows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	tail := NewTail(dir, 1000)
	look := func() int {
		entries, err := tail.Newest()
		require.NoError(t, err)
		return len(entries)
	}
	entry := []byte(`{"what":"PodGone"}` + "\n")
	assert.Zero(t, look())
	require.NoError(t, os.WriteFile(path, entry, 0o600))
	assert.Equal(t, 1, look())
	assert.Equal(t, 1, look())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(entry)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Equal(t, 2, look())
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, os.WriteFile(path, entry, 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)))
	assert.Equal(t, 3, look())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Remove(path+".1"))
	assert.Zero(t, look())
}

// That a file is another one shows in any one of its size, its time and itself.
func TestTailSeesEachChange(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1_800_000_000, 0)
	path := filepath.Join(dir, fileName)
	write := func(path, node string, at time.Time) {
		require.NoError(t, os.WriteFile(path, []byte(`{"what":"PodGone","node":"`+node+"\"}\n"), 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	tail := NewTail(dir, 1000)
	look := func() string {
		entries, err := tail.Newest()
		require.NoError(t, err)
		require.Len(t, entries, 1)
		return entries[0].Node
	}
	write(path, "a", at)
	assert.Equal(t, "a", look())
	write(path, "bb", at)
	assert.Equal(t, "bb", look(), "another size")
	write(path, "cc", at.Add(time.Second))
	assert.Equal(t, "cc", look(), "another time")
	write(path+".new", "dd", at.Add(time.Second))
	require.NoError(t, os.Rename(path+".new", path))
	assert.Equal(t, "dd", look(), "another file")
}

// A link is not followed: who may write into the spool could have anything read.
func TestTailFails(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, fileName)))
	_, err := NewTail(dir, 1000).Newest()
	require.ErrorContains(t, err, "reading history: ")
}
