package slurmrest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake answers like slurmrestd. Its texts and statuses were taken from the real one (24.11.5 and 26.05.5).
type fake struct {
	versions []string
	release  string
	nodes    []string        // names slurmctld knows, in order
	jobs     []fakeJob       // jobs slurmctld knows, in order
	others   map[string]bool // jobs that it keeps from the token's user
	partial  bool            // end the list of nodes early
	tokens   map[string]bool // accepted; nil: all

	mu       sync.Mutex
	script   []func(w http.ResponseWriter) error // answers to the next requests that are not probes; nil entry: normal
	requests []string                            // "GET /slurm/v0.0.45/nodes/"
	bodies   []string
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if err := f.serve(w, r); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) error {
	body := ""
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		body = string(raw)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
	f.bodies = append(f.bodies, body)
	if f.tokens != nil && !f.tokens[r.Header.Get("X-SLURM-USER-TOKEN")] {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "Authentication failure")
		return nil
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/slurm/")
	version, path, _ := strings.Cut(rest, "/")
	if !ok || !slices.Contains(f.versions, version) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "Unable find requested URL. Please view /openapi/v3 for API reference.")
		return nil
	}
	path = strings.Trim(path, "/")
	if path != "ping" && len(f.script) > 0 {
		next := f.script[0]
		f.script = f.script[1:]
		if next != nil {
			return next(w)
		}
	}
	answer := map[string]any{
		"meta":     map[string]any{"slurm": map[string]any{"release": f.release}},
		"errors":   []any{},
		"warnings": []any{map[string]any{"description": "just saying", "source": "fake"}},
	}
	status := http.StatusOK
	fail := func(code, number int, text, description string) {
		status = code
		answer["errors"] = []any{map[string]any{"description": description, "error_number": number, "error": text, "source": "_fake"}}
	}
	switch name, single := strings.CutPrefix(path, "node/"); {
	case strings.HasPrefix(path, "job"):
		f.serveJobs(r.Method, path, r.URL.Query()["job_id"], answer, fail)
	case path == "partitions", path == "reservations":
		answer[path] = []any{}
	case path == "ping":
		answer["pings"] = []any{map[string]any{"hostname": "ctl", "responding": true, "primary": true}}
	case path == "nodes" && r.Method == http.MethodGet:
		list := []any{}
		for _, n := range f.nodes {
			list = append(list, fakeNode(n))
		}
		answer["nodes"] = list
	case single:
		if slices.Contains(f.nodes, name) {
			answer["nodes"] = []any{fakeNode(name)}
		} else {
			fail(http.StatusOK, 0, "No error", "Failure to query node "+name)
		}
	case path == "nodes":
		var u struct{ Name []string }
		if err := json.Unmarshal([]byte(body), &u); err != nil {
			return err
		}
		for _, n := range u.Name {
			if !slices.Contains(f.nodes, n) {
				fail(http.StatusInternalServerError, errInvalidNodeName, "Invalid node name specified", "Failure to update node "+strings.Join(u.Name, ","))
			}
		}
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	if f.partial && path == "nodes" {
		text = text[:len(text)-40]
	}
	_, err = w.Write(text)
	return err
}

func fakeNode(name string) map[string]any {
	return map[string]any{"name": name, "state": []string{"IDLE", "CLOUD", "POWERED_DOWN"}, "partitions": []string{"all"}, "address": name}
}

// fakeJob is a job as slurmrestd writes it.
type fakeJob map[string]any

func (j fakeJob) id() string { return fmt.Sprint(j["job_id"]) }

func (j fakeJob) number(field string) string {
	v, _ := j[field].(map[string]any)
	return fmt.Sprint(v["number"])
}

func (f *fake) serveJobs(method, path string, ids []string, answer map[string]any, fail func(code, number int, text, description string)) {
	id, single := strings.CutPrefix(path, "job/")
	switch {
	case path == "jobs/state":
		list := []any{}
		for _, j := range f.jobs {
			if len(ids) == 0 || slices.Contains(ids, j.id()) {
				name, _ := j["state_name"].(string)
				list = append(list, map[string]any{"job_id": cmp.Or(name, j.id()), "state": j["job_state"]})
			}
		}
		answer["jobs"] = list
	case !single && method == http.MethodGet:
		answer["jobs"] = slices.DeleteFunc(slices.Clone(f.jobs), func(j fakeJob) bool { return f.others[j.id()] })
	case single && method == http.MethodGet:
		list := []fakeJob{}
		for _, j := range f.jobs { // a het leader's ID gives all components, an array's all tasks (pack_one_job)
			if !f.others[j.id()] && (j.id() == id || j.number("het_job_id") == id || j.number("array_job_id") == id) {
				list = append(list, j)
			}
		}
		if answer["jobs"] = list; len(list) == 0 {
			fail(http.StatusInternalServerError, errInvalidJobID, "Invalid job id specified", "Unable to query JobId="+id)
		}
	case single && method == http.MethodPost:
		answer["results"] = nil
	default: // cancel, requeue
		answer["status"] = []any{}
	}
}

// reply scripts an answer with one Slurm error.
func reply(status, number int, text string) func(http.ResponseWriter) error {
	return func(w http.ResponseWriter) error {
		w.WriteHeader(status)
		return json.NewEncoder(w).Encode(map[string]any{"errors": []any{
			map[string]any{"description": "Failure to do it", "error_number": number, "error": text, "source": "_fake"},
		}})
	}
}

// lose scripts a request that gets no answer.
func lose(err error) func(http.ResponseWriter) error {
	return func(http.ResponseWriter) error { return err }
}

func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *fake) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.bodies = nil, nil
}

func newFake() *fake {
	return &fake{versions: []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"}, release: "26.05.5", nodes: []string{"c0", "c1", "c2", "c3", "c4", "c5", "g0"}}
}

func (f *fake) config() Config {
	return Config{
		Server: "http://slurmrestd:6820", Transport: f, Token: Static("secret"),
		Log: slog.New(slog.DiscardHandler), Jitter: func() float64 { return 1 },
	}
}

func dialFake(t *testing.T, f *fake) *Client {
	t.Helper()
	c, err := Dial(t.Context(), f.config())
	require.NoError(t, err)
	f.reset()
	return c
}

// tokens hands out token1, token2, … which live for life.
type tokens struct {
	life time.Duration
	now  func() time.Time
	n    int
	err  error
}

func (s *tokens) Token(context.Context) (string, time.Time, error) {
	if s.err != nil {
		return "", time.Time{}, s.err
	}
	s.n++
	return fmt.Sprintf("token%d", s.n), s.now().Add(s.life), nil
}
