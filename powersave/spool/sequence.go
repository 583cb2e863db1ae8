package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sequence is what the writers and the reader share under the lock on its file.
// Only last matters for order; count and bytes keep Submit from listing the directory
// each time. They may drift when a program is killed; whoever reaches a limit recounts.
type sequence struct {
	last  int64 // nanoseconds since 1970 in the last ID given out
	count int64 // requests waiting
	bytes int64 // their size
}

// sequenceFormat has a fixed length, so that a rewrite replaces the old text in one write.
const sequenceFormat = "%019d %010d %019d\n"

// next advances the sequence and returns the ID's number: the clock's, unless that
// is not after the last one.
func (s *sequence) next(now time.Time) int64 {
	s.last = max(now.UnixNano(), s.last+1, 1)
	return s.last
}

// add changes the running count.
func (s *sequence) add(requests, bytes int64) {
	s.count = max(0, s.count+requests)
	s.bytes = max(0, s.bytes+bytes)
}

// lockedSequence is the open sequence file.
type lockedSequence struct {
	sequence
	file *os.File
	held bool // false: somebody sat on the lock longer than we may wait
}

// lockWait is how long a program waits for the lock. Holders need microseconds, or some
// 100 ms for a recount of a huge backlog; one that is stopped must not stop requests.
const lockWait = 3 * time.Second

// lock opens the sequence file, waits for its lock at most that long and reads it. When the lock cannot be
// had it goes on without: the order of requests is worth less than the requests.
func (l layout) lock(wait time.Duration) (*lockedSequence, error) {
	f, err := os.OpenFile(l.sequenceFile(), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening sequence: %w", err)
	}
	s := &lockedSequence{file: f}
	for deadline, pause := time.Now().Add(wait), 100*time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			s.held = true
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(pause)
	}
	if err := s.read(); err != nil {
		if err := s.recount(l); err != nil {
			s.unlock()
			return nil, err
		}
	}
	return s, nil
}

// unlock releases the lock by closing the file.
func (s *lockedSequence) unlock() { s.file.Close() }

func (s *lockedSequence) read() error {
	var buf [64]byte
	n, err := s.file.ReadAt(buf[:], 0)
	if n == 0 {
		return err
	}
	fields := strings.Fields(string(buf[:n]))
	if len(fields) != 3 {
		return errors.New("sequence file is torn")
	}
	for i, p := range []*int64{&s.last, &s.count, &s.bytes} {
		if *p, err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return err
		}
	}
	return nil
}

// write stores the sequence, unless we do not hold the lock.
func (s *lockedSequence) write() error {
	if !s.held {
		return nil
	}
	if _, err := s.file.WriteAt(fmt.Appendf(nil, sequenceFormat, s.last, s.count, s.bytes), 0); err != nil {
		return fmt.Errorf("writing sequence: %w", err)
	}
	return nil
}

// recount takes count and bytes from the directory, and makes sure that last is not
// before any ID in it.
func (s *lockedSequence) recount(l layout) error {
	s.count, s.bytes = 0, 0
	return l.eachWaiting(func(id string, size int64) {
		s.add(1, size)
		s.last = max(s.last, idNumber(id))
	})
}

// eachWaiting calls f with the ID and size of every waiting request, in the order of the IDs.
func (l layout) eachWaiting(f func(id string, size int64)) error {
	entries, err := os.ReadDir(l.requests())
	if err != nil {
		return fmt.Errorf("counting requests: %w", err)
	}
	for _, e := range entries {
		id, ok := requestID(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("counting requests: %w", err)
		}
		f(id, info.Size())
	}
	return nil
}

// formatID makes an ID from the sequence number and the writer's process ID, which keeps
// IDs apart even when the lock could not be had.
func formatID(number int64, pid int) string { return fmt.Sprintf("%019d-%07d", number, pid) }

// validID reports whether id has the form that formatID gives.
func validID(id string) bool {
	if len(id) < 27 || len(id) > 30 || id[19] != '-' {
		return false
	}
	for i := range len(id) {
		if i != 19 && (id[i] < '0' || id[i] > '9') {
			return false
		}
	}
	return true
}

// idNumber returns the sequence number in a valid ID: nanoseconds since 1970.
func idNumber(id string) int64 {
	n, _ := strconv.ParseInt(id[:19], 10, 64)
	return n
}

// requestID returns the ID in a request file's name.
func requestID(name string) (string, bool) {
	id, ok := strings.CutSuffix(name, ".json")
	return id, ok && validID(id)
}
