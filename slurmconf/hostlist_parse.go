package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of ParseHostlist. Slurm itself stops at 65,536 nodes (MAX_SLURM_NODES);
// these leave room above it and keep a short hostile string from filling memory.
const (
	// MaxHostlistNames is the largest number of names in one list.
	MaxHostlistNames = 1 << 20
	// MaxHostlistPrefixes is the largest number of names that all brackets but the
	// last may stand for, over the whole list: r[0-9]n[0-99] has 10.
	MaxHostlistPrefixes = 1 << 18
	// MaxNodeNameLen is the longest node name in bytes.
	MaxNodeNameLen = 255
)

// A HostlistError says what is wrong with a hostlist string and where.
type HostlistError struct {
	Offset  int    // of the offending text, in bytes from the start
	Text    string // the offending text, shortened when long
	Problem string // what is wrong with it, and what to do
}

func (e *HostlistError) Error() string {
	return fmt.Sprintf("hostlist: %q at position %d: %s", e.Text, e.Offset+1, e.Problem)
}

// ParseHostlist reads Slurm's hostlist grammar (src/common/hostlist.c):
//
//	list  = name { separator name }     separators: commas and white space, any number
//	name  = text { "[" item { "," item } "]" text }
//	item  = number [ "-" number ]
//
// The first number of an item sets the width: n[08-11] is n08…n11, n[8-11] is n8…n11.
// With several brackets the names come in Slurm's order: the last bracket turns
// fastest, then the first, the second and so on, so a[0-1]b[0-1]c[0-1] starts
// a0b0c0 a0b0c1 a1b0c0. Text after the last bracket is known to Slurm 24.11, not
// to 22.05. Duplicates are kept. An empty string is an empty list.
//
// It refuses what Slurm reads by accident and surely was not meant: an unclosed
// or stray bracket, a range without an end (n[1-]), signs and white space inside
// brackets; and, as Slurm does, steps (n[0-10:2]) and ranges that run backwards.
// Functions like feature{x} are for slurmctld to expand and are refused too. Unlike
// Slurm it takes ranges of more than 65,536 names; see the limits above.
//
// Errors are of type *HostlistError.
func ParseHostlist(s string) (Hostlist, error) {
	p := parser{in: s}
	for {
		for p.pos < len(s) && isSeparator(s[p.pos]) {
			p.pos++
		}
		if p.pos == len(s) {
			return p.out.list(), nil
		}
		if err := p.name(); err != nil {
			return Hostlist{}, err
		}
	}
}

