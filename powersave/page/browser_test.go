//go:build browser

package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// shown is a page that a browser can open.
func shown(t *testing.T, f *fake, every ...time.Duration) (p *Page, url string) {
	t.Helper()
	if f.answer == nil {
		f.answer = func(_ context.Context, s history.Subject) (history.Answer, error) {
			a := jobFive()
			if s != a.Subject {
				return history.Answer{Subject: s}, nil
			}
			return a, nil
		}
	}
	p = newPage(f)
	p.every = append(every, 50*time.Millisecond)[0]
	p.Demand, p.scalerEvery = f.scaler.demand, p.every
	server := httptest.NewServer(p.Handler())
	t.Cleanup(server.Close) // after Run, which lets all go
	run(t, p)
	return p, server.URL
}

// fit is an expression: how much wider than the window the page is.
const fit = `document.documentElement.scrollWidth - innerWidth`

// faint is an expression: texts whose contrast, by WCAG 2, is too low.
const faint = `(() => {
  const parse = (c) => (c.match(/[\d.]+/g) || []).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const out = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.getClientRects().length || e.closest("noscript")) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) out.push(e.tagName + ": " + e.textContent.slice(0, 50));
  }
  return out;
})()`

func TestBrowser(t *testing.T) {
	b := newBrowser(t)
	f := newFake()
	_, url := shown(t, f)
	b.shape(1280, 900, "light")
	b.open(url)
	b.until(`document.querySelector("#nodes-text table")`)

	t.Run("shows", func(t *testing.T) {
		assert.Equal(t, "tide: Slurmtide", b.text(`document.title`))
		assert.Equal(t, "The bridge works; 2 NodeSets or offerings are not tried at present, 2 NodeSets have problems, 2 nodes have failed", b.text(`byId("status").textContent`))
		assert.Contains(t, b.text(`byId("nodes-text").innerText`), "110 nodes in 2 NodeSets")
		assert.Contains(t, b.text(`byId("jobs-text").innerText`), "5 Insufficient cpu")
		assert.Contains(t, b.text(`byId("verdicts-text").innerText`), "capacity: 0/5 nodes are available")
		b.until(`byId("demand-text").innerText.includes("12 need nodes that are off")`)
		assert.Regexp(t, `cpu\s+19\s+7\s+7\s+1\s+12`, b.text(`document.querySelector("#demand-text table").innerText`))
		assert.Contains(t, b.text(`byId("demand-text").innerText`), "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8")
		var bars int
		b.eval(`[...document.querySelectorAll("#over-text .bar span")].filter(s => s.getBoundingClientRect().width > 1).length`, &bars)
		assert.Greater(t, bars, 10, "bars have parts that show")
	})

	t.Run("live", func(*testing.T) {
		f.set(func() { f.st.Engine.SlurmError = "connection refused" })
		b.until(`byId("status").textContent.includes("nothing is taken down: connection refused")`)
		f.set(func() { f.st.Engine.SlurmError = "" })
		b.until(`byId("status").textContent.startsWith("The bridge works")`)
		f.scaler.set(func() { f.scaler.err = errors.New("connection refused") })
		b.until(`byId("demand-text").innerText === "The scaler has no figures: connection refused"`)
		f.scaler.set(func() { f.scaler.err = nil })
		b.until(`document.querySelector("#demand-text table")`)
	})

	t.Run("keyboard", func(t *testing.T) {
		b.press("/")
		b.press("k")
		assert.NotEqual(t, "words", b.text(`document.activeElement.id`), "no character alone does anything (WCAG 2.1.4)")
		b.hold("k")
		assert.Equal(t, "words", b.text(`document.activeElement.id`))
		b.write("5")
		b.press("Enter")
		b.until(`document.activeElement.id === "story-title" && byId("story-text").innerText.includes("given back")`)
		assert.Equal(t, "Story of job 5", b.text(`document.activeElement.textContent`))
		assert.Equal(t, "#job/5", b.text(`location.hash`))
		b.keep("story")
		b.press("Escape")
		b.until(`byId("story").hidden && document.activeElement.id === "words"`)
		// A link in a table that is painted anew while it has the focus keeps it.
		b.act(`document.querySelector('[data-key="jobs/job/9"]').focus()`)
		f.set(func() { f.st.Engine.Boots = f.st.Engine.Boots[:2:2] })
		b.until(`!byId("jobs-text").innerText.includes("1 accepted")`)
		assert.Equal(t, "jobs/job/9", b.text(`document.activeElement.dataset.key`))
		// Everything that can be pressed can be reached.
		reached := map[string]bool{}
		b.act(`document.activeElement.blur()`)
		for range 80 {
			b.press("Tab")
			at := b.text(`document.activeElement.id || document.activeElement.dataset.key || document.activeElement.textContent`)
			reached[at] = true
			assert.NotEqual(t, "none", b.text(`document.activeElement === document.body ? "body" : getComputedStyle(document.activeElement).outlineStyle`), "the focus shows: %s", at)
		}
		for _, want := range []string{"Skip to the content", "words", "Find", "Verdicts", "nodes/nodeset/gpu", "jobs/job/9", "legend"} {
			assert.True(t, reached[want], "%s: %v", want, reached)
		}
	})

	t.Run("nothing known", func(*testing.T) {
		b.open(url + "#node/elsewhere")
		b.until(`byId("story-text").innerText.includes("nothing is known of node elsewhere")`)
		b.complaints() // that the answer was 404
		b.act(`location.hash = ""`)
		b.until(`byId("story").hidden`)
	})

	t.Run("times grow old", func(t *testing.T) {
		assert.Regexp(t, `^\d\d:\d\d:\d\d$`, b.text(`document.querySelector("#over-text time").textContent`))
		assert.Regexp(t, `^\d\d/\d\d/2026, \d\d:\d\d:\d\d$`, b.text(`(() => { ahead += 86400000; tick(); return document.querySelector("#over-text time").textContent; })()`))
	})

	t.Run("hidden", func(*testing.T) {
		hide := func(hidden string) {
			b.act(`Object.defineProperty(document, "hidden", { value: ` + hidden + `, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`)
		}
		b.act(`location.hash = "job/5"`)
		b.until(`byId("story-text").innerText.includes("given back") && byId("story-time").textContent.startsWith("As of 12:00:00")`)
		hide("true")
		b.until(`source === null`)
		asked := b.asked("/story")
		hide("false")
		b.until(`source && source.readyState === 1`)
		for b.asked("/story") == asked {
			b.until(`true`)
		}
		b.act(`location.hash = ""`)
		b.until(`byId("story").hidden`)
	})

	t.Run("text is not HTML", func(t *testing.T) {
		f.set(func() {
			f.st.Engine.Notes = append(f.st.Engine.Notes, powersave.Note{Time: noon, Node: `<b onclick="x">`, Text: `<img src=x onerror="document.title='owned'">`})
		})
		b.until(`byId("notes-text").innerText.includes("<img src=x")`)
		assert.Equal(t, "tide: Slurmtide", b.text(`document.title`))
	})

	for name, size := range map[string][2]int{"desk": {1280, 900}, "phone": {320, 740}} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				b.shape(size[0], size[1], scheme)
				assert.Equal(t, map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme], b.text(`getComputedStyle(document.body).backgroundColor`))
				legible := func(picture string) {
					var over int
					b.eval(fit, &over)
					assert.LessOrEqual(t, over, 0, "%s is not wider than the window", picture)
					var pale []string
					b.eval(faint, &pale)
					assert.Empty(t, pale, "texts of %s with a contrast of less than 4.5 to what they stand on", picture)
					b.keep(picture)
				}
				legible(name + "-" + scheme)
				b.act(`location.hash = "#job/5"`)
				b.until(`document.activeElement.id === "story-title" && byId("story-text").innerText.includes("given back")`)
				legible(name + "-" + scheme + "-story")
				b.press("Escape")
				b.until(`byId("story").hidden`)
			})
		}
	}

	t.Run("accessible", func(t *testing.T) {
		b.shape(1280, 900, "light")
		var tree struct {
			Nodes []struct {
				Ignored    bool `json:"ignored"`
				Role, Name struct {
					Value any `json:"value"`
				}
			} `json:"nodes"`
		}
		b.do("Accessibility.getFullAXTree", nil, &tree)
		roles := map[string]int{}
		for _, n := range tree.Nodes {
			role, _ := n.Role.Value.(string)
			name, _ := n.Name.Value.(string)
			if n.Ignored {
				continue
			}
			roles[role]++
			switch role {
			case "link", "button", "searchbox", "table", "region", "heading", "columnheader", "navigation":
				assert.NotEmpty(t, name, role)
			}
		}
		for _, role := range []string{"banner", "navigation", "main", "contentinfo", "search", "searchbox", "status", "table", "columnheader", "rowheader", "heading"} {
			assert.Positive(t, roles[role], role)
		}
		assert.Equal(t, 1, roles["main"])
		var levels []int
		b.eval(`[...document.querySelectorAll("h1,h2,h3,h4")].filter(h => h.offsetParent).map(h => +h.tagName[1])`, &levels)
		require.NotEmpty(t, levels)
		for i, level := range levels {
			assert.LessOrEqual(t, level, append([]int{0}, levels...)[i]+1, "no level is left out: %v", levels)
		}
		var polite int
		b.eval(`document.querySelectorAll('#status[aria-live="polite"]').length`, &polite)
		assert.Equal(t, 1, polite)
	})

	assert.Empty(t, b.complaints(), "the console")
	assert.Empty(t, b.strange(url), "nothing comes from elsewhere")
}

