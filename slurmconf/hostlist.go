package slurmconf

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Hostlist is an ordered list of node names in Slurm's bracket notation.
// Duplicates are kept, as in Slurm. The zero value is the empty list. A Hostlist
// never changes after it was made, so copies may share it.
//
// Names are held as spans of numbers: n[0-99999] takes one, whatever its length.
type Hostlist struct {
	terms []term
	spans []span // of all terms, one after the other
	n     int
}

// term is a run of names with the same text around their number.
type term struct {
	prefix, suffix string
	spans          int // how many of the list's spans; 0: the name is prefix, without a number
}

// span stands for the numbers lo to hi, written with at least width digits.
type span struct {
	lo, hi uint64
	width  int
}

func (s span) count() int { return int(s.hi-s.lo) + 1 }

// maxLen is the length of the longest number.
func (s span) maxLen() int { return max(s.width, digits(s.hi)) }

// NewHostlist returns the list of names in the order given. Names are taken as
// they are: brackets and commas mean nothing here. Empty names are left out.
func NewHostlist(names ...string) Hostlist {
	var b builder
	for _, name := range names {
		b.addName(name)
	}
	return b.list()
}

// CompressHostlist returns the hostlist string for names, in the order given, as
// `scontrol show hostlist` prints it: neighbours that follow each other are joined,
// and only the last number of a name goes into brackets.
func CompressHostlist(names []string) string { return NewHostlist(names...).String() }

// Len returns the number of names.
func (h Hostlist) Len() int { return h.n }

// All yields the names in order without building them all.
func (h Hostlist) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		var c cursor
		for t, spans := range h.all() {
			if len(spans) == 0 && !yield(t.prefix) {
				return
			}
			for _, s := range spans {
				c.start(t, s)
				for range s.count() {
					if !yield(string(c.name)) {
						return
					}
					c.next()
				}
			}
		}
	}
}

// all yields the terms with their spans.
func (h Hostlist) all() iter.Seq2[*term, []span] {
	return func(yield func(*term, []span) bool) {
		rest := h.spans
		for i := range h.terms {
			t := &h.terms[i]
			if !yield(t, rest[:t.spans]) {
				return
			}
			rest = rest[t.spans:]
		}
	}
}

// Expand returns all names in order. They share memory: keeping one of them keeps
// them all.
func (h Hostlist) Expand() []string {
	size := 0
	for t, spans := range h.all() {
		for _, s := range spans {
			size += s.count() * (len(t.prefix) + s.maxLen() + len(t.suffix))
		}
	}
	var block strings.Builder
	block.Grow(size) // it never moves while it is filled
	names := make([]string, 0, h.n)
	var c cursor
	for t, spans := range h.all() {
		if len(spans) == 0 {
			names = append(names, t.prefix)
		}
		for _, s := range spans {
			c.start(t, s)
			for range s.count() {
				from := block.Len()
				block.Write(c.name)
				names = append(names, block.String()[from:])
				c.next()
			}
		}
	}
	return names
}

// WriteNames writes all names in order to w, separator between them and a newline
// at the end. An empty list writes nothing.
func (h Hostlist) WriteNames(w io.Writer, separator string) error {
	if h.n == 0 {
		return nil
	}
	const chunk = 1 << 16
	buf := make([]byte, 0, chunk+chunk/4)
	left := h.n
	write := func(name []byte) error {
		buf = append(buf, name...)
		if left--; left == 0 {
			buf = append(buf, '\n')
		} else {
			buf = append(buf, separator...)
			if len(buf) < chunk {
				return nil
			}
		}
		_, err := w.Write(buf)
		buf = buf[:0]
		return err
	}
	var c cursor
	for t, spans := range h.all() {
		if len(spans) == 0 {
			if err := write([]byte(t.prefix)); err != nil {
				return err
			}
		}
		for _, s := range spans {
			c.start(t, s)
			for range s.count() {
				if err := write(c.name); err != nil {
					return err
				}
				c.next()
			}
		}
	}
	return nil
}

// cursor steps through the names of a span by counting in the text.
type cursor struct {
	name     []byte
	from, to int // the number in name
	suffix   string
}

func (c *cursor) start(t *term, s span) {
	c.name = append(c.name[:0], t.prefix...)
	c.from = len(c.name)
	c.name = appendNumber(c.name, s.lo, s.width)
	c.to, c.suffix = len(c.name), t.suffix
	c.name = append(c.name, t.suffix...)
}

