package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// fake is a bridge, and the end of a history.
type fake struct {
	scaler  fakeScaler
	mu      sync.Mutex
	st      bridge.Status
	err     error
	entries []history.Entry
	looks   atomic.Int64
	takes   time.Duration
	panics  string
	unread  error // of the history
	answer  func(context.Context, history.Subject) (history.Answer, error)
}

func (f *fake) Snapshot(ctx context.Context) (bridge.Status, error) {
	f.looks.Add(1)
	f.mu.Lock()
	takes := f.takes
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return bridge.Status{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st, f.err
}

func (f *fake) Answer(ctx context.Context, s history.Subject) (history.Answer, error) {
	return f.answer(ctx, s)
}

func (f *fake) Newest() ([]history.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics != "" {
		panic(f.panics)
	}
	return f.entries, f.unread
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func newFake() *fake {
	f := &fake{}
	f.st, f.entries = day()
	f.scaler.told = asked
	return f
}

func newPage(f *fake) *Page {
	return New(Config{Bridge: f, Recent: f, Cluster: "tide", Log: slog.New(slog.DiscardHandler)})
}

// run has the page look until the test ends.
func run(t *testing.T, p *Page) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
}

func call(t *testing.T, h http.Handler, method, target string, head ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

func TestAnswers(t *testing.T) {
	f := newFake()
	f.answer = func(_ context.Context, s history.Subject) (history.Answer, error) {
		switch {
		case s.Job == 5:
			return jobFive(), nil
		case s.Job == 6:
			return history.Answer{Subject: s}, nil
		case s.Node == "away":
			return history.Answer{Subject: s, SlurmError: "refused"}, nil
		case s.Node == "late":
			return history.Answer{}, context.DeadlineExceeded
		}
		return history.Answer{}, errors.New("no idea")
	}
	p := newPage(f)
	run(t, p)
	h := p.Handler()
	for name, test := range map[string]struct {
		method, target, kind, contains string
		status                         int
	}{
		"page":                  {"GET", "/", "text/html; charset=utf-8", "<!DOCTYPE html>", 200},
		"head of the page":      {"HEAD", "/", "text/html; charset=utf-8", "", 200},
		"style":                 {"GET", "/page.css", "text/css; charset=utf-8", ":root", 200},
		"script":                {"GET", "/page.js", "text/javascript; charset=utf-8", "EventSource", 200},
		"icon":                  {"GET", "/favicon.ico", "", "", 204},
		"search":                {"GET", "/find?q=cpu-1", "application/json", `{"kind":"node","name":"cpu-1",`, 200},
		"search for too much":   {"GET", "/find?q=" + strings.Repeat("a", 301), "application/json", "longer than 300 characters", 400},
		"story":                 {"GET", "/story?job=5", "application/json", `"why":"capacity: 0/5 nodes are available`, 200},
		"story of nobody":       {"GET", "/story?job=6", "application/json", `{"error":"nothing is known of job 6: `, 404},
		"story, Slurm away":     {"GET", "/story?node=away", "application/json", `does not know node away, and Slurm cannot be asked: refused`, 503},
		"story, bridge busy":    {"GET", "/story?node=late", "application/json", `did not answer within 10s`, 503},
		"story, bridge fails":   {"GET", "/story?node=cpu-0", "application/json", `no idea`, 503},
		"story of what":         {"GET", "/story?job=x", "application/json", `\"x\" is not the number of a job`, 400},
		"nothing else":          {"GET", "/metrics", "text/plain; charset=utf-8", "404", 404},
		"no post":               {"POST", "/", "text/plain; charset=utf-8", "Method Not Allowed", 405},
		"no post to the story":  {"POST", "/story?job=5", "text/plain; charset=utf-8", "Method Not Allowed", 405},
		"nothing is deleted":    {"DELETE", "/events", "text/plain; charset=utf-8", "Method Not Allowed", 405},
		"nothing is put":        {"PUT", "/find", "text/plain; charset=utf-8", "Method Not Allowed", 405},
		"head of what happens":  {"HEAD", "/events", "text/event-stream", "", 200},
		"no options for others": {"OPTIONS", "/story", "text/plain; charset=utf-8", "Method Not Allowed", 405},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, h, test.method, test.target)
			assert.Equal(t, test.status, r.StatusCode)
			assert.Equal(t, test.kind, r.Header.Get("Content-Type"))
			assert.Contains(t, body(t, r), test.contains)
			cache := "no-cache"
			if test.kind == "application/json" {
				cache = "no-store"
			}
			for key, want := range map[string]string{
				"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
				"Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": cache, "Access-Control-Allow-Origin": "",
			} {
				assert.Equal(t, want, r.Header.Get(key), key)
			}
		})
	}
}

