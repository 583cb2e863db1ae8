package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Severity is how bad a finding is.
type Severity int

// From bad to less bad.
const (
	Error   Severity = iota // nodes do not come or go, or Slurm does not start
	Warning                 // works until something happens, or only for some jobs
	Hint                    // works; could be faster or clearer
)

func (s Severity) String() string { return [...]string{"error", "warning", "hint"}[s] }

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is something that a rule has found.
type Finding struct {
	Rule     string             // its name
	Severity Severity           // of the rule
	Position slurmconf.Position // of what was seen; line 0: a file as a whole, or something that is no file
	Seen     string             // what was seen
	Why      string             // what comes of it: the rule's
	Remedy   string             // what to do: the exact line, if one is to be set
	edits    []edit
}

// Fixable tells whether an edit of a file, as Diff shows it, mends it.
func (f Finding) Fixable() bool { return len(f.edits) > 0 }

func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s; %s (%s)", f.Severity, f.Seen, f.Remedy, f.Rule)
	if f.Position == (slurmconf.Position{}) {
		return text
	}
	return f.Position.String() + ": " + text
}

// Rule is one thing to look for.
type Rule struct {
	Name     string // in lower case, with dashes
	Severity Severity
	Why      string // what happens if nothing is done
	Remedy   string // in general; a finding says it exactly
	Source   string // the man page or source file that it rests on
	// Wants is what it looks at beside files, for the documentation.
	Wants Wants
	// text marks a rule that also looks at a slurm.conf which Slurm would refuse.
	text  bool
	check func(f *Facts) []Finding
}

// Wants is what a rule wants to know beside the text of files.
type Wants int

// What there is to know.
const (
	Files      Wants = iota // nothing else
	Host                    // the host of slurmctld
	Kubernetes              // NodeSets
	Live                    // what the bridge's own access to Kubernetes and slurmrestd shows
)

func (w Wants) String() string {
	return [...]string{"files", "slurmctld's host", "NodeSets", "the bridge's access"}[w]
}

// Rules are all rules, those of files first.
func Rules() []Rule {
	return slices.Concat(textRules(), programRules(), hostRules(), timeRules(), parameterRules(), exceptionRules(), nodeRules(), gresRules(), podRules(), nodeSetRules(), accessRules(), runningRules())
}

// Check gives what all rules find: errors first, and by place within a severity.
func Check(f Facts) []Finding {
	var all []Finding
	for _, rule := range Rules() {
		all = append(all, rule.find(&f)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Position.File, b.Position.File), cmp.Compare(a.Position.Line, b.Position.Line))
	})
	return all
}

// find runs one rule.
func (r Rule) find(f *Facts) []Finding {
	if f.Cluster == nil && !r.text {
		return nil
	}
	found := r.check(f)
	for i := range found {
		found[i].Rule, found[i].Severity, found[i].Why = r.Name, r.Severity, r.Why
	}
	return found
}

// Worst is the worst severity; ok is false if nothing was found.
func Worst(findings []Finding) (worst Severity, ok bool) {
	for _, f := range findings {
		if !ok || f.Severity < worst {
			worst, ok = f.Severity, true
		}
	}
	return worst, ok
}
