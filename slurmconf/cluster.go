package slurmconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Value is a value and where it stands. The zero Position: nowhere, it is Slurm's default.
type Value[T any] struct {
	V        T
	Position Position
}

// IsSet tells whether the files say so.
func (v Value[T]) IsSet() bool { return v.Position.Line > 0 }

// Host is a SlurmctldHost: the primary one, or a backup.
type Host struct {
	Name, Address string
	Position      Position
}

// Cluster is what a slurm.conf says, as slurmctld reads it.
type Cluster struct {
	Name  Value[string] // in lower case
	Hosts []Host

	ResumeProgram, SuspendProgram, ResumeFailProgram Value[string]
	ResumeTimeout, SuspendTimeout, SuspendTime       Value[time.Duration] // Infinite: never
	ResumeRate, SuspendRate                          Value[int]           // nodes a minute, 0: no limit
	SlurmdTimeout                                    Value[time.Duration]
	// PrologTimeout is how long PrologSlurmctld may take: PrologTimeout (26.05), or PrologEpilogTimeout. Infinite by default.
	PrologTimeout   Value[time.Duration]
	PrologSlurmctld []Value[string]
	ReturnToService Value[int]

	SelectType           Value[string]
	SelectTypeParameters Value[string]
	SlurmctldParameters  Value[[]string]
	SchedulerParameters  Value[[]string]
	GresTypes            Value[[]string]

	Nodes      []NodeLine
	Partitions []PartitionLine
	NodeSets   []Setting
	DownNodes  []Setting

	config *Config
}

// Cluster reads what slurm.conf says to a Slurm of that version. The error is what Check finds, without its warnings.
func (c *Config) Cluster(v Version) (*Cluster, error) {
	if err := c.Check(SlurmConf, v).Err(); err != nil {
		return nil, err
	}
	out := &Cluster{config: c, NodeSets: c.All("NodeSet"), DownNodes: c.All("DownNodes")}
	out.Name = c.text("ClusterName", "")
	out.Name.V = strings.ToLower(out.Name.V)
	for _, s := range c.All("SlurmctldHost") {
		h, err := parseHost(s)
		if err != nil {
			return nil, err
		}
		out.Hosts = append(out.Hosts, h)
	}
	out.ResumeProgram, out.SuspendProgram, out.ResumeFailProgram = c.text("ResumeProgram", ""), c.text("SuspendProgram", ""), c.text("ResumeFailProgram", "")
	out.ResumeTimeout, out.SuspendTimeout = c.seconds("ResumeTimeout", time.Minute), c.seconds("SuspendTimeout", 30*time.Second)
	out.ResumeRate, out.SuspendRate = c.number("ResumeRate", 300), c.number("SuspendRate", 60)
	out.SuspendTime = suspendTime(c.Get("SuspendTime"))
	out.SlurmdTimeout = c.seconds("SlurmdTimeout", 5*time.Minute)
	out.PrologTimeout = c.seconds("PrologEpilogTimeout", Infinite)
	if one, ok, _ := knownOptions()[SlurmConf].find("PrologTimeout", v); ok {
		if t := c.seconds(one.name, 0); t.IsSet() {
			out.PrologTimeout = t
		}
	}
	for _, s := range c.All("PrologSlurmctld") {
		out.PrologSlurmctld = append(out.PrologSlurmctld, Value[string]{s.Value, s.Position})
	}
	out.ReturnToService = c.number("ReturnToService", 0)
	out.SelectType = c.text("SelectType", "select/cons_tres")
	out.SelectTypeParameters = c.text("SelectTypeParameters", "")
	if !out.SelectTypeParameters.IsSet() && strings.Contains(out.SelectType.V, "cons_tres") {
		out.SelectTypeParameters.V = "CR_CORE_MEMORY"
	}
	out.SlurmctldParameters, out.SchedulerParameters, out.GresTypes = c.words("SlurmctldParameters"), c.words("SchedulerParameters"), c.words("GresTypes")
	var nodeDefault, partitionDefault Setting
	for _, s := range c.settings {
		switch strings.ToLower(s.Key) {
		case "nodename":
			if strings.EqualFold(s.Value, "DEFAULT") {
				nodeDefault.Fields = append(nodeDefault.Fields, s.Fields...) // the later one counts
				continue
			}
			names, err := ParseHostlist(s.Value)
			if err != nil {
				return nil, err
			}
			out.Nodes = append(out.Nodes, newNodeLine(names, s, nodeDefault))
		case "partitionname":
			if strings.EqualFold(s.Value, "DEFAULT") {
				partitionDefault.Fields = append(partitionDefault.Fields, s.Fields...)
				continue
			}
			out.Partitions = append(out.Partitions, newPartitionLine(s, partitionDefault))
		}
	}
	return out, nil
}