// What the page of another site has a browser ask is refused: it would cost the bridge much. A link to the page is followed.
func TestRefusesOtherSites(t *testing.T) {
	h := newPage(newFake()).Handler()
	for _, target := range []string{"/", "/events", "/find?q=a", "/story?job=5"} {
		for _, site := range []string{"cross-site", "same-site"} { // another port of localhost is of the same site
			for _, dest := range []string{"empty", "script", "iframe", ""} {
				r := call(t, h, "GET", target, "Sec-Fetch-Site", site, "Sec-Fetch-Dest", dest)
				assert.Equal(t, http.StatusForbidden, r.StatusCode, "%s %s %s", target, site, dest)
			}
		}
	}
	assert.Equal(t, 200, call(t, h, "GET", "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document").StatusCode)
	assert.Equal(t, 200, call(t, h, "GET", "/page.js", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "script").StatusCode)
	assert.Equal(t, 200, call(t, h, "GET", "/", "Sec-Fetch-Site", "none", "Sec-Fetch-Dest", "document").StatusCode)
}

func TestUnchangedAssets(t *testing.T) {
	h := newPage(newFake()).Handler()
	r := call(t, h, "GET", "/page.js")
	tag := r.Header.Get("ETag")
	require.NotEmpty(t, tag)
	assert.Equal(t, 304, call(t, h, "GET", "/page.js", "If-None-Match", tag).StatusCode)
	assert.Equal(t, 200, call(t, h, "GET", "/page.css", "If-None-Match", tag).StatusCode)
}

func TestOwnName(t *testing.T) {
	loopback, other := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9445}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 9445}
	for name, test := range map[string]struct {
		host  string
		local net.Addr
		want  bool
	}{
		"localhost":                 {"localhost:9445", loopback, true},
		"without a port":            {"localhost", loopback, true},
		"an address":                {"127.0.0.1:8080", loopback, true},
		"an IPv6 address":           {"[::1]:9445", loopback, true},
		"an IPv6 address, alone":    {"[::1]", loopback, true},
		"a name that points here":   {"evil.example:9445", loopback, false},
		"one that begins like ours": {"localhost.evil.example", loopback, false},
		"none":                      {"", loopback, false},
		"IPv6 loopback":             {"evil.example", &net.TCPAddr{IP: net.IPv6loopback}, false},
		"a name, on the network":    {"slurmtide.example", other, true},
		"a socket that is no TCP":   {"slurmtide", &net.UnixAddr{}, true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, ownName(test.host, test.local)) })
	}
}

func TestRefusesForeignNames(t *testing.T) {
	server := httptest.NewServer(newPage(newFake()).Handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	require.NoError(t, err)
	r.Host = "evil.example"
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusMisdirectedRequest, response.StatusCode)
	assert.Contains(t, body(t, response), "use localhost or 127.0.0.1")
}

// events are those that a stream brings.
type events struct{ *bufio.Reader }

// next returns the next event of the kind.
func (e events) next(t *testing.T, kind string) string {
	t.Helper()
	for {
		line, err := e.ReadString('\n')
		require.NoError(t, err)
		if line != "event: "+kind+"\n" {
			continue
		}
		data, err := e.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimPrefix(data, "data: ")
	}
}

