package slurmconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Config is a configuration file together with the files it includes.
type Config struct {
	files    []*File
	settings []Setting
}

// ReadConfig reads a file and what it includes. read gives the text of a file; nil reads from disk.
//
// As in Slurm, names of included files are relative to the directory of the first file (which is that of slurm.conf), not to that of
// the including one, and %c in them is the ClusterName read so far, in lower case. Source: _parse_include_directive,
// get_extra_conf_path.
//
// The error is Problems, with all that Slurm would refuse; the Config then has what could be read.
func ReadConfig(name string, read func(name string) ([]byte, error)) (*Config, error) {
	if read == nil {
		read = readFile
	}
	l := loader{config: &Config{}, read: read, dir: filepath.Dir(name)}
	l.load(name, Position{File: name})
	return l.config, l.problems.Err()
}

// readFile reads a file from disk, a little more than ParseFile takes at most.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileSize+1))
}

// loader follows Includes.
type loader struct {
	config   *Config
	read     func(name string) ([]byte, error)
	dir      string
	cluster  string   // ClusterName so far
	chain    []string // the files that are being read
	problems Problems
}

// load reads a file that is named at a place.
func (l *loader) load(path string, at Position) {
	fail := func(text, remedy string) {
		l.problems = append(l.problems, Problem{Position: at, Text: text, Remedy: remedy})
	}
	switch {
	case slices.Contains(l.chain, path):
		fail(fmt.Sprintf("%s includes itself (%s)", path, strings.Join(append(l.chain, path), " > ")), "remove the Include")
		return
	case len(l.chain) > MaxIncludeDepth:
		fail(fmt.Sprintf("%s is more than %d Includes deep", path, MaxIncludeDepth), "include it from a file further up")
		return
	case len(l.config.files) >= MaxFiles:
		fail(fmt.Sprintf("more than %d files", MaxFiles), "include fewer")
		return
	}
	text, err := l.read(path)
	if err != nil {
		remedy := "make it readable for Slurm's user"
		if errors.Is(err, fs.ErrNotExist) {
			remedy = "create it or correct the name: Slurm waits a minute for it, and then gives up"
		}
		fail(fmt.Sprintf("cannot read %s: %v", path, err), remedy)
		return
	}
	f, err := ParseFile(path, text)
	if f == nil {
		fail(err.Error(), "")
		return
	}
	l.chain = append(l.chain, path)
	defer func() { l.chain = l.chain[:len(l.chain)-1] }()
	l.config.files = append(l.config.files, f)
	for i := range f.lines {
		line := &f.lines[i]
		switch {
		case line.problem != nil:
			l.problems = append(l.problems, *line.problem)
		case line.include != "":
			l.include(line.include, f.at(line, line.nameAt))
		case len(line.pairs) > 0:
			s := f.setting(line)
			if strings.EqualFold(s.Key, "ClusterName") {
				l.cluster = strings.ToLower(s.Value)
			}
			l.config.settings = append(l.config.settings, s)
		}
	}
}

func (l *loader) include(name string, at Position) {
	if strings.Contains(name, "%c") {
		if l.cluster == "" {
			l.problems = append(l.problems, Problem{Position: at, Text: fmt.Sprintf("Include %s: ClusterName is not known yet", name),
				Remedy: "put ClusterName before the Include"})
			return
		}
		name = strings.ReplaceAll(name, "%c", l.cluster)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(l.dir, name)
	}
	l.load(name, at)
}

// Files are the files, the first one first, in the order in which they are read. An edit of one of them does not show in Settings.
func (c *Config) Files() []*File { return c.files }

// Settings are the settings of all files, in Slurm's order: those of an included file stand in the place of the Include.
func (c *Config) Settings() []Setting { return c.settings }

// All are the settings of a key, in any case.
func (c *Config) All(key string) []Setting {
	var all []Setting
	for _, s := range c.settings {
		if strings.EqualFold(s.Key, key) {
			all = append(all, s)
		}
	}
	return all
}

// Get is the setting of a key that counts: the last one.
func (c *Config) Get(key string) (Setting, bool) {
	for i := len(c.settings) - 1; i >= 0; i-- {
		if strings.EqualFold(c.settings[i].Key, key) {
			return c.settings[i], true
		}
	}
	return Setting{}, false
}
