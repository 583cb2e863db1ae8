package scaler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Constraint is a parsed --constraint of a job. The zero value admits every node.
//
// It follows job_scheduler.c _feature_string2list for the grammar, and node_scheduler.c valid_feature_counts,
// _valid_features and _get_req_features for the meaning, which holds some surprises:
//   - "&" and "|" bind equally and from left to right: "a|b&c" is "(a|b)&c". A comma is a "&".
//   - "[a|b]" and, without counts, "[a&b]" mean: all nodes have a, or all nodes have b.
//   - "a*4" asks for four nodes with a; any further ones may be without. "[a*2&b*4]" asks for two with a and four
//     others with b. A term without a count beside terms with one is ignored.
//
// Features that change with a reboot (node_features plugins) are taken as they are listed.
type Constraint struct {
	terms []term
}

// term is one feature, or a pair of parentheses with several.
type term struct {
	names     []string
	ops       []byte // between names: '&' or '|'
	count     int    // nodes; 0: not given
	before    byte   // the operator before the term; '&' before the first
	bracketed bool
}

// Alternative is one way to satisfy a Constraint: Groups of distinct nodes with one feature each, and a rule
// for the other nodes of the job.
type Alternative struct {
	Groups []FeatureGroup
	anyOf  []term // one of them must hold, if there are any
	rest   []term // combined by their operators
}

// FeatureGroup is a number of nodes that need a feature.
type FeatureGroup struct {
	Count int
	term  term
}

// ParseConstraint reads what a user gave to --constraint, or slurmctld shows as a job's features. slurmctld
// refuses jobs with a bad one, so an error stands for a Slurm newer than this.
func ParseConstraint(text string) (Constraint, error) {
	p := constraintParser{text: text, op: '&'}
	if err := p.parse(); err != nil {
		return Constraint{}, fmt.Errorf("constraint %q: %w", text, err)
	}
	return Constraint{p.terms}, nil
}

type constraintParser struct {
	text    string
	terms   []term
	now     term
	op      byte // after the last term
	bracket bool // inside
	paren   bool // inside
	had     bool // brackets
	closed  bool // the last character was ) or ], or a count: only an operator may follow
}

func (p *constraintParser) parse() error {
	outside := false // a count outside of brackets
	for i := 0; i < len(p.text); i++ {
		whole := len(p.now.names) > 0 // a feature has been read
		switch c := p.text[i]; c {
		case '*':
			digits := len(p.text[i+1:]) - len(strings.TrimLeft(p.text[i+1:], "0123456789"))
			n, err := strconv.ParseUint(p.text[i+1:i+1+digits], 10, 31)
			if err != nil || n == 0 || !whole || p.paren || p.now.count > 0 {
				return fmt.Errorf("the * at %d needs a feature before it and a number of nodes after it", i)
			}
			p.now.count, p.closed = int(n), true
			outside = outside || !p.bracket
			i += digits
		case '&', '|', ',':
			if c == ',' {
				c = '&'
			}
			if !whole || len(p.now.ops) == len(p.now.names) {
				return fmt.Errorf("the %c at %d has no feature before it", p.text[i], i)
			}
			if p.paren {
				p.now.ops = append(p.now.ops, c)
			} else {
				p.end(c)
			}
			p.closed = false
		case '[':
			if whole || p.bracket || p.paren || p.had {
				return fmt.Errorf("the [ at %d: only one pair of brackets is allowed, and not inside of others", i)
			}
			p.bracket, p.had = true, true
		case ']':
			if !whole || !p.bracket || p.paren {
				return fmt.Errorf("the ] at %d closes nothing", i)
			}
			p.now.bracketed = true
			p.bracket, p.closed = false, true
		case '(':
			if whole || p.paren {
				return fmt.Errorf("the ( at %d: parentheses cannot stand inside of others", i)
			}
			p.paren = true
		case ')':
			if !whole || !p.paren || len(p.now.ops) == len(p.now.names) {
				return fmt.Errorf("the ) at %d closes nothing", i)
			}
			p.paren, p.closed = false, true
		default:
			if p.closed {
				return fmt.Errorf("%q at %d: an operator is missing before it", c, i)
			}
			end := i + len(p.text[i:]) - len(strings.TrimLeftFunc(p.text[i:], isFeatureRune))
			p.now.names = append(p.now.names, p.text[i:end])
			i = end - 1
		}
	}
	switch {
	case p.bracket:
		return errors.New("a [ is not closed")
	case p.paren:
		return errors.New("a ( is not closed")
	case len(p.now.names) > 0:
		p.end(0) // an operator at the end, as in "a&", means nothing to Slurm
	}
	if outside && len(p.terms) > 1 {
		return errors.New("a * outside of brackets is allowed for a single feature only")
	}
	return nil
}

func isFeatureRune(r rune) bool { return !strings.ContainsRune("*&|,[]()", r) }

// end completes the term before an operator.
func (p *constraintParser) end(op byte) {
	p.now.before, p.op = p.op, op
	p.now.bracketed = p.now.bracketed || p.bracket
	p.terms = append(p.terms, p.now)
	p.now = term{}
}

// holds reports whether a node with these features satisfies the term.
func (t term) holds(features []string) bool {
	ok := slices.Contains(features, t.names[0])
	for i, op := range t.ops {
		has := slices.Contains(features, t.names[i+1])
		if op == '&' {
			ok = ok && has
		} else {
			ok = ok || has
		}
	}
	return ok
}

// Alternatives returns the ways to satisfy the constraint, in the order in which slurmctld tries them. There is
// at least one.
func (c Constraint) Alternatives() []Alternative {
	var inside, outside []term
	counted := Alternative{}
	for _, t := range c.terms {
		if t.count > 0 {
			counted.Groups = append(counted.Groups, FeatureGroup{t.count, t})
		}
		if t.bracketed {
			inside = append(inside, t)
		} else {
			outside = append(outside, t)
		}
	}
	switch {
	case len(counted.Groups) > 0:
		if len(inside) > 1 { // _valid_features leaves out nodes without any of them
			counted.anyOf = inside
		}
		return []Alternative{counted}
	case len(inside) > 1:
		all := make([]Alternative, len(inside))
		for i, t := range inside {
			all[i] = Alternative{anyOf: []term{t}, rest: outside}
		}
		return all
	}
	return []Alternative{{rest: c.terms}}
}

// Admits reports whether a node with these features may be one of the job's nodes outside of Groups.
func (a Alternative) Admits(features []string) bool {
	if len(a.anyOf) > 0 && !slices.ContainsFunc(a.anyOf, func(t term) bool { return t.holds(features) }) {
		return false
	}
	ok := true
	for _, t := range a.rest {
		if t.before == '|' {
			ok = ok || t.holds(features)
		} else {
			ok = ok && t.holds(features)
		}
	}
	return ok
}

// Admits reports whether a node with these features may be one of the group.
func (g FeatureGroup) Admits(features []string) bool { return g.term.holds(features) }
