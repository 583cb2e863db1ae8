package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// layout names the parts of one spool directory.
type layout struct{ dir string }

func (l layout) versionFile() string  { return filepath.Join(l.dir, "version") }
func (l layout) requests() string     { return filepath.Join(l.dir, "requests") }
func (l layout) bad() string          { return filepath.Join(l.dir, "bad") }
func (l layout) sequenceFile() string { return filepath.Join(l.dir, "sequence") }
func (l layout) socket() string       { return filepath.Join(l.dir, "bridge.sock") }
func (l layout) bridgeLock() string   { return filepath.Join(l.dir, "bridge.lock") }
func (l layout) identityFile() string { return filepath.Join(l.dir, "identity") }
func (l layout) logFile() string      { return filepath.Join(l.dir, "programs.log") }

func (l layout) request(id string) string { return filepath.Join(l.requests(), id+".json") }

// prepare makes what is missing and refuses a directory that others could tamper with
// or that a newer version laid out.
func (l layout) prepare() error {
	if l.dir == "" {
		return errors.New("no spool directory given")
	}
	if _, err := os.Stat(l.dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(l.dir); err != nil {
			return fmt.Errorf("creating spool %s: %w; create it for SlurmUser, mode 0700, or name another in slurmtide.conf (Spool=)", l.dir, err)
		}
	}
	if err := checkDir(l.dir, os.Geteuid()); err != nil {
		return err
	}
	if err := l.checkVersion(); err != nil {
		return err
	}
	for _, dir := range []string{l.requests(), l.bad()} {
		if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("creating %s: %w", dir, err)
		}
		if err := syncDir(l.dir); err != nil {
			return err
		}
	}
	return checkDir(l.requests(), os.Geteuid())
}

// Used says that dir has been a spool directory before.
func Used(dir string) bool {
	_, err := os.Stat(layout{dir}.versionFile())
	return err == nil
}

// makeDir creates dir and its parents and makes the new name durable.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// checkDir demands a directory of user uid, the one we run as, which nobody else may write to.
func checkDir(dir string, uid int) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; move it away or name another spool in slurmtide.conf (Spool=)", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid {
		return fmt.Errorf("%s belongs to uid %d, but this runs as uid %d; it must belong to SlurmUser, who runs the programs and the bridge", dir, st.Uid, uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o, so others could write to it; run: chmod 0700 %s", dir, mode, dir)
	}
	return nil
}

// checkVersion reads the layout's version and writes it into a new spool.
func (l layout) checkVersion() error {
	text, err := os.ReadFile(l.versionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return l.writeVersion()
	}
	if err != nil {
		return fmt.Errorf("reading spool version: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil || version < 1:
		return fmt.Errorf("%s holds %.20q instead of a version number; is %s a spool? Put %d there if it is", l.versionFile(), text, l.dir, Version)
	case version > Version:
		return fmt.Errorf("spool %s has version %d, this program knows versions up to %d; install the programs and the bridge of one release", l.dir, version, Version)
	}
	return nil
}

func (l layout) writeVersion() error {
	if err := l.replaceFile(l.versionFile(), tempVersion, fmt.Sprintf("%d\n", Version)); err != nil {
		return fmt.Errorf("writing spool version: %w", err)
	}
	return nil
}

// Beginnings of the names of files that replaceFile is writing.
const (
	tempVersion  = ".version-"
	tempIdentity = ".identity-"
)

// replaceFile writes a file of the spool directory in one durable step.
func (l layout) replaceFile(path, temp, text string) error {
	tmp, err := os.CreateTemp(l.dir, temp)
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		return syncDir(l.dir)
	}
	os.Remove(tmp.Name())
	return err
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	return nil
}