func isSeparator(c byte) bool {
	return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

type parser struct {
	in       string
	pos      int
	out      builder
	prefixes int

	// The name being read: texts[i] stands before brackets[i], the last text at the
	// end. Kept between names to save allocations.
	texts    []string
	brackets [][]span
	picked   []span // one number of every bracket but the last
}

func (p *parser) fail(from, to int, format string, args ...any) error {
	text := p.in[from:to]
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return &HostlistError{Offset: from, Text: text, Problem: fmt.Sprintf(format, args...)}
}

// name reads one name with its brackets and adds what it stands for.
func (p *parser) name() error {
	start, text := p.pos, p.pos
	p.texts = p.texts[:0]
	used := 0
	for ; p.pos < len(p.in) && !isSeparator(p.in[p.pos]); p.pos++ {
		switch c := p.in[p.pos]; {
		case c == '[':
			p.texts = append(p.texts, p.in[text:p.pos])
			if used == len(p.brackets) {
				p.brackets = append(p.brackets, nil)
			}
			var err error
			if p.brackets[used], err = p.bracket(p.brackets[used][:0]); err != nil {
				return err
			}
			used++
			text = p.pos + 1
		case c == ']':
			return p.fail(start, p.pos+1, "this ] closes nothing; remove it or add the [ before it")
		case c == '{' || c == '}':
			return p.fail(start, p.pos+1, "functions such as feature{x} are expanded by slurmctld alone; list the nodes")
		case c < ' ' || c == 0x7f:
			return p.fail(start, p.pos+1, "control character in a node name")
		}
	}
	p.texts = append(p.texts, p.in[text:p.pos])
	if used == 0 {
		if p.pos-start > MaxNodeNameLen {
			return p.fail(start, p.pos, "a node name has at most %d bytes", MaxNodeNameLen)
		}
		p.out.addName(p.in[start:p.pos])
	} else if err := p.product(start, p.brackets[:used]); err != nil {
		return err
	}
	if p.out.n > MaxHostlistNames {
		return p.fail(start, p.pos, "more than %d names in one list", MaxHostlistNames)
	}
	return nil
}

// bracket reads from "[" up to, not past, "]".
func (p *parser) bracket(items []span) ([]span, error) {
	open := p.pos
	length := strings.IndexAny(p.in[open+1:], "[]")
	if length < 0 || p.in[open+1+length] == '[' {
		return nil, p.fail(open, len(p.in), "this [ has no closing ]")
	}
	end := open + 1 + length
	for p.pos < end {
		from := p.pos + 1
		p.pos = end
		if comma := strings.IndexByte(p.in[from:end], ','); comma >= 0 {
			p.pos = from + comma
		}
		r, err := p.item(from, p.pos)
		if err != nil {
			return nil, err
		}
		items = append(items, r)
	}
	return items, nil
}

// item reads a number or a range of numbers.
func (p *parser) item(from, to int) (span, error) {
	text := p.in[from:to]
	if text == "" {
		return span{}, p.fail(from-1, to+1, "empty range in brackets; write a number or first-last")
	}
	first, last, isRange := strings.Cut(text, "-")
	if strings.ContainsRune(text, ':') {
		return span{}, p.fail(from, to, "Slurm hostlists have no steps; list the numbers")
	}
	for _, num := range []string{first, last} {
		for i := range len(num) {
			if !isDigit(num[i]) {
				return span{}, p.fail(from, to, "not a number or a range of numbers first-last")
			}
		}
	}
	if first == "" || isRange && last == "" {
		return span{}, p.fail(from, to, "a range needs a first and a last number")
	}
	lo, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return span{}, p.fail(from, to, "number too large")
	}
	hi := lo
	if isRange {
		if hi, err = strconv.ParseUint(last, 10, 64); err != nil {
			return span{}, p.fail(from, to, "number too large")
		}
	}
	switch {
	case hi < lo:
		return span{}, p.fail(from, to, "the range runs backwards; write %s-%s", last, first)
	case hi-lo >= MaxHostlistNames:
		return span{}, p.fail(from, to, "more than %d names in one range", MaxHostlistNames)
	}
	return span{lo, hi, len(first)}, nil
}

// product adds the names that the texts and brackets of one name stand for.
func (p *parser) product(start int, brackets [][]span) error {
	lastText := p.texts[len(p.texts)-1]
	length := 0
	for _, t := range p.texts {
		length += len(t)
	}
	prefixes, names := 1, 0
	for i, items := range brackets {
		sum, widest := 0, 0
		for j := range items {
			sum += items[j].count()
			widest = max(widest, items[j].maxLen())
		}
		if sum > MaxHostlistNames {
			return p.fail(start, p.pos, "more than %d names in one list", MaxHostlistNames)
		}
		length += widest
		if i == len(brackets)-1 {
			names = sum
			break
		}
		if prefixes *= sum; prefixes > MaxHostlistPrefixes {
			return p.fail(start, p.pos, "the brackets before the last stand for more than %d prefixes", MaxHostlistPrefixes)
		}
	}
	switch {
	case length > MaxNodeNameLen:
		return p.fail(start, p.pos, "a node name has at most %d bytes", MaxNodeNameLen)
	case p.out.n+prefixes*names > MaxHostlistNames:
		return p.fail(start, p.pos, "more than %d names in one list", MaxHostlistNames)
	}
	if len(brackets) > 1 {
		if p.prefixes += prefixes; p.prefixes > MaxHostlistPrefixes {
			return p.fail(start, p.pos, "the brackets before the last stand for more than %d prefixes", MaxHostlistPrefixes)
		}
	}
	p.picked = append(p.picked[:0], make([]span, len(brackets)-1)...)
	p.pick(len(brackets)-2, brackets, lastText)
	return nil
}

// pick chooses a number for bracket i and those before it, then adds the ranges of
// the last bracket under the prefix made so.
func (p *parser) pick(i int, brackets [][]span, suffix string) {
	if i < 0 {
		prefix := p.texts[0]
		if len(p.picked) > 0 {
			buf := []byte(prefix)
			for j, s := range p.picked {
				buf = appendNumber(buf, s.lo, s.width)
				buf = append(buf, p.texts[j+1]...)
			}
			prefix = string(buf)
		}
		for _, s := range brackets[len(brackets)-1] {
			p.out.addSpan(prefix, suffix, s)
		}
		return
	}
	for _, s := range brackets[i] {
		for j := range s.count() {
			p.picked[i] = span{lo: s.lo + uint64(j), width: s.width}
			p.pick(i-1, brackets, suffix)
		}
	}
}
