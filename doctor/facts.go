package doctor

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Facts are what rules look at. Only the version and slurm.conf must be there: a rule says nothing about what is not known.
type Facts struct {
	Version slurmconf.Version // of slurmctld

	// Slurm is slurm.conf with what it includes, and Problems is what could not be read of it.
	Slurm    *slurmconf.Config
	Problems slurmconf.Problems
	// Cluster is what slurmctld makes of it; nil if it would refuse it.
	Cluster *slurmconf.Cluster

	// Gres and Cgroup are the files beside slurm.conf; with Directory set, nil means that there is none.
	Gres, Cgroup *slurmconf.Config
	// Directory is where these were looked for; empty: they were not.
	Directory string
	// hidden are those of them that could not be read, by their names without a directory.
	hidden []string
	// Settings is what is wrong in slurmtide.conf, line by line.
	Settings []string

	// Host is slurmctld's host, if that was looked at.
	Host *HostFacts
	// Kubernetes are the NodeSets, and Access is what the bridge can reach, if these were asked for.
	Kubernetes *KubernetesFacts
	Access     *AccessFacts

	// Unread says what was to be looked at and could not be, and why. Rules about it say nothing.
	Unread []string
}

// HostFacts are what slurmctld's host shows: its file system and what it knows of names.
type HostFacts struct {
	SlurmUser uint32 // its number
	// Files are the programs, keys and directories that were looked for, by path.
	Files map[string]FileFacts
	Spool string // the spool directory, one of Files
	Keys  []string
	// Nameless are nodes whose names were looked up, and have no address.
	Nameless []string
}

// FileFacts are what stat tells of a file. The zero value: there is none.
type FileFacts struct {
	Exists, Directory bool
	Mode              uint32 // the permission bits
	Owner             uint32
}

// SetSlurmConf takes what slurmconf.ReadConfig returned.
func (f *Facts) SetSlurmConf(config *slurmconf.Config, err error) {
	f.Slurm = config
	f.Cluster, f.Problems = nil, nil
	if problems, ok := errors.AsType[slurmconf.Problems](err); ok {
		f.Problems = problems
	} else if err != nil {
		f.Problems = slurmconf.Problems{{Text: err.Error()}}
	}
	if err == nil {
		f.Cluster, _ = config.Cluster(f.Version) // what is wrong with it textRules say
	}
}

// hides says that a file beside slurm.conf may say anything, for it could not be read, or was not looked for.
func (f *Facts) hides(name string, read *slurmconf.Config) bool {
	return read == nil && (f.Directory == "" || slices.Contains(f.hidden, name))
}

// main is the name of slurm.conf itself.
func (f *Facts) main() string {
	if files := f.Slurm.Files(); len(files) > 0 {
		return files[0].Name()
	}
	return "slurm.conf"
}

// at is where a value stands, or, if it is Slurm's default, the file.
func (f *Facts) at(p slurmconf.Position) slurmconf.Position {
	if p.Line > 0 {
		return p
	}
	return slurmconf.Position{File: f.main()}
}

// cloud are the lines of nodes that slurmctld powers up.
func (f *Facts) cloud() []slurmconf.NodeLine {
	return slices.DeleteFunc(slices.Clone(f.Cluster.Nodes), func(n slurmconf.NodeLine) bool { return !slurmconf.IsCloud(n.State.V) })
}

// saves tells whether power saving has something to do.
func (f *Facts) saves() bool { return len(f.cloud()) > 0 }

// dynamic tells whether nodes may register themselves.
func (f *Facts) dynamic() bool {
	_, ok := f.Cluster.Get("MaxNodeCount")
	return ok
}

// word is a word of a list in slurm.conf: "0" and true of power_save_interval=0.
func (f *Facts) word(key, name string) (value string, ok bool) {
	s, _ := f.Cluster.Get(key)
	return wordOf(s, name)
}

func wordOf(s slurmconf.Setting, name string) (value string, ok bool) {
	for _, word := range s.Words() {
		if key, value, _ := strings.Cut(word, "="); strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

// where is the place of a key, or the file.
func (f *Facts) where(key string) slurmconf.Position {
	s, _ := f.Cluster.Get(key)
	return f.at(s.Position)
}

// partitionsOf are the partitions that have a node line's nodes, at least one of them.
func (f *Facts) partitionsOf(n slurmconf.NodeLine) []slurmconf.PartitionLine {
	return slices.DeleteFunc(slices.Clone(f.Cluster.Partitions), func(p slurmconf.PartitionLine) bool { return !f.has(p, n) })
}

// has tells whether a partition has some of a line's nodes. Source: nodespec_to_hostlist.
func (f *Facts) has(p slurmconf.PartitionLine, n slurmconf.NodeLine) bool {
	if strings.EqualFold(p.Nodes.V, "ALL") {
		return true
	}
	list, err := slurmconf.ParseHostlist(p.Nodes.V)
	if err != nil {
		return true // what it is cannot be said, so nothing is
	}
	if list.Intersect(n.Names).Len() > 0 || list.Contains("ALL") {
		return true
	}
	return slices.ContainsFunc(f.Cluster.NodeSets, func(set slurmconf.Setting) bool {
		return list.Contains(set.Value) && inSet(set, n)
	})
}

// inSet tells whether a NodeSet of slurm.conf has some of a line's nodes.
func inSet(set slurmconf.Setting, n slurmconf.NodeLine) bool {
	if feature, ok := set.Field("Feature"); ok && slices.Contains(n.Features.V, feature.Value) {
		return true
	}
	nodes, ok := set.Field("Nodes")
	if !ok {
		return false
	}
	list, err := slurmconf.ParseHostlist(nodes.Value)
	return err != nil || list.Intersect(n.Names).Len() > 0
}

// suspendTime is a node's: its own (26.05), the largest of its partitions', or the cluster's. Source: power_save.c power_save_set_timeouts.
func (f *Facts) suspendTime(n slurmconf.NodeLine) slurmconf.Value[time.Duration] {
	if n.SuspendTime.IsSet() {
		return n.SuspendTime
	}
	best := slurmconf.Value[time.Duration]{}
	for _, p := range f.partitionsOf(n) {
		if p.SuspendTime.IsSet() && (!best.IsSet() || p.SuspendTime.V > best.V) {
			best = p.SuspendTime
		}
	}
	if best.IsSet() {
		return best
	}
	return f.Cluster.SuspendTime
}

// FromTexts are the facts that texts of files tell, which lie in one directory: slurm.conf, gres.conf, cgroup.conf and what is included, by name.
func FromTexts(v slurmconf.Version, texts map[string]string) Facts {
	read := func(name string) ([]byte, error) {
		if text, ok := texts[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	f := Facts{Version: v, Directory: "."}
	f.SetSlurmConf(slurmconf.ReadConfig("slurm.conf", read))
	f.AddFiles(read, "gres.conf", "cgroup.conf")
	return f
}

// AddFiles reads the files beside slurm.conf; one that is not there is none, and of one that may not be read nothing is known.
func (f *Facts) AddFiles(read func(name string) ([]byte, error), gres, cgroup string) {
	for name, to := range map[string]**slurmconf.Config{gres: &f.Gres, cgroup: &f.Cgroup} {
		if _, err := read(name); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			f.Unread, f.hidden = append(f.Unread, err.Error()), append(f.hidden, path.Base(name))
			continue
		}
		config, err := slurmconf.ReadConfig(name, read)
		if problems, ok := errors.AsType[slurmconf.Problems](err); ok {
			f.Problems = append(f.Problems, problems...)
		}
		*to = config
	}
}
