package page

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// Bridge is what the page asks: what `slurmtide status` and `slurmtide explain` ask over the socket.
type Bridge interface {
	Snapshot(ctx context.Context) (bridge.Status, error)
	Answer(ctx context.Context, s history.Subject) (history.Answer, error)
}

// Recent is the end of the history.
type Recent interface {
	Newest() ([]history.Entry, error)
}

// Config says what the page shows. All fields but Demand are required.
type Config struct {
	Bridge  Bridge
	Recent  Recent
	Cluster string // for people
	Log     *slog.Logger
	// Demand asks the scaler; nil: nobody has said where it is.
	Demand func(context.Context) (ask.Demand, error)
}

// Bounds of what the page does for those who look.
const (
	lookEvery  = time.Second
	mostViewed = 200              // who watch at once
	mostFound  = 50               // searches at once, beside those
	writeWait  = 15 * time.Second // who takes longer to read one event is let go; a browser comes again by itself
	answerWait = time.Minute      // all of another answer, with what it takes to work it out
	storyWait  = 10 * time.Second
	mostAsked  = 2   // stories at once: each reads the whole history, and asks slurmrestd
	mostQuery  = 300 // characters
)

// Page serves the page. Run must run while it does.
type Page struct {
	Config
	live    *live
	every   time.Duration
	stories chan struct{} // slots
	// demanded is nil until the scaler has been asked.
	demanded    atomic.Pointer[Demand]
	scalerEvery time.Duration
	faulty      bool // a look has failed by a fault of ours, and the log has it; Run's goroutine alone uses it
}

// New makes the page.
func New(c Config) *Page {
	return &Page{Config: c, live: newLive(), every: lookEvery, scalerEvery: scalerEvery, stories: make(chan struct{}, mostAsked)}
}

//go:embed static/page.html static/page.css static/page.js
var static embed.FS

// policy lets the page load itself and ask its own server: no other host, no inline script or style, no frame, no form, no text that becomes HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Handler answers GET and HEAD: the page at /, what happens at events, a search at find?q=, a story at story?job=, ?node= or ?nodeset=.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", asset("page.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", asset("page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /events", p.events)
	mux.HandleFunc("GET /find", p.find)
	mux.HandleFunc("GET /story", p.story)
	return guarded(mux)
}

// guarded sets what holds for all answers, and refuses what another site may have had a browser ask.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if !ownName(r.Host, local) {
			http.Error(w, fmt.Sprintf("this page is asked for over the loopback interface, and %q is no name of that: use localhost or 127.0.0.1; a proxy on this host must send one of those as Host", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		if foreign(r.Header) {
			http.Error(w, "the page of another site has asked for this: open the address itself", http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWait)) // events set their own; one that cannot be set is no worse than before
		next.ServeHTTP(w, r)
	})
}

// ownName says whether a request may be for us. Over the loopback interface, kubectl port-forward included, a name that is not localhost is one that another site has made to
// point here, so that its script in the browser of somebody who may look can read along.
func ownName(host string, local net.Addr) bool {
	tcp, isTCP := local.(*net.TCPAddr)
	if !isTCP || !tcp.IP.IsLoopback() {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		name = host[1 : len(host)-1]
	}
	return name == "localhost" || net.ParseIP(name) != nil
}

// foreign says whether another site has a browser ask. It could not read the answer, but have the bridge work out one story after the other. A link that leads here is no harm.
func foreign(h http.Header) bool {
	site := h.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && h.Get("Sec-Fetch-Dest") != "document"
}

// asset serves a file that is part of the program.
func asset(name, kind string) http.HandlerFunc {
	text, err := static.ReadFile("static/" + name)
	if err != nil {
		panic(err) // the compiler has put it there
	}
	tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(text))[:16])
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(text)
	}
}

// events tells who watches what happens, as server-sent events: view when something has changed, beat with each look. Who reads slowly misses what is old by then.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	head := func() {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // for nginx before it
	}
	if r.Method == http.MethodHead {
		head()
		return
	}
	if !p.live.enter(mostViewed) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, errFull.Error(), http.StatusServiceUnavailable)
		return
	}
	defer p.live.leave()
	head()
	out := http.NewResponseController(w)
	say := func(event string, data []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(writeWait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		return err
	}
	if _, err := fmt.Fprint(w, "retry: 2000\n\n"); err != nil || out.Flush() != nil {
		return
	}
	var seen uint64
	for {
		f, ended := p.live.frame()
		if ended {
			return
		}
		if f.beat != nil && say("beat", f.beat) != nil { // first: it has the time by which the ages in the view are reckoned
			return
		}
		if f.view != nil && f.number != seen {
			seen = f.number
			if say("view", f.view) != nil {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-f.next:
		case <-r.Context().Done():
			return
		}
	}
}

// find answers a search with a List of Hits.
func (p *Page) find(w http.ResponseWriter, r *http.Request) {
	words := r.URL.Query().Get("q")
	if len(words) > mostQuery {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the search is longer than %d characters", mostQuery))
		return
	}
	seen, err := p.newest(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	e := seen.status.Engine
	e.Boots = slices.Concat(e.Boots, seen.status.Dynamic)
	answer(w, http.StatusOK, find(words, e, seen.over))
}

// newest is what the newest look has seen. Who searches while nobody watches waits for one: however many ask, Run alone looks, at its own pace.
func (p *Page) newest(ctx context.Context) (*looked, error) {
	if !p.live.enter(mostViewed + mostFound) {
		return nil, errFull
	}
	defer p.live.leave()
	ctx, cancel := context.WithTimeout(ctx, storyWait)
	defer cancel()
	for {
		f, ended := p.live.frame()
		switch {
		case ended:
			return nil, errFull
		case f.looked != nil:
			return f.looked, nil
		case f.err != nil:
			return nil, f.err
		}
		select {
		case <-f.next:
		case <-ctx.Done():
			return nil, busy(storyWait)
		}
	}
}

// story answers with what there is to tell of a job, a node or a NodeSet.
func (p *Page) story(w http.ResponseWriter, r *http.Request) {
	s, err := subject(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	switch a, err := p.answer(r.Context(), s); {
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusServiceUnavailable, busy(storyWait))
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err)
	case !a.Known() && a.SlurmError != "":
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("the bridge does not know %s, and Slurm cannot be asked: %s", s, a.SlurmError))
	case !a.Known():
		refuse(w, http.StatusNotFound, fmt.Errorf("nothing is known of %s: neither Slurm nor the bridge has such a one, and the history reaches back to a few thousand boots", s))
	default:
		answer(w, http.StatusOK, tell(a))
	}
}

var errFull = errors.New("as many as can be served watch already, or the bridge ends; try again in a while")

var errCrowded = errors.New("others ask for stories, which takes a while: try again")

// answer asks the bridge. Its slot is free again before anybody reads what comes of it, who may be slow.
func (p *Page) answer(ctx context.Context, s history.Subject) (history.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, storyWait)
	defer cancel()
	select {
	case p.stories <- struct{}{}:
		defer func() { <-p.stories }()
	case <-ctx.Done():
		return history.Answer{}, errCrowded
	}
	return p.Bridge.Answer(ctx, s)
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		http.Error(w, "the answer cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