// Over a real connection: who watches sees what is there and what changes, and when the bridge ends nobody is kept.
func TestEvents(t *testing.T) {
	f := newFake()
	p := newPage(f)
	p.every = 5 * time.Millisecond
	server := httptest.NewServer(p.Handler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()

	watch := func() (events, *http.Response) {
		r, err := server.Client().Get(server.URL + "/events")
		require.NoError(t, err)
		require.Equal(t, 200, r.StatusCode)
		require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
		return events{bufio.NewReader(r.Body)}, r
	}
	first, one := watch()
	defer one.Body.Close()
	var v View
	require.NoError(t, json.Unmarshal([]byte(first.next(t, "view")), &v))
	assert.Equal(t, "tide", v.Cluster)
	assert.Equal(t, 110, v.Nodes.All)
	second, two := watch()
	assert.Contains(t, second.next(t, "view"), `"cluster":"tide"`)
	assert.JSONEq(t, `{"time":"2026-05-01T12:00:00Z","slurmRead":"2026-05-01T11:59:59Z"}`, first.next(t, "beat"))
	assert.Equal(t, "no", one.Header.Get("X-Accel-Buffering"), "nginx would keep it until there is more")

	f.set(func() { f.st.Engine.SlurmError = "refused" })
	for _, e := range []events{first, second} {
		assert.Contains(t, e.next(t, "view"), "nothing is taken down: refused")
	}
	require.NoError(t, two.Body.Close())
	require.Eventually(t, func() bool {
		p.live.mu.Lock()
		defer p.live.mu.Unlock()
		return p.live.viewers == 1
	}, 10*time.Second, time.Millisecond, "who has gone is not served")

	cancel()
	require.NoError(t, <-done)
	_, err := io.ReadAll(first)
	require.NoError(t, err, "the stream ends")
	r, err := server.Client().Get(server.URL + "/events")
	require.NoError(t, err)
	defer r.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
}

// reader takes what is written to it as fast as it is let.
type reader struct {
	head   http.Header
	let    chan struct{} // nil: at once
	err    error
	mu     sync.Mutex
	text   strings.Builder
	writes atomic.Int64

	deadline time.Time // by which what was written last is to be read
}

func (r *reader) Header() http.Header { return r.head }
func (*reader) WriteHeader(int)       {}
func (*reader) Flush()                {}

func (r *reader) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	return nil
}

func (r *reader) Write(p []byte) (int, error) {
	if r.writes.Add(1); r.let != nil {
		<-r.let
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.text.Write(p)
}

func (r *reader) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), text)
}

// watching runs a page in a bubble of time, with so many who watch.
func watching(t *testing.T, f *fake, readers []*reader, test func(p *Page)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(f)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.NoError(t, p.Run(ctx)) })
		for _, r := range readers {
			r.head = http.Header{}
			if r.let != nil {
				r.let = make(chan struct{}) // of this bubble
			}
			all.Go(func() { p.events(r, httptest.NewRequestWithContext(ctx, "GET", "/events", nil)) })
		}
		test(p)
		for _, r := range readers {
			if r.let != nil {
				close(r.let)
			}
		}
		cancel()
		all.Wait()
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// One look serves all, what does not change is sent once, and while nobody watches nobody looks.
func TestManyViewers(t *testing.T) {
	f := newFake()
	var readers []*reader
	for range 100 {
		readers = append(readers, &reader{})
	}
	watching(t, f, readers, func(*Page) {
		pass(9500 * time.Millisecond)
		assert.InDelta(t, 10, f.looks.Load(), 1)
		for _, r := range readers {
			assert.Equal(t, 1, r.count("event: view\n"))
			assert.InDelta(t, 10, r.count("event: beat\n"), 1)
		}
	})
	f = newFake()
	watching(t, f, nil, func(*Page) {
		pass(time.Hour)
		assert.Zero(t, f.looks.Load())
	})
}

// Who reads slowly holds nobody up, and gets the newest when there is room again.
func TestSlowReader(t *testing.T) {
	f := newFake()
	slow, quick := &reader{let: make(chan struct{})}, &reader{}
	watching(t, f, []*reader{slow, quick}, func(*Page) {
		pass(time.Millisecond)
		for i := range 20 {
			f.set(func() { f.st.Engine.Pods = 1000 + i })
			pass(time.Second)
		}
		assert.Equal(t, 20, quick.count(`"pods":10`))
		assert.Zero(t, slow.count("event"))
		assert.EqualValues(t, 1, slow.writes.Load(), "nothing is piled up for it")
		for range 3 { // the greeting, a beat, a view
			slow.let <- struct{}{}
		}
		pass(time.Millisecond)
		assert.Equal(t, 1, slow.count("event: view\n"))
		assert.Equal(t, 1, slow.count(`"pods":1019`), "the newest")
	})
}

