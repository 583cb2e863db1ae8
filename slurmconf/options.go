package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Version is a version of Slurm: 24.11.
type Version struct{ Major, Minor int }

// ParseVersion reads "24.11", "24.11.7", "slurm 26.05.3" or, as Debian's Slurm calls itself, "slurm-wlm 26.05.5".
func ParseVersion(text string) (Version, error) {
	number := strings.TrimSpace(text)
	for _, name := range []string{"slurm ", "slurm-wlm "} {
		number = strings.TrimPrefix(number, name)
	}
	major, rest, _ := strings.Cut(number, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil || a < 0 || b < 0 {
		return Version{}, fmt.Errorf("version %s: want one like 24.11 or 26.05.3", quoteShort(text))
	}
	return Version{a, b}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%02d", v.Major, v.Minor) }

// before tells whether v is older than w.
func (v Version) before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// The versions whose options are known. One between them may have those of both.
var (
	oldest = Version{24, 11}
	newest = Version{26, 5}
)

// Kind is which configuration file a text is.
type Kind int

// The files that Slurm reads with the parser of slurm.conf.
const (
	SlurmConf Kind = iota
	SlurmdbdConf
	GresConf
	CgroupConf
	TopologyConf
)

func (k Kind) String() string {
	return [...]string{"slurm.conf", "slurmdbd.conf", "gres.conf", "cgroup.conf", "topology.conf"}[k]
}

// option is a key that Slurm knows, in some version.
type option struct {
	name   string
	kind   valueKind
	age    age
	fields options // of a record
}

// age is when an option exists.
type age int

const (
	always age = iota
	gone       // in 24.11, and no longer in 26.05
	young      // in 26.05, and not yet in 24.11
)

// in tells whether a version has it.
func (a age) in(v Version) bool {
	return a == always || a == gone && v.before(newest) || a == young && oldest.before(v)
}

// options are the known keys, in lower case. A key has several options if it changed.
type options map[string][]option

// add adds the names in a text.
func (o options) add(kind valueKind, a age, names string) options {
	for _, name := range strings.Fields(names) {
		o.record(option{name: name, kind: kind, age: a})
	}
	return o
}

func (o options) record(one option) {
	key := strings.ToLower(one.name)
	o[key] = append(o[key], one)
}

// find is the option of a key in a version; known tells whether any version has it.
func (o options) find(key string, v Version) (one option, ok, known bool) {
	all := o[strings.ToLower(key)]
	for _, one := range all {
		if one.age.in(v) {
			return one, true, true
		}
	}
	if len(all) > 0 {
		one = all[0]
	}
	return one, false, len(all) > 0
}

// repeatable tells of a key that may stand several times, each line with its own meaning.
func repeatable(key string) bool {
	switch strings.ToLower(key) {
	case "nodename", "partitionname", "nodeset", "downnodes", "slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld",
		"poweraction", "frontendname", "name", "switchname", "blockname", "include":
		return true
	}
	return false
}

// knownOptions has the options of each file.
var knownOptions = sync.OnceValue(func() map[Kind]options {
	gres := options{}.add(kindString, always, "AutoDetect Cores Count CPUs File Files Flags Link Links MultipleFiles Name Type")
	return map[Kind]options{
		SlurmConf:    slurmOptions(),
		SlurmdbdConf: slurmdbdOptions(),
		CgroupConf: options{}.
			add(kindBool, always, "ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace EnableControllers IgnoreSystemd IgnoreSystemdOnFailure MemoryLimitEnforcement SignalChildrenProcesses").
			add(kindBool, young, "CgroupJobIdPaths").
			add(kindDefunct, always, "CgroupAutomount").
			add(kindFloat, always, "AllowedRAMSpace AllowedSwapSpace MaxRAMPercent MaxSwapPercent MemoryLimitThreshold").
			add(kindString, always, "AllowedDevicesFile CgroupMountpoint CgroupPlugin").
			add(kindString, young, "CgroupSlice EnableExtraControllers").
			add(kindUint64, always, "MemorySwappiness MinRAMSpace SystemdTimeout"),
		GresConf: options{"name": {{name: "Name", kind: kindRecord, fields: gres}}, "nodename": {{name: "NodeName", kind: kindRecord, fields: gres}}}.
			add(kindString, always, "AutoDetect"),
		TopologyConf: options{
			"switchname": {{name: "SwitchName", kind: kindRecord, fields: options{}.add(kindString, always, "Nodes Switches").add(kindUint32, always, "LinkSpeed")}},
			"blockname":  {{name: "BlockName", kind: kindRecord, fields: options{}.add(kindString, always, "Nodes")}},
		}.add(kindString, always, "BlockSizes"),
	}
})
