// Package inplace gives slurmctld in a pod a new configuration without a restart, and never one that it would refuse.
//
// It runs as a container beside slurmctld, of the same image. What is wanted comes as a directory that the kubelet keeps up to date. A
// slurmctld of its own tries it first; only then the files are put in place and the real one reads them. What
// was last in force is kept on slurmctld's volume, so that a new pod starts with it if what is wanted is refused. What came of it is
// written on the pod as an annotation, where the control plane sees it.
//
// It uses the standard library and slurmconf alone: the program is copied into the pod at each start.
package inplace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Annotation holds a Report as JSON, on the pod.
const Annotation = "slurmtide.io/config"

// Report is what became of configurations; they are named by Hash.
type Report struct {
	// InForce is what slurmctld runs with; "" if that is not known, or slurmctld does not run.
	InForce string `json:"inForce,omitempty"`
	// Rejected is what was refused last, and Error why, in slurmctld's words. Both are empty if what is wanted is in force. An Error alone
	// is what keeps slurmctld from reading what is wanted.
	Rejected string `json:"rejected,omitempty"`
	Error    string `json:"error,omitempty"`
	// ControlSince is since when this slurmctld is in control, in seconds of RFC 3339; "" for one that stands by, and for one that has no backups.
	ControlSince string `json:"controlSince,omitempty"`
	// Behind are the nodes, as a hostlist, whose slurmd has not read what is in force, and Silent those of them that do not answer. NodesError is why that is not
	// known. Late says that there was time enough.
	Behind     string `json:"behind,omitempty"`
	Silent     string `json:"silent,omitempty"`
	NodesError string `json:"nodesError,omitempty"`
	Late       bool   `json:"late,omitempty"`
}

// Hash names a set of files by what is in them.
func Hash(files map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s\x00%d\x00%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// readFiles reads the files of a directory, those that begin with a dot left out: the kubelet's links, and ours while they are written.
func readFiles(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files[e.Name()] = string(text)
	}
	return files, nil
}

// swaps is how often the kubelet may replace a volume's files while they are read.
const swaps = 5

// readVolume reads the files of a volume that the kubelet keeps up to date. It has them in a directory of their own, to which the link ..data leads, and
// replaces that link: files that are read one by one may be of two versions, and for a moment names are missing, or left over.
func readVolume(dir string) (map[string]string, error) {
	link := filepath.Join(dir, "..data")
	for range swaps {
		version, err := os.Readlink(link)
		if errors.Is(err, fs.ErrNotExist) {
			return readFiles(dir) // not the kubelet's
		}
		if err != nil {
			return nil, err
		}
		files, err := readFiles(filepath.Join(dir, version))
		now, again := os.Readlink(link)
		if again == nil && now == version {
			return files, err
		}
	}
	return nil, fmt.Errorf("%s changes all the time", dir)
}

// writeFiles makes a directory have exactly these files, save those in keep; each is replaced in one step.
func writeFiles(dir string, files map[string]string, mode fs.FileMode, keep map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := mode
		if strings.HasPrefix(files[name], "#!") {
			mode |= 0o111
		}
		if err := writeFile(filepath.Join(dir, name), files[name], mode); err != nil {
			return err
		}
	}
	present, err := readFiles(dir)
	if err != nil {
		return err
	}
	for name := range present {
		_, wanted := files[name]
		_, kept := keep[name]
		if !wanted && !kept {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeFile(path, text string, mode fs.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err := tmp.WriteString(text); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
