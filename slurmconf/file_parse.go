package slurmconf

import (
	"bytes"
	"fmt"
	"strings"
)

// ParseFile reads the text of slurm.conf, or of another file that Slurm reads with the same parser: gres.conf, cgroup.conf,
// slurmdbd.conf, topology.conf. It looks at the form alone; Config.Check knows the keys.
//
// The form, as src/common/parse_config.c has it:
//
//   - A line is key=value, further pairs follow after blanks. Blanks around the "=" do not matter, nor does the case of keys.
//   - A value with blanks is quoted; there is no way to have a quote in it. A quote counts only as the first character, and if
//     a blank or the end follows the closing one.
//   - "#" begins a comment, in quotes too. "\#" is a "#", "\\" a backslash, and a backslash before anything else is left out.
//   - A line that ends in a backslash goes on in the next one. A comment does not: its backslash is part of it.
//   - "Include file" stands at the very beginning of a line, without quotes.
//
// The error is Problems, with all that Slurm would refuse. The File is there all the same, save when it is too large.
func ParseFile(name string, text []byte) (*File, error) {
	if len(text) > MaxFileSize {
		return nil, Problems{{Position: Position{File: name}, Text: fmt.Sprintf("the file has %d bytes, more than %d", len(text), MaxFileSize),
			Remedy: "split it with Include, or write nodes as hostlists (node[1-5000])"}}
	}
	f := &File{name: name}
	var problems Problems
	p := lineParser{file: f}
	number := 1
	for rest := string(text); rest != ""; {
		n := p.scan(rest)
		l := p.parse(rest[:n], number)
		if l.problem != nil {
			problems = append(problems, *l.problem)
		}
		f.lines = append(f.lines, l)
		number += strings.Count(rest[:n], "\n")
		rest = rest[n:]
	}
	return f, problems.Err()
}

// lineParser holds what one line is put together from.
type lineParser struct {
	file *File
	// text is the line without comments, continuations and escapes; byte i of it stands in raw from from[i] to to[i].
	text     []byte
	from, to []int
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isKeyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.'
}

// scan finds the end of the first logical line of rest and its text. Source: _get_next_line.
func (p *lineParser) scan(rest string) int {
	p.text, p.from, p.to = p.text[:0], p.from[:0], p.to[:0]
	start := 0
	for start < len(rest) {
		end := len(rest)
		if i := strings.IndexByte(rest[start:], '\n'); i >= 0 {
			end = start + i + 1
		}
		stop, continued := physical(rest[start:end])
		p.unescape(rest, start, start+stop)
		start = end
		if !continued {
			break
		}
	}
	return start
}

// physical finds how much of a line is text, and whether it goes on in the next line.
// Source: _strip_comments, _strip_continuation.
func physical(s string) (stop int, continued bool) {
	stop = len(s)
	escaped := false
	for i := range len(s) {
		if s[i] == '#' && !escaped {
			stop = i
			break
		}
		escaped = s[i] == '\\' && !escaped
	}
	last := stop
	for last > 0 && isSpace(s[last-1]) {
		last--
	}
	first := last
	for first > 0 && s[first-1] == '\\' {
		first--
	}
	if (last-first)%2 == 1 {
		return last - 1, true
	}
	return stop, false
}

// unescape appends rest[start:stop] to the text. Source: _strip_escapes. A pair of backslash and what it escapes never spans
// two lines, for the backslashes at the end of a continued line are an odd number.
func (p *lineParser) unescape(rest string, start, stop int) {
	for i := start; i < stop; i++ {
		at := i
		if rest[i] == '\\' && i+1 < stop {
			i++
		}
		p.text, p.from, p.to = append(p.text, rest[i]), append(p.from, at), append(p.to, i+1)
	}
}

// parse reads the line that scan has found. Source: s_p_parse_file.
func (p *lineParser) parse(raw string, number int) line {
	l := line{raw: raw, first: number}
	switch {
	case len(raw) > MaxLineLength:
		l.fail(p.file, 0, fmt.Sprintf("the line has %d bytes, more than %d", len(raw), MaxLineLength), "give each NodeName and PartitionName its own line")
		return l
	case strings.IndexByte(raw, 0) >= 0:
		l.fail(p.file, strings.IndexByte(raw, 0), "a NUL byte: Slurm would pass over the rest of the line", "remove it")
		return l
	case p.include(&l):
		return l
	}
	at := 0
	for {
		one, next, ok := p.pair(at)
		if !ok {
			break
		}
		l.pairs = append(l.pairs, one)
		at = next
	}
	for at < len(p.text) && isSpace(p.text[at]) {
		at++
	}
	if at < len(p.text) {
		text, remedy := p.whyNot(&l, at)
		l.fail(p.file, p.from[at], text, remedy)
		l.pairs = nil
	}
	return l
}

