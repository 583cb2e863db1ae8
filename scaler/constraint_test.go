package scaler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nodes by their features, so that a case can say which of them are admitted.
var featureNodes = map[string][]string{
	"-":   nil,
	"a":   {"a"},
	"b":   {"b"},
	"c":   {"c"},
	"ab":  {"a", "b"},
	"ac":  {"a", "c"},
	"bc":  {"b", "c"},
	"abc": {"a", "b", "c"},
}

func admitted(ok func([]string) bool) string {
	var names []string
	for _, name := range []string{"-", "a", "b", "c", "ab", "ac", "bc", "abc"} {
		if ok(featureNodes[name]) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestConstraint(t *testing.T) {
	const all = "- a b c ab ac bc abc"
	for text, want := range map[string][]string{ // one entry for each alternative
		"":          {all},
		"a":         {"a ab ac abc"},
		"a&b":       {"ab abc"},
		"a,b":       {"ab abc"},
		"a|b":       {"a b ab ac bc abc"},
		"a|b&c":     {"ac bc abc"}, // from left to right
		"c&a|b":     {"b ab ac bc abc"},
		"c&(a|b)":   {"ac bc abc"},
		"(a&b)|c":   {"c ab ac bc abc"},
		"(a)":       {"a ab ac abc"},
		"a&":        {"a ab ac abc"},
		"[a]":       {"a ab ac abc"},
		"[a|b]":     {"a ab ac abc", "b ab bc abc"},
		"[a&b]":     {"a ab ac abc", "b ab bc abc"}, // without counts no different
		"c&[a|b]":   {"ac abc", "bc abc"},
		"[a|b]&c":   {"ac abc", "bc abc"},
		"[a|b]|c":   {"a ab ac abc", "b ab bc abc"}, // Slurm's or with everything
		"[(a&b)|c]": {"ab abc", "c ac bc abc"},
		"a|c&[b|c]": {"ab bc abc", "c ac bc abc"},
		"a*2":       {all}, // further nodes may be any
		"[a*2&b*4]": {"a b ab ac bc abc"},
		"nowhere":   {""},
	} {
		c, err := ParseConstraint(text)
		require.NoError(t, err)
		var got []string
		for _, a := range c.Alternatives() {
			got = append(got, admitted(a.Admits))
		}
		assert.Equal(t, want, got, text)
	}
}

func TestConstraintGroups(t *testing.T) {
	for text, want := range map[string][]struct {
		count int
		nodes string
	}{
		"a":             nil,
		"a*2":           {{2, "a ab ac abc"}},
		"[a*2]":         {{2, "a ab ac abc"}},
		"[a]*2":         {{2, "a ab ac abc"}},
		"[a*2&b*4]":     {{2, "a ab ac abc"}, {4, "b ab bc abc"}},
		"[(a&b)*1&c*3]": {{1, "ab abc"}, {3, "c ac bc abc"}},
		"c&[a*2&b]":     {{2, "a ab ac abc"}},
	} {
		c, err := ParseConstraint(text)
		require.NoError(t, err)
		require.Len(t, c.Alternatives(), 1, text)
		groups := c.Alternatives()[0].Groups
		require.Len(t, groups, len(want), text)
		for i, w := range want {
			assert.Equal(t, w.count, groups[i].Count, text)
			assert.Equal(t, w.nodes, admitted(groups[i].Admits), text)
		}
	}
}

func TestBadConstraint(t *testing.T) {
	for text, want := range map[string]string{
		"&a":      "no feature before",
		"a&&b":    "no feature before",
		"(a&)":    "closes nothing",
		"(&a)":    "no feature before",
		"a*":      "number of nodes",
		"a*0":     "number of nodes",
		"a*-1":    "number of nodes",
		"*2":      "number of nodes",
		"(a*2)":   "number of nodes",
		"a*2*2":   "number of nodes",
		"a*2&b":   "single feature only",
		"a*2b":    "operator is missing",
		"(a)b":    "operator is missing",
		"[a]b":    "operator is missing",
		"[a":      "not closed",
		"(a":      "not closed",
		"a]":      "closes nothing",
		"a)":      "closes nothing",
		"[]":      "closes nothing",
		"()":      "closes nothing",
		"[a|]":    "closes nothing",
		"[[a]]":   "only one pair",
		"[a]&[b]": "only one pair",
		"a[b]":    "only one pair",
		"((a))":   "inside of others",
		"a(b)":    "inside of others",
	} {
		_, err := ParseConstraint(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzConstraint(f *testing.F) {
	for _, s := range []string{"a", "a|b&c", "[a|b]&c", "[(a&b)*2&c*3]", "a*4", "(a,b)|c", "a&", "[a]*2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConstraint(text)
		if err != nil {
			if len(c.terms) > 0 {
				t.Errorf("%q: terms beside %v", text, err)
			}
			return
		}
		if len(c.Alternatives()) == 0 {
			t.Errorf("%q has no alternative", text)
		}
		// A node with every feature of the text is admitted everywhere, as there is no "not".
		var every []string
		for _, term := range c.terms {
			every = append(every, term.names...)
		}
		for _, a := range c.Alternatives() {
			if !a.Admits(every) {
				t.Errorf("%q does not admit a node with %q", text, every)
			}
			for _, g := range a.Groups {
				if g.Count <= 0 || !g.Admits(every) {
					t.Errorf("%q: group %+v", text, g)
				}
			}
		}
		// Spelled again it means the same.
		again, err := ParseConstraint(strings.ReplaceAll(text, ",", "&"))
		if err != nil || len(again.terms) != len(c.terms) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