// The bridge goes and comes back: the page says so, keeps what it had, and goes on by itself.
func TestBrowserReconnects(t *testing.T) {
	b := newBrowser(t)
	f := newFake()
	p, url := shown(t, f)
	b.open(url)
	b.until(`document.querySelector("#nodes-text table")`)
	f.set(func() { f.err = context.DeadlineExceeded })
	b.until(`byId("status").textContent.startsWith("This is how it was at 12:00:00: the bridge did not answer")`)
	assert.Contains(t, b.text(`byId("clock").textContent`), "As of 12:00:00")
	assert.Contains(t, b.text(`byId("nodes-text").innerText`), "110 nodes")
	f.set(func() { f.err = nil })
	b.until(`byId("status").textContent.startsWith("The bridge works")`)
	p.live.end() // streams end, and new ones are refused
	b.until(`byId("status").textContent.startsWith("The bridge does not answer, or as many look as it serves; this is how it was at 12:00:00")`)
	assert.Contains(t, b.text(`byId("nodes-text").innerText`), "110 nodes")
	p.live.mu.Lock()
	p.live.ended, p.live.now.next = false, make(chan struct{})
	p.live.mu.Unlock()
	b.until(`byId("status").textContent.startsWith("The bridge works")`)
}

// A connection that has ended without a word is found out, and made anew.
func TestBrowserHearsNothing(t *testing.T) {
	b := newBrowser(t)
	f := newFake()
	_, url := shown(t, f, time.Hour) // after the first look nothing comes
	other, err := http.Get(url + "/events")
	require.NoError(t, err)
	defer other.Body.Close() // somebody else watches: what was seen stays
	b.open(url)
	b.until(`document.querySelector("#nodes-text table") && asOf`)
	before := b.asked("/events")
	b.act(`(() => { const told = say; say = (text, kind) => { window.said = (window.said || "") + text; told(text, kind); }; heard -= silence; })()`)
	b.until(`window.said && window.said.includes("Nothing is heard of the bridge; this is how it was at 12:00:00. Asking again …")`)
	b.until(`byId("status").textContent.startsWith("The bridge works")`)
	assert.Equal(t, before+1, b.asked("/events"))
	assert.Empty(t, b.complaints())
}

