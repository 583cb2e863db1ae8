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
	"syscall"
	"time"
)

// Spool is the bridge's side of a spool directory. Its methods may be called concurrently.
type Spool struct {
	layout
	maxBad int
}

// maxBad is how many entries bad/ keeps; the oldest go first.
const maxBad = 1000

// staleTemp is when a file that is being written counts as left behind by a killed program.
const staleTemp = time.Hour

// Open prepares the spool in dir for reading: it creates what is missing, refuses a
// directory that is not ours alone or has a newer version, removes what killed programs
// left behind, and counts what waits.
func Open(dir string) (*Spool, error) {
	s := &Spool{layout: layout{dir}, maxBad: maxBad}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.sweep(time.Now().Add(-staleTemp)); err != nil {
		return nil, err
	}
	seq, err := s.lock(lockWait)
	if err != nil {
		return nil, err
	}
	defer seq.unlock()
	if err := seq.recount(s.layout); err != nil {
		return nil, err
	}
	if err := seq.write(); err != nil {
		return nil, err
	}
	return s, nil
}

// sweep removes unfinished files last written to before the given time.
func (s *Spool) sweep(before time.Time) error {
	for _, dir := range []string{s.dir, s.requests()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("sweeping spool: %w", err)
		}
		for _, e := range entries {
			if !isTemp(e.Name()) && !strings.HasPrefix(e.Name(), tempVersion) && !strings.HasPrefix(e.Name(), tempIdentity) {
				continue
			}
			if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
				os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
	return nil
}

// Pending returns the requests that wait, in the order of acceptance, without those that
// known reports as read before (nil: none). What cannot be read is moved to bad/ and
// reported once; err is set only when the spool as a whole could not be read, or an entry
// could not be set aside.
func (s *Spool) Pending(known func(id string) bool) (reqs []Request, corrupt []Corrupt, err error) {
	entries, err := inOrder(func() ([]fs.DirEntry, error) { return os.ReadDir(s.requests()) })
	if err != nil {
		return nil, nil, fmt.Errorf("reading spool: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if isTemp(e.Name()) {
			continue
		}
		if id, ok := requestID(e.Name()); ok && known != nil && known(id) {
			continue
		}
		r, err := s.load(e.Name())
		switch {
		case err == nil:
			reqs = append(reqs, r)
		case errors.Is(err, fs.ErrNotExist):
			// Done was called meanwhile.
		case transient(err):
			return nil, corrupt, fmt.Errorf("reading spool: %w", err)
		default:
			c, err := s.setAside(e.Name(), err)
			corrupt = append(corrupt, c)
			errs = append(errs, err)
		}
	}
	return reqs, corrupt, errors.Join(errs...)
}

// inOrder lists a directory of requests so that none is left out that has a smaller ID than
// one that is there. A single listing may do that: it is no snapshot, and what is renamed
// into the directory meanwhile shows in it or not. But once a listing shows an ID, all
// smaller ones are in place, and the next listing shows them. What is larger waits for the
// next call, which its program asks for.
func inOrder(list func() ([]fs.DirEntry, error)) ([]fs.DirEntry, error) {
	first, err := list()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	var last string
	for _, e := range first {
		if id, ok := requestID(e.Name()); ok {
			last = id
		}
	}
	second, err := list()
	return slices.DeleteFunc(second, func(e fs.DirEntry) bool {
		id, ok := requestID(e.Name())
		return ok && id > last
	}), err
}

// transient tells errors of the machine from errors of one file.
func transient(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// load reads one entry of requests/.
func (s *Spool) load(name string) (Request, error) {
	path := filepath.Join(s.requests(), name)
	id, ok := requestID(name)
	if !ok {
		return Request{}, fmt.Errorf("%s is no request: its name does not have the form <id>.json", path)
	}
	// Lstat first: opening a pipe would block, and nothing but files belongs here.
	info, err := os.Lstat(path)
	if err != nil {
		return Request{}, err
	}
	if !info.Mode().IsRegular() {
		return Request{}, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Request{}, err
	}
	r, err := decodeRequest(data)
	if err != nil {
		return Request{}, fmt.Errorf("request %s: %w", id, err)
	}
	r.ID = id
	return r, nil
}

// decodeRequest reads a request file's content. Fields it does not know are ignored.
func decodeRequest(data []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return Request{}, fmt.Errorf("not a request: %w", err)
	}
	if r.Version < 1 || r.Version > Version {
		return Request{}, fmt.Errorf("written with version %d, this program knows versions 1 to %d", r.Version, Version)
	}
	if !r.Kind.known() {
		return Request{}, fmt.Errorf("unknown kind %.40q", r.Kind)
	}
	if err := checkHostlist(r.Nodes); err != nil {
		return Request{}, err
	}
	if r.ResumeFile != nil {
		if err := checkResumeFile(r.ResumeFile); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

// SetAside moves a request to bad/, for a reason found after it was read.
func (s *Spool) SetAside(id string, reason error) error {
	if !validID(id) {
		return fmt.Errorf("%.60q is not the ID of a request", id)
	}
	_, err := s.setAside(id+".json", reason)
	return err
}

// setAside moves an entry to bad/ and keeps that directory small.
func (s *Spool) setAside(name string, reason error) (Corrupt, error) {
	from, to := filepath.Join(s.requests(), name), filepath.Join(s.bad(), name)
	c := Corrupt{ID: strings.TrimSuffix(name, ".json"), Path: to, Err: reason}
	if err := os.Rename(from, to); err != nil {
		c.Path = from
		return c, fmt.Errorf("setting aside %s: %w", from, err)
	}
	if info, err := os.Lstat(to); err == nil {
		s.count(-1, -info.Size())
	}
	entries, err := os.ReadDir(s.bad())
	if err != nil {
		return c, fmt.Errorf("tidying %s: %w", s.bad(), err)
	}
	for len(entries) > s.maxBad {
		if err := os.RemoveAll(filepath.Join(s.bad(), entries[0].Name())); err != nil {
			return c, fmt.Errorf("tidying %s: %w", s.bad(), err)
		}
		entries = entries[1:]
	}
	return c, nil
}

// Done removes a request. A request that is already gone is no error. The removal is not
// synced: after a crash of the machine a request may come back, and must then find
// everything done.
func (s *Spool) Done(id string) error {
	if !validID(id) {
		return fmt.Errorf("%.60q is not the ID of a request", id)
	}
	info, err := os.Lstat(s.request(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Remove(s.request(id))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing request: %w", err)
	}
	s.count(-1, -info.Size())
	return nil
}

// count keeps the running count. Failures do not matter: who reaches a limit recounts.
func (s *Spool) count(requests, bytes int64) {
	seq, err := s.lock(lockWait)
	if err != nil {
		return
	}
	defer seq.unlock()
	seq.add(requests, bytes)
	_ = seq.write()
}

// Stats counts what waits and what was set aside.
func (s *Spool) Stats() (Stats, error) {
	var st Stats
	err := s.eachWaiting(func(id string, size int64) {
		if st.Depth == 0 {
			st.Oldest = time.Unix(0, idNumber(id))
		}
		st.Depth++
		st.Bytes += size
	})
	if err != nil {
		return Stats{}, err
	}
	bad, err := os.ReadDir(s.bad())
	if err != nil {
		return Stats{}, fmt.Errorf("reading spool: %w", err)
	}
	st.Bad = len(bad)
	return st, nil
}
