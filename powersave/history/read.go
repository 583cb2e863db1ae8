package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

// maxLine bounds one entry; what is longer was not written by us.
const maxLine = 1 << 20

// Found is what Read finds.
type Found struct {
	Entries []Entry `json:"entries"`           // in the order of their writing
	LeftOut int     `json:"leftOut,omitempty"` // older ones, over the number asked for
	Broken  int     `json:"broken,omitempty"`  // lines that are no entries: a bridge was killed while it wrote, most likely
}

// Read returns what the history of the spool in dir tells of s, the newest entries up to most. It needs no bridge.
// That there is no history is no error.
func Read(dir string, s Subject, most int) (Found, error) {
	var f Found
	files, err := openBoth(filepath.Join(dir, fileName))
	if err != nil {
		return f, fmt.Errorf("reading history: %w", err)
	}
	for _, file := range files {
		defer file.Close()
		if err := f.read(file, func(e *Entry) bool { return e.about(s) }, most); err != nil {
			return f, fmt.Errorf("reading history: %w", err)
		}
	}
	f.cut(most)
	return f, nil
}

// DynamicIn returns what the history of the spool in dir tells of pods of mode Dynamic, in the order of its writing.
func DynamicIn(dir string) ([]Entry, error) {
	var f Found
	files, err := openBoth(filepath.Join(dir, fileName))
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	for _, file := range files {
		defer file.Close()
		if err := f.read(file, func(e *Entry) bool { return e.Dynamic && e.PodUID != "" }, math.MaxInt/2); err != nil {
			return nil, fmt.Errorf("reading history: %w", err)
		}
	}
	return f.Entries, nil
}

// openBoth opens the older file and the newer one. Between two looks the newer may become the older: then it is tried again.
func openBoth(path string) (files []*os.File, err error) {
	for range 5 {
		var newer, older *os.File
		if newer, err = openFile(path); err == nil {
			older, err = openFile(path + ".1")
		}
		files = nil
		for _, f := range []*os.File{older, newer} {
			if f != nil {
				files = append(files, f)
			}
		}
		if err == nil && (len(files) < 2 || !sameFile(older, newer)) {
			return files, nil
		}
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("it is being rotated all the time")
}

func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

func sameFile(a, b *os.File) bool {
	i, err := a.Stat()
	j, otherErr := b.Stat()
	return err == nil && otherErr == nil && os.SameFile(i, j)
}

func (f *Found) read(from io.Reader, wanted func(*Entry) bool, most int) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return nil // what stands there without an end is not written yet, or never will be
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil || e.What == "" {
			f.Broken++
			continue
		}
		if wanted(&e) {
			f.Entries = append(f.Entries, e)
		}
		if len(f.Entries) >= 2*most {
			f.cut(most)
		}
	}
}

func (f *Found) cut(most int) {
	if over := len(f.Entries) - most; over > 0 {
		f.LeftOut += over
		f.Entries = append(f.Entries[:0], f.Entries[over:]...)
	}
}

// readLine returns the next line that has an end; of one that is too long only its beginning.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) < maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
