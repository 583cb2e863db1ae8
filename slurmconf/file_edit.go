package slurmconf

import (
	"fmt"
	"slices"
	"strings"
)

// Set gives a key its value. The line that counts, the last one, is changed in place, what else stands in it stays; earlier lines
// of the key, which Slurm complains about, are removed. Without such a line one is added at the end.
//
// Keys that may stand several times, such as NodeName, are refused: use Add, Remove and SetField for these.
func (f *File) Set(key, value string) error {
	if repeatable(key) {
		return fmt.Errorf("setting %s in %s: it may stand several times; use Add, RemoveRecord or SetField", key, f.name)
	}
	last := -1
	for i := range f.lines {
		if f.lines[i].is(key) {
			last = i
		}
	}
	if last < 0 {
		text, err := pairText(key, value)
		if err != nil {
			return fmt.Errorf("setting %s in %s: %w", key, f.name, err)
		}
		return f.Add(text)
	}
	if len(f.lines[last].pairs) > 1 {
		return fmt.Errorf("setting %s in %s: its line has fields; use SetField", key, f.name)
	}
	if err := f.replace(last, 0, value); err != nil {
		return fmt.Errorf("setting %s in %s: %w", key, f.name, err)
	}
	f.removeLines(func(i int) bool { return i < last && f.lines[i].is(key) })
	return nil
}

// Add puts a line at the end, as it is: "NodeName=cpu[0-9] CPUs=4". It may be a comment, or several lines.
func (f *File) Add(text string) error {
	added, err := ParseFile(f.name, []byte(strings.TrimSuffix(text, "\n")+"\n"))
	if err != nil {
		return fmt.Errorf("adding to %s: %w", f.name, err)
	}
	if err := f.endLine(); err != nil {
		return err
	}
	f.lines = append(f.lines, added.lines...)
	f.renumber()
	return nil
}

// endLine makes sure that what is appended begins a line.
func (f *File) endLine() error {
	if len(f.lines) == 0 {
		return nil
	}
	last := &f.lines[len(f.lines)-1]
	p := lineParser{file: f}
	for range 2 { // the newline may only end a continuation
		if n := p.scan(last.raw + "\n"); strings.HasSuffix(last.raw, "\n") && n == len(last.raw) {
			return nil
		}
		last.raw += "\n"
		p.scan(last.raw)
		*last = p.parse(last.raw, last.first)
	}
	return nil
}

// Remove takes all lines of a key away and tells how many.
func (f *File) Remove(key string) int {
	return f.removeLines(func(i int) bool { return f.lines[i].is(key) })
}

// RemoveRecord takes the lines away that begin with this pair, NodeName=cpu[0-9] for example, and tells how many.
func (f *File) RemoveRecord(key, value string) int {
	return f.removeLines(func(i int) bool { return f.lines[i].is(key) && f.lines[i].pairs[0].value == value })
}

func (f *File) removeLines(which func(i int) bool) int {
	var kept []line
	for i := range f.lines {
		if !which(i) {
			kept = append(kept, f.lines[i])
		}
	}
	n := len(f.lines) - len(kept)
	f.lines = kept
	f.renumber()
	return n
}

// SetField gives the lines that begin with key=record a field its value: CPUs of NodeName=cpu[0-9]. If there is no such line it is
// an error; a field that is not there is put behind the others.
func (f *File) SetField(key, record, field, value string) error {
	found := false
	for i := range f.lines {
		l := &f.lines[i]
		if !l.is(key) || l.pairs[0].value != record {
			continue
		}
		found = true
		if err := f.setField(i, field, value); err != nil {
			return fmt.Errorf("setting %s of %s=%s in %s: %w", field, key, record, f.name, err)
		}
	}
	if !found {
		return fmt.Errorf("setting %s of %s=%s: no such line in %s; add it first", field, key, record, f.name)
	}
	return nil
}

func (f *File) setField(i int, field, value string) error {
	l := f.lines[i]
	for n := len(l.pairs) - 1; n > 0; n-- {
		if strings.EqualFold(l.pairs[n].key, field) {
			return f.replace(i, n, value)
		}
	}
	text, err := pairText(field, value)
	if err != nil {
		return err
	}
	end := l.pairs[len(l.pairs)-1].end
	return f.rewrite(i, l.raw[:end]+" "+text+l.raw[end:])
}