func (c *cursor) next() {
	for i := c.to - 1; i >= c.from; i-- {
		if c.name[i] != '9' {
			c.name[i]++
			return
		}
		c.name[i] = '0'
	}
	// All were nines: 1 and zeros, one digit longer.
	c.name = append(c.name[:c.to], '0')
	c.name[c.from] = '1'
	c.to++
	c.name = append(c.name, c.suffix...)
}

// At returns name number i, counted from 0. It panics when i is out of range, as
// indexing a slice does.
func (h Hostlist) At(i int) string {
	for name := range h.Slice(i, i+1).All() {
		return name
	}
	panic("unreachable: a slice of one name has one")
}

// Slice returns names from (included) to to (excluded), like names[from:to]. It
// panics when the bounds are out of range.
func (h Hostlist) Slice(from, to int) Hostlist {
	if from < 0 || to < from || to > h.n {
		panic(fmt.Sprintf("slurmconf: names %d:%d of a hostlist of %d", from, to, h.n))
	}
	var b builder
	for t, spans := range h.all() {
		if len(spans) == 0 {
			if from <= 0 && to > 0 {
				b.addPlain(t.prefix)
			}
			from, to = from-1, to-1
		}
		for _, s := range spans {
			c := s.count()
			if from < c && to > 0 {
				b.addSpan(t.prefix, t.suffix, span{s.lo + uint64(max(from, 0)), s.lo + uint64(min(to, c)-1), s.width})
			}
			from, to = from-c, to-c
		}
		if to <= 0 {
			break
		}
	}
	return b.list()
}

// Contains reports whether name is in the list, letter by letter: n1 is not n01.
func (h Hostlist) Contains(name string) bool { return h.Index(name) >= 0 }

// Index returns the position of the first occurrence of name, -1 if there is none.
// It may look at every span; for many questions to a long list, build a map.
func (h Hostlist) Index(name string) int {
	before := 0
	for t, spans := range h.all() {
		if len(spans) == 0 {
			if name == t.prefix {
				return before
			}
			before++
			continue
		}
		num, ok := t.number(name)
		for _, s := range spans {
			if ok {
				if i, found := s.index(num); found {
					return before + i
				}
			}
			before += s.count()
		}
	}
	return -1
}

// number returns the digits of name if it has t's prefix and suffix around them.
func (t *term) number(name string) (string, bool) {
	num, ok := strings.CutPrefix(name, t.prefix)
	if !ok {
		return "", false
	}
	num, ok = strings.CutSuffix(num, t.suffix)
	if !ok || num == "" {
		return "", false
	}
	for i := range len(num) {
		if !isDigit(num[i]) {
			return "", false
		}
	}
	return num, true
}

func (s span) index(num string) (int, bool) {
	n, err := strconv.ParseUint(num, 10, 64)
	if err != nil || n < s.lo || n > s.hi || len(num) != max(s.width, digits(n)) {
		return 0, false
	}
	return int(n - s.lo), true
}

// Append returns the names of h followed by those of others, duplicates included.
func (h Hostlist) Append(others ...Hostlist) Hostlist {
	var b builder
	for _, list := range append([]Hostlist{h}, others...) {
		for t, spans := range list.all() {
			if len(spans) == 0 {
				b.addPlain(t.prefix)
			}
			for _, s := range spans {
				b.addSpan(t.prefix, t.suffix, s)
			}
		}
	}
	return b.list()
}

// Union returns the names of h followed by those of other that h does not have.
// Each name appears once.
func (h Hostlist) Union(other Hostlist) Hostlist {
	seen := make(map[string]struct{}, h.n+other.n)
	var b builder
	for _, l := range []Hostlist{h, other} {
		for name := range l.All() {
			if _, ok := seen[name]; !ok {
				seen[name] = struct{}{}
				b.addName(name)
			}
		}
	}
	return b.list()
}

// Intersect returns the names of h that are in other too, in the order of h.
func (h Hostlist) Intersect(other Hostlist) Hostlist { return h.filter(other, true) }

// Minus returns the names of h that are not in other, in the order of h.
func (h Hostlist) Minus(other Hostlist) Hostlist { return h.filter(other, false) }

