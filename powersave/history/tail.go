package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Tail reads the newest entries, whatever they tell of, again and again. It belongs to one goroutine.
type Tail struct {
	path string
	most int64

	file    os.FileInfo // as it was when entries were read
	entries []Entry
}

// NewTail looks at the last so many bytes of the history of the spool in dir.
func NewTail(dir string, most int64) *Tail {
	return &Tail{path: filepath.Join(dir, fileName), most: most}
}

// Newest returns the newest entries, in the order of their writing. They are read only when the file has changed since the last time, and must not be changed. That there is no
// history is no error.
func (t *Tail) Newest() ([]Entry, error) {
	files, err := openBoth(t.path)
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	for _, f := range files {
		defer f.Close()
	}
	if len(files) == 0 {
		t.file, t.entries = nil, nil
		return nil, nil
	}
	now, err := files[len(files)-1].Stat()
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	if t.file != nil && os.SameFile(t.file, now) && t.file.Size() == now.Size() && t.file.ModTime().Equal(now.ModTime()) {
		return t.entries, nil
	}
	text, left := []byte{}, t.most
	whole := true
	for i := len(files) - 1; i >= 0 && left > 0 && whole; i-- {
		var part []byte
		if part, whole, err = last(files[i], left); err != nil {
			return nil, fmt.Errorf("reading history: %w", err)
		}
		left -= int64(len(part))
		text = append(part, text...)
	}
	t.file, t.entries = now, entriesOf(text)
	return t.entries, nil
}

// last reads lines from the end of the file, so many bytes at most. whole: these are all.
func last(f *os.File, most int64) (text []byte, whole bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(0, info.Size()-most)
	if text, err = io.ReadAll(io.NewSectionReader(f, from, info.Size()-from)); err != nil {
		return nil, false, err
	}
	if from > 0 { // within a line, most likely
		_, text, _ = bytes.Cut(text, []byte{'\n'})
	}
	return text[:bytes.LastIndexByte(text, '\n')+1], from == 0, nil // what has no end is not written yet, or never will be
}

// entriesOf leaves out lines that are no entries.
func entriesOf(text []byte) []Entry {
	var all []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.What != "" {
			all = append(all, e)
		}
	}
	return all
}
