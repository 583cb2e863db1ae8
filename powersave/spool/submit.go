package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Limits of what may wait in a spool. They are far above what a cluster with a bridge
// that is down for a week writes, and keep a broken one from filling the disk.
const (
	MaxRequests = 100_000
	MaxBytes    = 1 << 30
)

// ErrFull is returned by Submit when the spool has reached its limits.
var ErrFull = errors.New("spool is full")

// Submit writes r durably into the spool in dir and returns its ID. It creates the spool
// when it can, and fills in Version and ID. A ResumeFile that is not a JSON object is
// dropped and ResumeFileError says so: the nodes still have to come up. When an error is
// returned, nothing of the request is visible to the reader, except when syncing the
// directory fails: then the request stands but may not survive a crash of the machine.
func Submit(dir string, r Request) (id string, err error) {
	return newWriter(dir).submit(&r)
}

// writer is Submit with its surroundings. Tests set step to stop or fail between two steps.
type writer struct {
	layout
	maxRequests, maxBytes int64
	now                   func() time.Time
	lockWait              time.Duration
	step                  func(name string) error
}

func newWriter(dir string) writer {
	return writer{layout: layout{dir}, maxRequests: MaxRequests, maxBytes: MaxBytes, now: time.Now, lockWait: lockWait}
}

// at is called before each step.
func (w writer) at(name string) error {
	if w.step == nil {
		return nil
	}
	return w.step(name)
}

func (w writer) submit(r *Request) (string, error) {
	if err := checkHostlist(r.Nodes); err != nil {
		return "", err
	}
	if !r.Kind.known() {
		return "", fmt.Errorf("unknown kind of request %.40q", r.Kind)
	}
	if r.ResumeFile != nil {
		if err := checkResumeFile(r.ResumeFile); err != nil {
			r.ResumeFile, r.ResumeFileError = nil, err.Error()
		}
	}
	r.Version = Version
	if err := w.prepare(); err != nil {
		return "", err
	}
	tmp, size, err := w.writeTemp(r)
	if err != nil {
		return "", fmt.Errorf("writing request to %s: %w", w.requests(), err)
	}
	id, err := w.publish(tmp, size)
	if err != nil {
		os.Remove(tmp)
		return "", err
	}
	r.ID = id
	if err := w.at("sync directory"); err != nil {
		return "", err
	}
	if err := syncDir(w.requests()); err != nil {
		return "", fmt.Errorf("request %s may not survive a crash: %w", id, err)
	}
	return id, nil
}

// writeTemp writes the request under a name that readers ignore, and syncs it. It leaves
// no file behind when it fails.
func (w writer) writeTemp(r *Request) (path string, size int64, err error) {
	head, err := encodeHead(r)
	if err != nil {
		return "", 0, err
	}
	parts := [][]byte{head, []byte("}\n")}
	if r.ResumeFile != nil {
		parts = [][]byte{head, []byte(`,"resume_file":`), r.ResumeFile, []byte("}\n")}
	}
	if err := w.at("create"); err != nil {
		return "", 0, err
	}
	f, err := os.CreateTemp(w.requests(), tempPrefix)
	if err != nil {
		return "", 0, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	for i, p := range parts {
		if i == len(parts)-1 {
			if err := w.at("write"); err != nil {
				return "", 0, err
			}
		}
		n, err := f.Write(p)
		size += int64(n)
		if err != nil {
			return "", 0, err
		}
	}
	if err := w.at("sync"); err != nil {
		return "", 0, err
	}
	return f.Name(), size, f.Sync()
}

// encodeHead encodes what comes before the resume file, without the closing brace. The
// two fields that can be large go in as they are: a checked hostlist needs no escaping,
// and the resume file's bytes are not to change.
func encodeHead(r *Request) ([]byte, error) {
	small := *r
	small.Nodes, small.ResumeFile = "", nil
	text, err := json.Marshal(small)
	if err != nil {
		return nil, err
	}
	before, after, _ := bytes.Cut(text[:len(text)-1], []byte(emptyNodes))
	head := make([]byte, 0, len(text)+len(r.Nodes))
	head = append(append(head, before...), emptyNodes[:len(emptyNodes)-1]...)
	head = append(append(head, r.Nodes...), '"')
	return append(head, after...), nil
}

const emptyNodes = `"nodes":""`

// publish gives the request its ID and makes it visible, both under the lock: so requests
// become visible in the order of their IDs.
func (w writer) publish(tmp string, size int64) (id string, err error) {
	if err := w.at("lock"); err != nil {
		return "", err
	}
	seq, err := w.lock(w.lockWait)
	if err != nil {
		return "", err
	}
	defer seq.unlock()
	if w.over(seq, size) {
		if err := seq.recount(w.layout); err != nil {
			return "", err
		}
		if w.over(seq, size) {
			// Keep the fresh count; a failure to do so only costs the next caller a recount.
			_ = seq.write()
			return "", fmt.Errorf("%w: %d requests with %d bytes wait in %s (limits %d and %d); is the bridge running?",
				ErrFull, seq.count, seq.bytes, w.dir, w.maxRequests, w.maxBytes)
		}
	}
	id = formatID(seq.next(w.now()), os.Getpid())
	seq.add(1, size)
	if err := w.at("write sequence"); err != nil {
		return "", err
	}
	if err := seq.write(); err != nil {
		return "", err
	}
	if err := w.at("rename"); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, w.request(id)); err != nil {
		return "", fmt.Errorf("accepting request: %w", err)
	}
	return id, nil
}

func (w writer) over(seq *lockedSequence, size int64) bool {
	return seq.count+1 > w.maxRequests || seq.bytes+size > w.maxBytes
}

// tempPrefix starts the names of files that are being written.
const tempPrefix = ".tmp-"

// isTemp reports whether name is a file that a writer has not finished.
func isTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// known reports whether the bridge understands k.
func (k Kind) known() bool {
	return k == KindResume || k == KindSuspend || k == KindResumeFail
}

// checkResumeFile demands one JSON object; what is in it is the bridge's business.
func checkResumeFile(raw []byte) error {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return errors.New("resume file is empty")
	case trimmed[0] != '{':
		return fmt.Errorf("resume file does not hold a JSON object: it begins with %.20q", trimmed)
	}
	if err := checkJSON(raw); err != nil {
		return fmt.Errorf("resume file is %w", err)
	}
	return nil
}
