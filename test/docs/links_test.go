package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/docs/block"
)

// prose is a page without what its fences enclose, line for line: those lines are empty.
func prose(page string) string {
	var kept []string
	fence := ""
	for line := range strings.SplitSeq(page, "\n") {
		trimmed := strings.TrimSpace(line)
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence == "" && len(ticks) >= 3:
			fence, line = ticks, ""
		case fence != "":
			if trimmed == fence {
				fence = ""
			}
			line = ""
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

var (
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)(?: +#+)?$`)
	code    = regexp.MustCompile("``[^\n]*?``|`[^`\n]+`")
	link    = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)`)
	tagLink = regexp.MustCompile(`<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)="([^"]+)"`)
)

// anchors are what `#…` of a page may name, by GitHub's rule: of a heading's text letters, digits, `_` and `-` in lower case, `-` for a space; a
// second one of the same text ends in -1.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(page), -1) {
		text := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '-':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, link.ReplaceAllString(m[1], "$1"))
		name := text
		for i := 1; all[name]; i++ {
			name = fmt.Sprintf("%s-%d", text, i)
		}
		all[name] = true
	}
	return all
}

// links are the targets of a page's links.
func links(page string) (all []string) {
	text := code.ReplaceAllStringFunc(prose(page), func(s string) string { return strings.Repeat("x", len(s)) })
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		all = append(all, m[2])
		all = append(all, links(m[1])...) // a picture that is a link
	}
	for _, m := range tagLink.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// broken are the links of pages that lead nowhere within files, and the files that their links lead to. Other sites are not asked.
func broken(page string, files fs.FS) (leads, problems []string) {
	text, err := fs.ReadFile(files, page)
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, target := range links(string(text)) {
		u, err := url.Parse(target)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", page, err))
			continue
		}
		if u.Scheme != "" {
			continue
		}
		to := page
		if u.Path != "" {
			to = path.Join(path.Dir(page), u.Path)
		}
		there, err := fs.ReadFile(files, to)
		if _, dir := fs.ReadDir(files, to); err != nil && dir != nil {
			problems = append(problems, fmt.Sprintf("%s: %s: there is no %s", page, target, to))
			continue
		}
		leads = append(leads, to)
		if u.Fragment != "" && !anchors(string(there))[u.Fragment] {
			problems = append(problems, fmt.Sprintf("%s: %s: %s has no such heading", page, target, to))
		}
	}
	return leads, problems
}

// guide are the pages that people read: all of docs/, and those of the repository that lie beside what they speak of.
func guide(t *testing.T) []string {
	t.Helper()
	pages, err := block.Pages(root)
	require.NoError(t, err)
	return append(pages, "CHANGELOG.md")
}

func TestLinks(t *testing.T) {
	leads := map[string][]string{}
	for _, page := range guide(t) {
		var problems []string
		leads[page], problems = broken(page, os.DirFS(root))
		assert.Empty(t, problems)
	}
	reached := map[string]bool{}
	var follow func(string)
	follow = func(page string) {
		if !reached[page] {
			reached[page] = true
			for _, to := range leads[page] {
				follow(to)
			}
		}
	}
	follow("README.md")
	for _, page := range slices.Sorted(maps.Keys(leads)) {
		assert.True(t, reached[page], "no way leads from README.md to %s", page)
	}
	assert.Greater(t, len(reached), 50)
}

func TestBroken(t *testing.T) {
	const other = "# The `page`: one, *two* & three\n\n```\n# no heading\n```\n## Again\n### Again\n## [A link](x.md) ü_v\n"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"good":               {"[a](other.md), [b](other.md#again-1), [c](other.md#the-page-one-two--three), [d](other.md#a-link-ü_v), [up](../docs), [web](https://example.com/x)", nil},
		"itself":             {"# Top\n[up](#top)", nil},
		"no file":            {"[a](another.md)", []string{"docs/page.md: another.md: there is no docs/another.md"}},
		"no heading":         {"[a](other.md#no)", []string{"docs/page.md: other.md#no: docs/other.md has no such heading"}},
		"a comment":          {"[a](other.md#no-heading)", []string{"docs/page.md: other.md#no-heading: docs/other.md has no such heading"}},
		"not a second one":   {"[a](other.md#again-2)", []string{"docs/page.md: other.md#again-2: docs/other.md has no such heading"}},
		"none of its own":    {"[a](#top)", []string{"docs/page.md: #top: docs/page.md has no such heading"}},
		"a picture":          {"![a](a.svg) <img src=\"b.svg\">", []string{"docs/page.md: a.svg: there is no docs/a.svg", "docs/page.md: b.svg: there is no docs/b.svg"}},
		"a picture's link":   {"[![a](a.svg)](other.md)", []string{"docs/page.md: a.svg: there is no docs/a.svg"}},
		"brackets in a text": {"[`a[0-1]` and [b]](another.md)", []string{"docs/page.md: another.md: there is no docs/another.md"}},
		"code":               {"`[a](b.md)`\n```\n[c](d.md)\n```\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{"docs/page.md": {Data: []byte(test.text)}, "docs/other.md": {Data: []byte(other)}}
			_, got := broken("docs/page.md", files)
			assert.Equal(t, test.want, got)
		})
	}
}
