package slurmconf

import (
	"fmt"
	"strings"
)

// Limits of what is read. Slurm has none for files and lines, and follows Includes until its stack ends.
const (
	MaxFileSize     = 16 << 20 // bytes of one file
	MaxLineLength   = 1 << 20  // bytes of one line, continued lines and comments counted
	MaxIncludeDepth = 16       // files that include each other
	MaxFiles        = 1000     // Includes in all
)

// Position is a place in a file. Lines and columns (bytes) count from 1; line 0 is the whole file, and the zero Position no
// place at all: the value is a default of Slurm.
type Position struct {
	File         string
	Line, Column int
}

// String is file:line:column, as compilers write it.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is something wrong in a configuration file.
type Problem struct {
	Position Position
	Text     string // what is wrong
	Remedy   string // what to do; may be empty
	Warning  bool   // Slurm goes on with it
}

func (p Problem) Error() string {
	text := p.Text
	if p.Remedy != "" {
		text += "; " + p.Remedy
	}
	if p.Position == (Position{}) {
		return text
	}
	return p.Position.String() + ": " + text
}

// Problems are all problems found, in the order of the text.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a Problem.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, problem := range p {
		all[i] = problem
	}
	return all
}

// Err is nil if there are only warnings, and otherwise the rest as one error.
func (p Problems) Err() error {
	var errs Problems
	for _, problem := range p {
		if !problem.Warning {
			errs = append(errs, problem)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Setting is one key=value.
type Setting struct {
	Key   string // as written; Slurm does not mind the case
	Value string // without quotes, escapes and continuations
	// Operator is what stands before the "=": "", "+", "-", "*" or "/". Slurm 24.11 to 26.05 read it and make nothing of it.
	Operator      string
	Position      Position // of the key
	ValuePosition Position
	// Fields are the other pairs of its line: those of a NodeName, for example.
	Fields []Setting
}

// Field is the field of that name, in any case. The last one counts if there are several, as in Slurm.
func (s Setting) Field(key string) (Setting, bool) {
	for i := len(s.Fields) - 1; i >= 0; i-- {
		if strings.EqualFold(s.Fields[i].Key, key) {
			return s.Fields[i], true
		}
	}
	return Setting{}, false
}

// File is the text of one configuration file. What is not edited stays as it was, byte for byte.
type File struct {
	name  string
	lines []line
}

// line is one logical line: continued lines are one.
type line struct {
	raw     string // with its newlines
	first   int    // its number in the file
	include string // of an Include
	nameAt  int    // where that stands in raw
	pairs   []pair
	problem *Problem
}

// pair is a key=value, with offsets into the line's raw text.
type pair struct {
	key, value          string
	op                  string
	keyAt, valueAt, end int
}

// Name is the name given to ParseFile.
func (f *File) Name() string { return f.name }

// String is the text: that which was parsed, with the edits since.
func (f *File) String() string {
	var b strings.Builder
	for _, l := range f.lines {
		b.WriteString(l.raw)
	}
	return b.String()
}

// Settings are the settings of this file in the order of the text; Includes are not followed (see ReadConfig).
func (f *File) Settings() []Setting {
	var all []Setting
	for i := range f.lines {
		if len(f.lines[i].pairs) > 0 {
			all = append(all, f.setting(&f.lines[i]))
		}
	}
	return all
}

func (f *File) setting(l *line) Setting {
	s := f.one(l, l.pairs[0])
	for _, p := range l.pairs[1:] {
		s.Fields = append(s.Fields, f.one(l, p))
	}
	return s
}

func (f *File) one(l *line, p pair) Setting {
	return Setting{Key: p.key, Value: p.value, Operator: p.op, Position: f.at(l, p.keyAt), ValuePosition: f.at(l, p.valueAt)}
}

// at is the place of an offset in a line.
func (f *File) at(l *line, offset int) Position {
	before := l.raw[:offset]
	return Position{f.name, l.first + strings.Count(before, "\n"), offset - strings.LastIndexByte(before, '\n')}
}

// Get is the last setting of a key: for all keys but those that may stand several times, that is the one that counts.
func (f *File) Get(key string) (Setting, bool) {
	for i := len(f.lines) - 1; i >= 0; i-- {
		if f.lines[i].is(key) {
			return f.setting(&f.lines[i]), true
		}
	}
	return Setting{}, false
}

// is tells whether the line begins with that key.
func (l *line) is(key string) bool {
	return len(l.pairs) > 0 && strings.EqualFold(l.pairs[0].key, key)
}