// Get is the setting of any other key: the last one.
func (c *Cluster) Get(key string) (Setting, bool) { return c.config.Get(key) }

// SlurmctldParameter is the value of a word of SlurmctldParameters, in any case: "0" of power_save_interval=0.
func (c *Cluster) SlurmctldParameter(name string) (value string, ok bool) {
	for _, word := range c.SlurmctldParameters.V {
		if key, value, _ := strings.Cut(word, "="); strings.EqualFold(key, name) {
			return value, true
		}
	}
	return "", false
}

func (c *Config) text(key, otherwise string) Value[string] {
	if s, ok := c.Get(key); ok {
		return Value[string]{s.Value, s.Position}
	}
	return Value[string]{V: otherwise}
}

func (c *Config) words(key string) Value[[]string] {
	s, _ := c.Get(key)
	return Value[[]string]{s.Words(), s.Position}
}

func (c *Config) seconds(key string, otherwise time.Duration) Value[time.Duration] {
	return secondsOf(otherwise)(c.Get(key))
}

func (c *Config) number(key string, otherwise int) Value[int] {
	return numberOf(16, otherwise)(c.Get(key))
}

// secondsOf and numberOf read a setting that has been checked.
func secondsOf(otherwise time.Duration) func(s Setting, ok bool) Value[time.Duration] {
	return func(s Setting, ok bool) Value[time.Duration] {
		if !ok {
			return Value[time.Duration]{V: otherwise}
		}
		return Value[time.Duration]{seconds(s.Value), s.Position}
	}
}

func numberOf(bits, otherwise int) func(s Setting, ok bool) Value[int] {
	return func(s Setting, ok bool) Value[int] {
		n, err := parseUint(s.Value, bits)
		if !ok || err != nil {
			return Value[int]{V: otherwise}
		}
		return Value[int]{int(n), s.Position} //nolint:gosec // 64 bits hold what Slurm shows as a number; INFINITE becomes -1
	}
}

func suspendTime(s Setting, ok bool) Value[time.Duration] {
	if !ok {
		return Value[time.Duration]{V: Infinite}
	}
	d, err := parseSuspendTime(s.Value)
	if err != nil { // what Slurm's strtoul makes of it
		digits := strings.TrimLeft(s.Value, " ")
		end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(digits)
		}
		n, _ := strconv.ParseUint(digits[:end], 10, 31)
		d = time.Duration(n) * time.Second
	}
	return Value[time.Duration]{d, s.Position}
}

// parseHost reads name or name(address). Source: _parse_slurmctld_host.
func parseHost(s Setting) (Host, error) {
	name, rest, ok := strings.Cut(s.Value, "(")
	if !ok {
		if strings.Contains(s.Value, ")") {
			return Host{}, errors.New("a stray parenthesis")
		}
		return Host{s.Value, s.Value, s.Position}, nil
	}
	address, ok := strings.CutSuffix(rest, ")")
	if !ok || strings.Contains(address, ")") || strings.Contains(name, ")") {
		return Host{}, fmt.Errorf("%s: want name(address)", quoteShort(s.Value))
	}
	return Host{name, address, s.Position}, nil
}