// A connection that takes nothing is given up.
func TestReaderGone(t *testing.T) {
	watching(t, newFake(), []*reader{{err: os.ErrDeadlineExceeded}}, func(p *Page) {
		pass(time.Millisecond)
		assert.False(t, p.live.watched())
	})
}

// Nobody may take for ever to read: an event has 15 seconds from when it is written, any other answer a minute in all.
func TestDeadlines(t *testing.T) {
	f, r := newFake(), &reader{}
	watching(t, f, []*reader{r}, func(p *Page) {
		pass(time.Hour)
		assert.Equal(t, time.Now().Add(15*time.Second), r.deadline)
		other := &reader{head: http.Header{}}
		p.Handler().ServeHTTP(other, httptest.NewRequest("GET", "/page.js", nil))
		assert.Equal(t, time.Now().Add(time.Minute), other.deadline)
	})
}

// So many may watch, and some more may search; who comes then is told so. A page that does not look leaves nobody waiting.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(newFake())
		get := func(serve http.HandlerFunc, path string) (int, string) {
			w := httptest.NewRecorder()
			serve(w, httptest.NewRequest("GET", path, nil))
			return w.Code, w.Body.String()
		}
		began := time.Now()
		code, text := get(p.find, "/find?q=cpu")
		assert.Equal(t, 503, code)
		assert.Contains(t, text, "did not answer within 10s", "Run does not run")
		assert.Equal(t, 10*time.Second, time.Since(began))
		for range 200 {
			require.True(t, p.live.enter(mostViewed))
		}
		code, text = get(p.events, "/events")
		assert.Equal(t, 503, code)
		assert.Contains(t, text, "watch already")
		p.live.show([]byte("{}"), beat{}, &looked{}, nil)
		code, _ = get(p.find, "/find?q=cpu")
		assert.Equal(t, 200, code)
		for range 50 {
			require.True(t, p.live.enter(mostViewed+mostFound))
		}
		code, text = get(p.find, "/find?q=cpu")
		assert.Equal(t, 503, code)
		assert.Contains(t, text, "watch already")
	})
}

// A history that cannot be read takes only itself away.
func TestHistoryUnread(t *testing.T) {
	f, r := newFake(), &reader{}
	f.entries, f.unread = nil, errors.New("reading history: permission denied")
	watching(t, f, []*reader{r}, func(*Page) {
		pass(time.Millisecond)
		assert.Equal(t, 1, r.count("What happened before the bridge began is not shown: reading history: permission denied"))
		assert.Equal(t, 1, r.count(`"node":"cpu-12"`))
	})
}

func TestTooManyViewers(t *testing.T) {
	l := newLive()
	assert.True(t, l.enter(2))
	assert.True(t, l.enter(2))
	assert.False(t, l.enter(2))
	l.leave()
	assert.True(t, l.enter(2))
	l.end()
	l.end()
	l.leave()
	assert.False(t, l.enter(2), "it ends")
}

// A bridge that does not answer is told of, and what was seen before stays.
func TestBridgeAway(t *testing.T) {
	f := newFake()
	r := &reader{}
	watching(t, f, []*reader{r}, func(*Page) {
		pass(time.Millisecond)
		f.set(func() { f.err = context.DeadlineExceeded })
		pass(2 * time.Second)
		assert.Equal(t, 2, r.count("did not answer within 5s"))
		assert.Equal(t, 1, r.count("event: view\n"))
		f.set(func() { f.err = nil })
		pass(time.Second)
		assert.Equal(t, 1, r.count("event: view\n"), "it is as it was")
		f.set(func() { f.st.Engine.NodeSets = []powersave.NodeSetCounts{{Name: "new"}} })
		pass(time.Second)
		assert.Equal(t, 2, r.count("event: view\n"))
	})
}