// A story that cannot be told at present is asked for again.
func TestBrowserAsksAgain(t *testing.T) {
	b := newBrowser(t)
	f := newFake()
	var refuse atomic.Bool
	refuse.Store(true)
	f.answer = func(context.Context, history.Subject) (history.Answer, error) {
		if refuse.Load() {
			return history.Answer{}, errors.New("just now it starts")
		}
		return jobFive(), nil
	}
	_, url := shown(t, f)
	b.open(url + "#job/5")
	b.until(`document.querySelector("#story-text")?.innerText.includes("just now it starts")`)
	refuse.Store(false)
	b.until(`byId("story-text").innerText.includes("given back")`)
}

// 10,000 nodes are no more work for a browser than a hundred.
func TestBrowserAtScale(t *testing.T) {
	b := newBrowser(t)
	f := &fake{}
	f.st, f.entries = large()
	_, url := shown(t, f)
	b.open(url)
	b.until(`document.querySelector("#notes-text table")`)
	var elements int
	b.eval(`document.querySelectorAll("*").length`, &elements)
	assert.Less(t, elements, 12_000)
	var took float64 // ms, for all of it
	b.eval(`(() => { painted.clear(); const began = performance.now(); show(view); return performance.now() - began; })()`, &took)
	b.hold("k")
	b.write("node-7777")
	b.until(`byId("hits").innerText.includes("node node-7777")`)
	b.keep("large")
	t.Logf("%d elements, painted in %.0f ms", elements, took)
	assert.Empty(t, b.complaints())
}
