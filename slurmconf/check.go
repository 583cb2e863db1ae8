package slurmconf

import (
	"fmt"
	"strings"
)

// Check tells what a Slurm of that version would refuse in a file of that kind, and, as warnings, what it complains about or reads
// otherwise than it looks. It goes by the text alone: what slurmctld finds when it looks at hosts, users and files is not seen.
// Keys that are not known to a version after 26.05 are warnings, for it may have more.
func (c *Config) Check(kind Kind, v Version) Problems {
	k := checker{options: knownOptions()[kind], kind: kind, version: v, seen: map[string]Position{}}
	for _, s := range c.settings {
		k.setting(s)
	}
	if kind == SlurmConf {
		k.slurm(c)
	}
	return k.problems
}

type checker struct {
	options  options
	kind     Kind
	version  Version
	seen     map[string]Position // where keys that stand once, and partitions, stood first
	problems Problems
}

func (k *checker) fail(at Position, remedy, format string, args ...any) {
	k.problems = append(k.problems, Problem{Position: at, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (k *checker) warn(at Position, remedy, format string, args ...any) {
	k.problems = append(k.problems, Problem{Position: at, Text: fmt.Sprintf(format, args...), Remedy: remedy, Warning: true})
}

// setting checks one line.
func (k *checker) setting(s Setting) {
	one, ok := k.known(k.options, s, k.kind.String())
	if !ok {
		return
	}
	if one.kind != kindRecord {
		if len(s.Fields) > 0 {
			k.fail(s.Fields[0].Position, "give it a line of its own; put quotes around a value with blanks", "%s behind %s, which takes no fields", s.Fields[0].Key, s.Key)
		}
		k.value(one, s)
		if k.kind == SlurmConf {
			k.slurmValue(s)
		}
		if one.kind != kindMany {
			k.once(s, "option "+strings.ToLower(s.Key), s.Key)
		}
		return
	}
	seen := map[string]bool{}
	for _, field := range s.Fields {
		f, ok := k.known(one.fields, field, "a "+one.name+" line")
		if !ok {
			return // Slurm reads no further
		}
		k.value(f, field)
		if key := strings.ToLower(field.Key); seen[key] {
			k.warn(field.Position, "remove one", "%s stands twice in the line; Slurm takes the last", field.Key)
		} else {
			seen[key] = true
		}
	}
	k.record(one, s)
}

// once warns of a key that stands again.
func (k *checker) once(s Setting, id, what string) {
	if first, ok := k.seen[id]; ok {
		k.warn(s.Position, "remove one", "%s stands at %s, too; Slurm takes the last and complains in all its programs", what, first)
		return
	}
	k.seen[id] = s.Position
}

// known finds the option of a key.
func (k *checker) known(o options, s Setting, where string) (option, bool) {
	one, ok, known := o.find(s.Key, k.version)
	switch {
	case ok:
		return one, true
	case known && one.age == gone:
		k.fail(s.Position, "remove it", "Slurm %s knows %s no longer", k.version, one.name)
	case known:
		k.fail(s.Position, "remove it, or use a Slurm that has it", "Slurm %s does not know %s yet", k.version, one.name)
	default:
		remedy := "remove it"
		if near := o.near(s.Key); near != "" {
			remedy = "is " + near + " meant?"
		}
		if newest.before(k.version) {
			k.warn(s.Position, remedy, "%s is no key of %s up to Slurm %s", quoteShort(s.Key), where, newest)
		} else {
			k.fail(s.Position, remedy, "%s is no key of %s in Slurm %s", quoteShort(s.Key), where, k.version)
		}
	}
	return option{}, false
}

// near is a known key that differs little.
func (o options) near(key string) string {
	if len(key) > 64 {
		return ""
	}
	best, most := "", len(key)/4+2
	for known, all := range o {
		if d := distance(strings.ToLower(key), known); d < most || d == most && all[0].name < best {
			best, most = all[0].name, d
		}
	}
	return best
}

// distance is how many bytes differ between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// renamed are keys that Slurm still reads.
func renamed(key string) string {
	switch strings.ToLower(key) {
	case "controlmachine", "controladdr", "backupcontroller", "backupaddr":
		return "SlurmctldHost"
	case "cryptotype":
		return "CredType"
	case "procs":
		return "CPUs"
	case "shared":
		return "OverSubscribe"
	}
	return ""
}

// value checks a value.
func (k *checker) value(one option, s Setting) {
	if one.kind == kindDefunct {
		k.warn(s.Position, "remove it", "%s has no effect any more", s.Key)
		return
	}
	if name := renamed(s.Key); name != "" && k.kind == SlurmConf {
		k.warn(s.Position, "write "+name, "%s is an old name", s.Key)
	}
	if err := checkValue(one.kind, s.Value); err != nil {
		k.fail(s.ValuePosition, err.Error(), "%s=%s", s.Key, quoteShort(s.Value))
		return
	}
	numeric := one.kind == kindUint16 || one.kind == kindUint32 || one.kind == kindUint64
	switch {
	case numeric && len(s.Value) > 1 && s.Value[0] == '0':
		n, _ := parseUint(s.Value, 64)
		k.warn(s.ValuePosition, fmt.Sprintf("write %d", n), "Slurm reads %s=%s as %d", s.Key, s.Value, n)
	case numeric && s.Value == "":
		k.warn(s.ValuePosition, "write 0 or remove it", "Slurm reads an empty %s as 0", s.Key)
	case strings.EqualFold(s.Key, "SuspendTime"):
		if _, err := parseSuspendTime(s.Value); err != nil {
			k.warn(s.ValuePosition, err.Error(), "SuspendTime=%s", quoteShort(s.Value))
		}
	case s.Operator != "":
		k.warn(s.Position, "write the whole value with =", "Slurm reads %s%s= as %s=", s.Key, s.Operator, s.Key)
	}
}

// record checks what lines of one kind say together.
func (k *checker) record(one option, s Setting) {
	lists := map[string]bool{"nodes": one.name != "PartitionName" && one.name != "NodeSet", "nodehostname": true, "nodeaddr": true}
	for _, field := range s.Fields {
		if lists[strings.ToLower(field.Key)] {
			k.hostlist(field)
		}
	}
	switch one.name {
	case "NodeName":
		k.nodeName(s)
	case "DownNodes":
		k.hostlist(s)
	case "FrontendName":
		k.warn(s.Position, "remove it", "FrontendName is only for a Slurm that was built with --enable-front-end")
	case "PartitionName":
		if first, ok := k.seen["partition "+s.Value]; ok && !strings.EqualFold(s.Value, "DEFAULT") {
			k.fail(s.ValuePosition, "give it another name, or remove it", "partition %s stands at %s, too, and slurmctld does not start with two", quoteShort(s.Value), first)
		}
		k.seen["partition "+s.Value] = s.Position
		if !strings.EqualFold(s.Value, "DEFAULT") {
			k.partition(s)
		}
	case "PowerAction":
		k.powerAction(s)
	case "SlurmctldHost":
		if _, err := parseHost(s); err != nil {
			k.fail(s.ValuePosition, "write name or name(address)", "SlurmctldHost=%s", quoteShort(s.Value))
		}
	}
}

func (k *checker) hostlist(s Setting) {
	if _, err := ParseHostlist(s.Value); err != nil {
		k.fail(s.ValuePosition, "", "%s: %v", s.Key, err)
	}
}

func (k *checker) nodeName(s Setting) {
	if k.kind != SlurmConf {
		k.hostlist(s)
		return
	}
	switch {
	case strings.EqualFold(s.Value, "ALL"):
		k.fail(s.ValuePosition, "choose another name", "NodeName=%s is a word of Slurm's own", s.Value)
	case strings.EqualFold(s.Value, "DEFAULT"):
		for _, field := range s.Fields {
			switch strings.ToLower(field.Key) {
			case "nodehostname", "nodeaddr", "bcastaddr":
				k.fail(field.Position, "give it to each node", "%s cannot stand in NodeName=DEFAULT", field.Key)
			}
		}
	default:
		k.hostlist(s)
	}
}

// slurm checks what slurm.conf must have, and what must be unique in it.
func (k *checker) slurm(c *Config) {
	var file string
	if len(c.files) > 0 {
		file = c.files[0].name
	}
	at := Position{File: file}
	if s, ok := c.Get("ClusterName"); !ok || s.Value == "" {
		k.fail(at, "add ClusterName=<name>", "there is no ClusterName")
	}
	if _, ok := c.Get("SlurmctldHost"); !ok {
		if _, ok := c.Get("ControlMachine"); !ok {
			k.fail(at, "add SlurmctldHost=<host>", "there is no SlurmctldHost")
		}
	}
	hosts := map[string]Position{}
	for _, s := range c.All("SlurmctldHost") {
		h, err := parseHost(s)
		if err != nil {
			continue
		}
		if first, ok := hosts[h.Name]; ok {
			k.fail(s.ValuePosition, "remove one", "SlurmctldHost %s stands at %s, too", quoteShort(h.Name), first)
		}
		hosts[h.Name] = s.Position
	}
	k.uniqueNodes(c)
}

// uniqueNodes finds nodes with two lines. slurmctld does not start with them.
func (k *checker) uniqueNodes(c *Config) {
	type nodes struct {
		names Hostlist
		line  Setting
	}
	var lines []nodes
	total := 0
	for _, s := range c.All("NodeName") {
		names, err := ParseHostlist(s.Value)
		if err != nil || strings.EqualFold(s.Value, "DEFAULT") {
			continue
		}
		if total += names.Len(); total > MaxHostlistNames {
			k.fail(s.ValuePosition, "use fewer nodes", "more than %d nodes", MaxHostlistNames)
			return
		}
		lines = append(lines, nodes{names, s})
	}
	seen := make(map[string]Position, total)
	for _, l := range lines {
		for name := range l.names.All() {
			if first, ok := seen[name]; ok {
				k.fail(l.line.ValuePosition, "remove it from one of the lines", "node %s stands at %s, too, and slurmctld does not start with two", quoteShort(name), first)
				break
			}
			seen[name] = l.line.Position
		}
	}
}