// Who searches while nobody watches is told how it is now, and however many do, looks are no more than with one who watches.
func TestSearchesAlone(t *testing.T) {
	f := newFake()
	watching(t, f, nil, func(p *Page) {
		search := func(words string) (int, string) {
			w := httptest.NewRecorder()
			p.find(w, httptest.NewRequest("GET", "/find?q="+words, nil))
			return w.Code, w.Body.String()
		}
		_, text := search("cpu-12")
		assert.Contains(t, text, "boots: pending")
		time.Sleep(time.Hour)
		f.set(func() { f.st.Engine.Boots = nil })
		_, text = search("cpu-12")
		assert.NotContains(t, text, "boots: pending")
		assert.EqualValues(t, 2, f.looks.Load())

		time.Sleep(time.Hour)
		var all sync.WaitGroup
		codes := make(chan int, 1000)
		for range 1000 {
			all.Go(func() {
				code, _ := search("cpu-12")
				codes <- code
			})
		}
		all.Wait()
		assert.LessOrEqual(t, f.looks.Load(), int64(4))
		close(codes)
		for code := range codes {
			assert.Contains(t, []int{200, 503}, code)
		}
		f.set(func() { f.err = errors.New("no answer") })
		time.Sleep(time.Hour)
		code, text := search("cpu-12")
		assert.Equal(t, 503, code)
		assert.Contains(t, text, "no answer")
		f.set(func() { f.err = nil })
		time.Sleep(time.Minute)
		code, _ = search("cpu-12")
		assert.Equal(t, 200, code, "what failed for others before is no matter")
		assert.False(t, p.live.watched())
	})
}

// A look that ends when nobody watches any more leaves nothing behind that the next one would take for new.
func TestLeavesDuringALook(t *testing.T) {
	l := newLive()
	require.True(t, l.enter(1))
	l.leave()
	l.show([]byte("{}"), beat{Time: noon}, &looked{}, nil)
	require.True(t, l.enter(1))
	f, _ := l.frame()
	assert.Nil(t, f.view)
	assert.Nil(t, f.beat)
	assert.Nil(t, f.looked)
	l.show([]byte("{}"), beat{Time: noon}, nil, errors.New("away"))
	l.leave()
	require.True(t, l.enter(1))
	f, _ = l.frame()
	require.NoError(t, f.err)
}

// A bridge that answers late is asked again soon enough for those who watch to know that somebody is there.
func TestLateBridge(t *testing.T) {
	f, r := newFake(), &reader{}
	f.takes = time.Hour
	watching(t, f, []*reader{r}, func(*Page) {
		pass(time.Minute)
		assert.Equal(t, 4, r.count("did not answer within 5s"), "every 15 seconds")
		f.set(func() { f.takes = 200 * time.Millisecond })
		pass(20 * time.Second)
		before := f.looks.Load()
		pass(22 * time.Second)
		assert.InDelta(t, 10, f.looks.Load()-before, 1, "one that has much to do is left alone ten times as long as it took")
	})
}

// A fault of the page's own is told of, logged once, and ends neither the page nor the bridge.
func TestFault(t *testing.T) {
	f, r, log := newFake(), &reader{}, &clitest.Log{}
	watching(t, f, []*reader{r}, func(p *Page) {
		p.Log = slog.New(slog.NewTextHandler(log, nil))
		pass(time.Millisecond)
		f.set(func() { f.panics = "index out of range" })
		pass(5 * time.Second)
		assert.Equal(t, 5, r.count("it cannot be shown (index out of range)"))
		f.set(func() { f.panics = "" })
		pass(5 * time.Second)
		f.set(func() { f.panics = "again" })
		pass(5 * time.Second)
		assert.Equal(t, 5, r.count("it cannot be shown (again)"))
		assert.Equal(t, 2, strings.Count(log.String(), "power saving goes on"))
		assert.Contains(t, log.String(), "Newest", "where it was")
	})
}

// Stories cost more than looks: of those that ask at once some wait, and in the end are told so.
func TestStoriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var now, most atomic.Int64
		f.answer = func(ctx context.Context, s history.Subject) (history.Answer, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-ctx.Done()
			return history.Answer{Subject: s}, ctx.Err()
		}
		p := newPage(f)
		codes := make(chan int, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				p.story(w, httptest.NewRequestWithContext(t.Context(), "GET", "/story?job=5", nil))
				codes <- w.Code
			}()
		}
		pass(storyWait + time.Second)
		require.Len(t, codes, 5)
		for range 5 {
			assert.Equal(t, http.StatusServiceUnavailable, <-codes)
		}
		assert.Empty(t, p.stories)
		assert.EqualValues(t, 2, most.Load())
	})
}