func (l *line) fail(f *File, offset int, text, remedy string) {
	l.problem = &Problem{Position: f.at(l, offset), Text: text, Remedy: remedy}
}

// pair reads a pair at a place of the text. Source: keyvalue_pattern.
func (p *lineParser) pair(at int) (one pair, next int, ok bool) {
	s := p.text
	skip := func() {
		for at < len(s) && isSpace(s[at]) {
			at++
		}
	}
	skip()
	key := at
	for at < len(s) && isKeyByte(s[at]) {
		at++
	}
	keyEnd := at
	skip()
	if at < len(s) && strings.IndexByte("-*+/", s[at]) >= 0 {
		one.op = string(s[at : at+1])
		at++
	}
	if keyEnd == key || at == len(s) || s[at] != '=' {
		return pair{}, 0, false
	}
	at++
	skip()
	if at == len(s) {
		return pair{}, 0, false
	}
	one.key, one.keyAt, one.valueAt = string(s[key:keyEnd]), p.from[key], p.from[at]
	if s[at] == '"' {
		if n := bytes.IndexByte(s[at+1:], '"'); n >= 0 {
			if end := at + n + 2; end == len(s) || isSpace(s[end]) {
				one.value, one.end = string(s[at+1:end-1]), p.to[end-1]
				return one, end, true
			}
		}
	}
	value := at
	for at < len(s) && !isSpace(s[at]) {
		at++
	}
	one.value, one.end = string(s[value:at]), p.to[at-1]
	return one, at, true
}

// include reads an Include and tells whether the line is one. Source: _parse_include_directive.
func (p *lineParser) include(l *line) bool {
	const word = "include"
	s := string(p.text)
	if len(s) <= len(word) || !strings.EqualFold(s[:len(word)], word) || !isSpace(s[len(word)]) {
		return false
	}
	at := len(word)
	for at < len(s) && isSpace(s[at]) {
		at++
	}
	start := at
	for at < len(s) && !isSpace(s[at]) {
		at++
	}
	name := s[start:at]
	switch {
	case name == "":
		l.fail(p.file, 0, "Include without a file", "write Include <file>")
	case at == len(s):
		// Slurm looks for a blank after the name, beyond the end of the text if it must.
		l.fail(p.file, p.from[start], fmt.Sprintf("Include %s ends without a blank or newline, and Slurm would read on behind it", quoteShort(name)),
			"end the line with a newline, and put a blank before a comment")
	case strings.TrimFunc(s[at:], func(r rune) bool { return r < 0x80 && isSpace(byte(r)) }) != "":
		l.fail(p.file, p.from[at], fmt.Sprintf("more than one word after Include: %s", quoteShort(strings.TrimSpace(s[at:]))), "give each file a line of its own; names cannot have blanks")
	case strings.Contains(name, "*"):
		l.fail(p.file, p.from[start], fmt.Sprintf("Include %s: Slurm expands no patterns", quoteShort(name)), "give each file a line of its own")
	default:
		l.include, l.nameAt = name, p.from[start]
	}
	return true
}

// whyNot explains why no pair stands at a place of the text.
func (p *lineParser) whyNot(l *line, at int) (text, remedy string) {
	rest := strings.TrimSpace(string(p.text[at:]))
	if n := len(l.pairs); n > 0 && strings.HasPrefix(l.pairs[n-1].value, `"`) {
		return fmt.Sprintf("the value of %s begins with a quote that is not closed before a blank or the end of the line", l.pairs[n-1].key),
			`write it as ` + l.pairs[n-1].key + `="..." without quotes inside`
	}
	word, _, _ := strings.Cut(rest, " ")
	key, value, ok := strings.Cut(rest, "=")
	switch {
	case ok && strings.TrimSpace(value) == "":
		key = strings.TrimRight(key, " \t-+*/")
		return fmt.Sprintf("%s has no value", quoteShort(key)), fmt.Sprintf(`write %.40s="" or remove it`, key)
	case len(l.pairs) == 0 && strings.EqualFold(word, "include"):
		return "an Include that does not begin the line", "remove what stands before it"
	case len(l.pairs) > 0:
		return fmt.Sprintf("%s is no key=value", quoteShort(word)), "put quotes around a value with blanks, and # before a comment"
	}
	return fmt.Sprintf("%s is no key=value", quoteShort(rest)), "write key=value, or # before a comment"
}

// quoteShort quotes the beginning of a text.
func quoteShort(s string) string {
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return fmt.Sprintf("%q", s)
}