// RemoveField takes a field out of the lines that begin with key=record, with the blanks before it, and tells how many.
func (f *File) RemoveField(key, record, field string) int {
	count := 0
	for i := range f.lines {
		if !f.lines[i].is(key) || f.lines[i].pairs[0].value != record {
			continue
		}
		for n := len(f.lines[i].pairs) - 1; n > 0; n-- {
			l := f.lines[i]
			if !strings.EqualFold(l.pairs[n].key, field) {
				continue
			}
			if f.rewrite(i, l.raw[:l.pairs[n-1].end]+l.raw[l.pairs[n].end:]) == nil {
				count++
			}
		}
	}
	return count
}

// AddWords adds words to a key that is a list with commas, such as SlurmctldParameters: a word name=value takes the place of
// one with the same name, others that are there already are left alone. Without such a line one is added at the end.
func (f *File) AddWords(key string, words ...string) error {
	list := f.words(key)
	for _, word := range words {
		if word == "" || strings.ContainsRune(word, ',') {
			return fmt.Errorf("adding %q to %s in %s: give one word at a time, without commas", word, key, f.name)
		}
		if i := slices.IndexFunc(list, sameWord(word)); i >= 0 {
			list[i] = word
		} else {
			list = append(list, word)
		}
	}
	return f.Set(key, strings.Join(list, ","))
}

// RemoveWords takes words out of such a list, by name: "power_save_interval" removes power_save_interval=0. A line that
// has none left is removed.
func (f *File) RemoveWords(key string, names ...string) error {
	list := f.words(key)
	kept := slices.DeleteFunc(slices.Clone(list), func(word string) bool {
		return slices.ContainsFunc(names, sameWord(word))
	})
	switch {
	case len(kept) == len(list):
		return nil
	case len(kept) == 0 && !repeatable(key):
		f.Remove(key)
		return nil
	}
	return f.Set(key, strings.Join(kept, ","))
}

func (f *File) words(key string) []string {
	s, _ := f.Get(key)
	return s.Words()
}

// Words are the words of a list with commas.
func (s Setting) Words() []string {
	var words []string
	for _, word := range strings.Split(s.Value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// sameWord tells whether words have the same name, which is what stands before a "=".
func sameWord(word string) func(string) bool {
	name, _, _ := strings.Cut(word, "=")
	return func(other string) bool {
		other, _, _ = strings.Cut(other, "=")
		return strings.EqualFold(name, other)
	}
}

// replace puts another value in the place of the nth pair's.
func (f *File) replace(i, n int, value string) error {
	l := f.lines[i]
	if l.pairs[n].value == value {
		return nil
	}
	text, err := valueText(value)
	if err != nil {
		return err
	}
	return f.rewrite(i, l.raw[:l.pairs[n].valueAt]+text+l.raw[l.pairs[n].end:])
}

// rewrite makes raw the text of a line.
func (f *File) rewrite(i int, raw string) error {
	p := lineParser{file: f}
	if n := p.scan(raw); n != len(raw) {
		return fmt.Errorf("the text %s would be two lines", quoteShort(raw))
	}
	l := p.parse(raw, f.lines[i].first)
	if l.problem != nil {
		return *l.problem
	}
	newlines := strings.Count(f.lines[i].raw, "\n")
	f.lines[i] = l
	if strings.Count(raw, "\n") != newlines {
		f.renumber()
	}
	return nil
}

func (f *File) renumber() {
	number := 1
	for i := range f.lines {
		f.lines[i].first = number
		number += strings.Count(f.lines[i].raw, "\n")
	}
}

// pairText writes key=value.
func pairText(key, value string) (string, error) {
	if key == "" || strings.IndexFunc(key, func(r rune) bool { return r > 0x7f || !isKeyByte(byte(r)) }) >= 0 {
		return "", fmt.Errorf("%s cannot be a key: it needs letters, digits, _ and . alone", quoteShort(key))
	}
	text, err := valueText(value)
	return key + "=" + text, err
}

// valueText writes a value as Slurm reads it.
func valueText(value string) (string, error) {
	text := strings.NewReplacer(`\`, `\\`, "#", `\#`).Replace(value)
	if value == "" || strings.IndexFunc(value, func(r rune) bool { return r < 0x80 && isSpace(byte(r)) }) >= 0 {
		text = `"` + text + `"`
	}
	// What Slurm has no way to write is found by reading it back.
	raw := "k=" + text
	var p lineParser
	if strings.ContainsAny(value, "\n\x00") || p.scan(raw) != len(raw) {
		return "", fmt.Errorf("the value %s has a newline or NUL, which Slurm cannot read", quoteShort(value))
	}
	if one, next, ok := p.pair(0); !ok || next != len(p.text) || one.value != value {
		return "", fmt.Errorf("the value %s cannot be written for Slurm: it has no way to have a quote beside blanks, or at both ends", quoteShort(value))
	}
	return text, nil
}
