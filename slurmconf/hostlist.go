package slurmconf

import (
	"iter"
	"strconv"
	"strings"
)

// Hostlist is an ordered list of node names in Slurm's bracket notation.
// Duplicates are kept, as in Slurm. The zero value is the empty list. A Hostlist
// never changes after it was made, so copies may share it.
//
// Names are held as ranges: n[0-99999] takes one range, whatever its length.
type Hostlist struct {
	ranges []hostRange
	n      int
}

// hostRange is a run of names prefix + number + suffix, the numbers lo..hi written
// with at least width digits. A plain range is one name, held in prefix.
type hostRange struct {
	prefix, suffix string
	lo, hi         uint64
	width          int
	plain          bool
}

func (r *hostRange) count() int {
	if r.plain {
		return 1
	}
	return int(r.hi-r.lo) + 1
}

// listed reports whether Slurm prints the range in brackets. Names with a suffix
// are whole names to Slurm: it neither joins them nor brackets them.
func (r *hostRange) listed() bool { return !r.plain && r.suffix == "" }

// appendName appends name number i of the range to dst.
func (r *hostRange) appendName(dst []byte, i int) []byte {
	dst = append(dst, r.prefix...)
	if r.plain {
		return dst
	}
	dst = appendNumber(dst, r.lo+uint64(i), r.width)
	return append(dst, r.suffix...)
}

// maxNameLen bounds the length of names in r.
func (r *hostRange) maxNameLen() int {
	if r.plain {
		return len(r.prefix)
	}
	return len(r.prefix) + len(r.suffix) + max(r.width, digits(r.hi))
}

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
		var buf []byte
		for i := range h.ranges {
			r := &h.ranges[i]
			if r.plain {
				if !yield(r.prefix) {
					return
				}
				continue
			}
			for j := range r.count() {
				buf = r.appendName(buf[:0], j)
				if !yield(string(buf)) {
					return
				}
			}
		}
	}
}

// Expand returns all names in order. The names of one range share one block of
// memory, so keeping a single name keeps its neighbours.
func (h Hostlist) Expand() []string {
	names := make([]string, 0, h.n)
	var buf []byte
	var ends []int
	for i := range h.ranges {
		r := &h.ranges[i]
		if r.plain {
			names = append(names, r.prefix)
			continue
		}
		buf, ends = buf[:0], ends[:0]
		for j := range r.count() {
			buf = r.appendName(buf, j)
			ends = append(ends, len(buf))
		}
		block, start := string(buf), 0
		for _, end := range ends {
			names = append(names, block[start:end])
			start = end
		}
	}
	return names
}

// At returns name number i, counted from 0. It panics when i is out of range, as
// indexing a slice does.
func (h Hostlist) At(i int) string {
	if i >= 0 {
		rest := i
		for k := range h.ranges {
			r := &h.ranges[k]
			if c := r.count(); rest >= c {
				rest -= c
				continue
			}
			return string(r.appendName(nil, rest))
		}
	}
	panic("slurmconf: name " + strconv.Itoa(i) + " of a hostlist of " + strconv.Itoa(h.n))
}

// Slice returns names from (included) to to (excluded), like names[from:to]. It
// panics when the bounds are out of range.
func (h Hostlist) Slice(from, to int) Hostlist {
	if from < 0 || to < from || to > h.n {
		panic("slurmconf: names " + strconv.Itoa(from) + ":" + strconv.Itoa(to) + " of a hostlist of " + strconv.Itoa(h.n))
	}
	var b builder
	for _, r := range h.ranges {
		c := r.count()
		if from < c && to > 0 {
			if !r.plain {
				r.hi = r.lo + uint64(min(to, c)-1)
				r.lo += uint64(max(from, 0))
			}
			b.add(r)
		}
		from, to = from-c, to-c
	}
	return b.list()
}

// Contains reports whether name is in the list, letter by letter: n1 is not n01.
func (h Hostlist) Contains(name string) bool { return h.Index(name) >= 0 }

// Index returns the position of the first occurrence of name, -1 if there is none.
// It looks at every range; for many questions over a long list, build a map.
func (h Hostlist) Index(name string) int {
	before := 0
	for i := range h.ranges {
		r := &h.ranges[i]
		if at, ok := r.index(name); ok {
			return before + at
		}
		before += r.count()
	}
	return -1
}

func (r *hostRange) index(name string) (int, bool) {
	if r.plain {
		return 0, name == r.prefix
	}
	num, ok := strings.CutPrefix(name, r.prefix)
	if !ok {
		return 0, false
	}
	num, ok = strings.CutSuffix(num, r.suffix)
	if !ok || num == "" || !isDigit(num[0]) || !isDigit(num[len(num)-1]) {
		return 0, false
	}
	n, err := strconv.ParseUint(num, 10, 64)
	if err != nil || n < r.lo || n > r.hi || len(num) != max(r.width, digits(n)) {
		return 0, false
	}
	return int(n - r.lo), true
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
	for i := 0; i < len(h.ranges); {
		if i > 0 {
			buf = append(buf, ',')
		}
		r := &h.ranges[i]
		if !r.listed() {
			for j := range r.count() {
				if j > 0 {
					buf = append(buf, ',')
				}
				buf = r.appendName(buf, j)
			}
			i++
			continue
		}
		end := i + 1
		for end < len(h.ranges) && h.ranges[end].listed() && h.ranges[end].prefix == r.prefix {
			end++
		}
		buf = appendBracketed(buf, h.ranges[i:end])
		i = end
	}
	return string(buf)
}

// appendBracketed writes ranges of one prefix.
func appendBracketed(buf []byte, ranges []hostRange) []byte {
	buf = append(buf, ranges[0].prefix...)
	if len(ranges) == 1 && ranges[0].lo == ranges[0].hi {
		return appendNumber(buf, ranges[0].lo, ranges[0].width)
	}
	for i := range ranges {
		r := &ranges[i]
		if i == 0 {
			buf = append(buf, '[')
		} else {
			buf = append(buf, ',')
		}
		buf = appendNumber(buf, r.lo, r.width)
		if r.lo < r.hi {
			buf = append(buf, '-')
			buf = appendNumber(buf, r.hi, r.width)
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

// builder collects ranges and joins neighbours as Slurm does (hostlist.c
// hostlist_push_range).
type builder struct {
	ranges []hostRange
	n      int
}

func (b *builder) list() Hostlist { return Hostlist(*b) }

func (b *builder) add(r hostRange) {
	b.n += r.count()
	if len(b.ranges) > 0 && b.ranges[len(b.ranges)-1].join(&r) {
		return
	}
	b.ranges = append(b.ranges, r)
}

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
			b.add(hostRange{prefix: name[:i], lo: n, hi: n, width: len(name) - i})
			return
		}
	}
	b.add(hostRange{prefix: name, plain: true})
}

// join appends next to r when its first number follows the last of r and the same
// width writes both without changing a name (hostlist.c _width_equiv).
func (r *hostRange) join(next *hostRange) bool {
	if !r.listed() || !next.listed() || next.lo == 0 || r.hi != next.lo-1 || r.prefix != next.prefix {
		return false
	}
	if r.width != next.width {
		rPad, rNextPad := padding(r.lo, r.width), padding(r.lo, next.width)
		nextPad, nextRPad := padding(next.lo, next.width), padding(next.lo, r.width)
		switch {
		case rPad != rNextPad && nextPad != nextRPad:
			return false
		case rPad == rNextPad:
			r.width = next.width
		}
	}
	r.hi = next.hi
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
	for range padding(n, width) {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, n, 10)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
