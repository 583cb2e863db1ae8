package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	fileName = "history.jsonl"
	// maxFile is the size at which the file becomes the older one, in place of that. A boot and its end take about a kilobyte.
	maxFile = 8 << 20
	// maxQueue bounds the entries that wait to be written.
	maxQueue = 20_000
	// keepFree is what the file system must have left, or nothing is written: requests need it more.
	keepFree = 64 << 20
)

// errTight says that there is room, but not for us.
var errTight = fmt.Errorf("less than %d MiB are left there, which are for requests", keepFree>>20)

// Store appends entries to history.jsonl in a spool directory, one JSON object a line. A nil *Store keeps nothing.
type Store struct {
	path     string
	log      *slog.Logger
	max      int64
	keepFree uint64
	onLost   func(int)

	mu    sync.Mutex
	queue []Entry
	lost  int // since the last entry that says so
	ready chan struct{}

	writing sync.Mutex // holds what follows
	file    *os.File
	size    int64
	torn    bool // the file may end within a line
	failing bool
}

// NewStore returns a store for the spool in dir. onLost is told of entries that are lost; it may be nil.
func NewStore(dir string, log *slog.Logger, onLost func(int)) *Store {
	if onLost == nil {
		onLost = func(int) {}
	}
	return &Store{path: filepath.Join(dir, fileName), log: log, max: maxFile, keepFree: keepFree, onLost: onLost, ready: make(chan struct{}, 1)}
}

// Add takes entries to be written. It never waits.
func (s *Store) Add(entries ...Entry) {
	if s == nil || len(entries) == 0 {
		return
	}
	s.mu.Lock()
	taken := min(len(entries), maxQueue-len(s.queue))
	s.queue = append(s.queue, entries[:taken]...)
	s.lost += len(entries) - taken
	s.mu.Unlock()
	if taken < len(entries) {
		s.onLost(len(entries) - taken)
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Run writes what is added until ctx is done, and then what is left.
func (s *Store) Run(ctx context.Context) error {
	defer func() {
		s.writing.Lock()
		s.close()
		s.writing.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			s.Flush()
			return nil
		case <-s.ready:
			s.Flush()
		}
	}
}

// Flush writes what has been added.
func (s *Store) Flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	entries, lost := s.queue, s.lost
	s.queue, s.lost = nil, 0
	s.mu.Unlock()
	if len(entries) == 0 {
		s.lose(lost)
		return
	}
	for len(entries) > 0 {
		batch := entries
		if lost > 0 {
			batch = append([]Entry{{Time: entries[0].Time, What: EntriesLost, Times: lost}}, entries...)
		}
		lines, n := lines(batch)
		if err := s.write(lines); err != nil {
			if !s.failing {
				s.log.Warn("history cannot be written: the bridge goes on without, and slurmtide explain will not know what happens now", "file", s.path, "error", err)
			}
			s.failing = true
			s.onLost(len(entries))
			s.lose(lost + len(entries))
			return
		}
		if s.failing {
			s.failing = false
			s.log.Info("history can be written again", "file", s.path)
		}
		if lost > 0 {
			lost, n = 0, n-1
		}
		entries = entries[n:]
	}
}

// lose counts entries for the next one that says so.
func (s *Store) lose(n int) {
	s.mu.Lock()
	s.lost += n
	s.mu.Unlock()
}

// lines gives as many entries as fit into one write, at least one.
func lines(entries []Entry) ([]byte, int) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i := range entries {
		if buf.Len() >= 64<<10 {
			return buf.Bytes(), i
		}
		_ = enc.Encode(&entries[i]) // times, texts and numbers cannot fail
	}
	return buf.Bytes(), len(entries)
}

// write appends whole lines. What it could not write whole it takes back.
func (s *Store) write(lines []byte) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.size > 0 && s.size+int64(len(lines)) > s.max {
		if err := os.Rename(s.path, s.path+".1"); err != nil {
			return err
		}
		s.close()
		if err := s.open(); err != nil {
			return err
		}
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(s.file.Fd()), &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < s.keepFree {
		return errTight
	}
	if s.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := s.file.Write(lines)
	if err != nil {
		s.torn = s.torn || n > 0
		if n > 0 && s.file.Truncate(s.size) == nil {
			s.torn = false
		}
		return err
	}
	s.size += int64(n)
	s.torn = false
	return nil
}

// open opens the file, anew if somebody has moved it away or cut it.
func (s *Store) open() error {
	named, err := os.Lstat(s.path)
	if s.file != nil {
		if mine, mineErr := s.file.Stat(); err == nil && mineErr == nil && os.SameFile(named, mine) && mine.Size() == s.size {
			return nil
		}
		s.close()
	}
	if err == nil && !named.Mode().IsRegular() {
		return errors.New("it is not a regular file; move it away")
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.size, s.torn = f, info.Size(), false
	if s.size > 0 {
		last := make([]byte, 1)
		_, err := f.ReadAt(last, s.size-1)
		s.torn = err != nil || last[0] != '\n'
	}
	return nil
}

func (s *Store) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