func (h Hostlist) filter(other Hostlist, keep bool) Hostlist {
	in := make(map[string]struct{}, other.n)
	for name := range other.All() {
		in[name] = struct{}{}
	}
	var b builder
	for name := range h.All() {
		if _, ok := in[name]; ok == keep {
			b.addName(name)
		}
	}
	return b.list()
}

// String returns the compressed form, as `scontrol show hostlist` prints it.
func (h Hostlist) String() string {
	var buf []byte
	for t, spans := range h.all() {
		if len(buf) > 0 {
			buf = append(buf, ',')
		}
		buf = t.append(buf, spans)
	}
	return string(buf)
}

func (t *term) append(buf []byte, spans []span) []byte {
	switch {
	case len(spans) == 0:
		return append(buf, t.prefix...)
	case t.suffix != "":
		// To Slurm these are names without a number: no brackets.
		var c cursor
		for _, s := range spans {
			c.start(t, s)
			for range s.count() {
				buf = append(append(buf, c.name...), ',')
				c.next()
			}
		}
		return buf[:len(buf)-1]
	}
	buf = append(buf, t.prefix...)
	if len(spans) == 1 && spans[0].lo == spans[0].hi {
		return appendNumber(buf, spans[0].lo, spans[0].width)
	}
	for i, s := range spans {
		if i == 0 {
			buf = append(buf, '[')
		} else {
			buf = append(buf, ',')
		}
		buf = appendNumber(buf, s.lo, s.width)
		if s.lo < s.hi {
			buf = append(buf, '-')
			buf = appendNumber(buf, s.hi, s.width)
		}
	}
	return append(buf, ']')
}

// MarshalText returns the compressed form.
func (h Hostlist) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what ParseHostlist reads.
func (h *Hostlist) UnmarshalText(text []byte) error {
	list, err := ParseHostlist(string(text))
	if err != nil {
		return err
	}
	*h = list
	return nil
}

// builder collects names and joins neighbours as Slurm does (hostlist.c
// hostlist_push_range).
type builder Hostlist

func (b *builder) list() Hostlist { return Hostlist(*b) }

// addName adds one name, split at its trailing number.
func (b *builder) addName(name string) {
	if name == "" {
		return
	}
	i := len(name)
	for i > 0 && isDigit(name[i-1]) {
		i--
	}
	if i < len(name) {
		if n, err := strconv.ParseUint(name[i:], 10, 64); err == nil {
			b.addSpan(name[:i], "", span{n, n, len(name) - i})
			return
		}
	}
	b.addPlain(name)
}

func (b *builder) addPlain(name string) {
	b.terms = append(b.terms, term{prefix: name})
	b.n++
}

func (b *builder) addSpan(prefix, suffix string, s span) {
	b.n += s.count()
	if len(b.terms) > 0 {
		last := &b.terms[len(b.terms)-1]
		if last.spans > 0 && last.prefix == prefix && last.suffix == suffix {
			if !b.spans[len(b.spans)-1].join(s) {
				b.pushSpan(s)
				last.spans++
			}
			return
		}
	}
	b.terms = append(b.terms, term{prefix: prefix, suffix: suffix, spans: 1})
	b.pushSpan(s)
}

// pushSpan doubles the space when it is full: append grows large slices by a quarter
// only, and copying was most of the time for lists without neighbours.
func (b *builder) pushSpan(s span) {
	if len(b.spans) == cap(b.spans) {
		b.spans = slices.Grow(b.spans, len(b.spans)+1)
	}
	b.spans = append(b.spans, s)
}

// join appends next to s when its first number follows the last of s and the same
// width writes both without changing a name (hostlist.c _width_equiv).
func (s *span) join(next span) bool {
	if next.lo == 0 || s.hi != next.lo-1 {
		return false
	}
	if s.width != next.width {
		pad, nextPad := padding(s.lo, s.width), padding(next.lo, next.width)
		swapped, nextSwapped := padding(s.lo, next.width), padding(next.lo, s.width)
		switch {
		case pad != swapped && nextPad != nextSwapped:
			return false
		case pad == swapped:
			s.width = next.width
		}
	}
	s.hi = next.hi
	return true
}

func padding(n uint64, width int) int { return max(0, width-digits(n)) }

func digits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

func appendNumber(dst []byte, n uint64, width int) []byte {
	var buf [20]byte // 2^64 has 20 digits
	num := strconv.AppendUint(buf[:0], n, 10)
	for range width - len(num) {
		dst = append(dst, '0')
	}
	return append(dst, num...)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
