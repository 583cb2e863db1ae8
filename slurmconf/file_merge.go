package slurmconf

import (
	"fmt"
	"slices"
	"strings"
)

// Repeatable tells of a key that may stand several times, each line with its own meaning: NodeName, PartitionName, SlurmctldHost, Prolog, ...
// Of the others the last line counts.
func Repeatable(key string) bool { return repeatable(key) }

// Merge puts another file's lines behind those of f, as they are, comments and Includes too. A key of it that may not stand several times takes
// the place of f's lines, save those named in lists: their words are added to f's line (see AddWords), and the line is left out.
func (f *File) Merge(more *File, lists ...string) error {
	rest := &File{name: more.name, lines: append([]line(nil), more.lines...)}
	for _, key := range lists {
		for i := range more.lines {
			if !more.lines[i].is(key) {
				continue
			}
			if err := f.AddWords(key, more.setting(&more.lines[i]).Words()...); err != nil {
				return err
			}
		}
		rest.Remove(key)
	}
	for i := range rest.lines {
		if l := &rest.lines[i]; len(l.pairs) > 0 && !repeatable(l.pairs[0].key) {
			f.Remove(l.pairs[0].key)
		}
	}
	if err := f.endLine(); err != nil {
		return err
	}
	f.lines = append(f.lines, rest.lines...)
	f.renumber()
	return f.endLine()
}

// Insert puts a line before the first one of a key, or at the end if there is none.
func (f *File) Insert(before, text string) error {
	at := slices.IndexFunc(f.lines, func(l line) bool { return l.is(before) })
	if at < 0 {
		return f.Add(text)
	}
	added, err := ParseFile(f.name, []byte(strings.TrimSuffix(text, "\n")+"\n"))
	if err != nil {
		return fmt.Errorf("adding to %s: %w", f.name, err)
	}
	f.lines = slices.Insert(f.lines, at, added.lines...)
	f.renumber()
	return nil
}

// Includes are the Includes of this file: Key is Include, Value the name.
func (f *File) Includes() []Setting {
	var all []Setting
	for i := range f.lines {
		if l := &f.lines[i]; l.include != "" {
			all = append(all, Setting{Key: "Include", Value: l.include, Position: f.at(l, 0), ValuePosition: f.at(l, l.nameAt)})
		}
	}
	return all
}
