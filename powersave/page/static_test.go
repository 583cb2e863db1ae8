package page

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := static.ReadFile("static/" + name)
	require.NoError(t, err)
	return string(b)
}

// The page's parts name only each other, and nothing that the policy forbids.
func TestStaticParts(t *testing.T) {
	for name, forbidden := range map[string]string{
		"page.html": `(?i)https?:|//[a-z]|\sstyle=|\son[a-z]+=|<style|<script[^>]*>[^<]`,
		"page.css":  `(?i)https?:|url\(|@import`,
		"page.js":   `(?i)https?:|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|import[ (]|XMLHttpRequest|method:`,
	} {
		found := regexp.MustCompile(forbidden).FindAllString(text(t, name), -1)
		assert.Empty(t, found, name)
	}
}

// What the script looks for, and what labels point to, is there.
func TestStaticIDs(t *testing.T) {
	page := text(t, "page.html")
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(`\sid="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		ids[m[1]]++
	}
	for id, n := range ids {
		assert.Equal(t, 1, n, id)
	}
	wanted := regexp.MustCompile(`(?:aria-labelledby|aria-describedby|for|href)="#?([a-z-]+)"`).FindAllStringSubmatch(page, -1)
	wanted = append(wanted, regexp.MustCompile(`(?:byId|paint)\("([^"]+)"`).FindAllStringSubmatch(text(t, "page.js"), -1)...)
	require.Greater(t, len(wanted), 30)
	for _, m := range wanted {
		assert.Contains(t, ids, m[1])
	}
}

// luminance and contrast are those of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	require.NoError(t, err)
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestContrast(t *testing.T) {
	assert.InDelta(t, 21, contrast(t, "#000000", "#ffffff"), 0.01)
	light, rest, found := strings.Cut(text(t, "page.css"), "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	dark, _, _ := strings.Cut(rest, "* {")
	colours := func(css string) map[string]string {
		all := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z0-9]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	inLight, inDark := colours(light), colours(dark)
	require.Len(t, inDark, len(inLight), "each colour has its counterpart")
	for scheme, c := range map[string]map[string]string{"light": inLight, "dark": inDark} {
		for name := range inLight {
			least := 3.0 // parts of bars, lines, the focus
			switch name {
			case "ground", "raised":
				continue
			case "text", "muted", "link", "bad", "good":
				least = 4.5
			}
			assert.GreaterOrEqual(t, contrast(t, c[name], c["ground"]), least, "%s on the ground, %s", name, scheme)
		}
		assert.GreaterOrEqual(t, contrast(t, c["text"], c["raised"]), 4.5, "text in fields, %s", scheme)
	}
}
