package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
)

// slurmrestd answers with what real ones did; statistics alone are made up.
type slurmrestd struct {
	version, release string
	fail             func(what string) (status int, text string, cut bool) // nil: nothing fails
	takes            map[string]time.Duration

	mu         sync.Mutex
	times      map[string][]time.Time
	busy       int
	atOnce     int
	unanswered bool // a request has an update_time: say that nothing has changed
	since      []string
}

func (s *slurmrestd) RoundTrip(r *http.Request) (*http.Response, error) {
	what := path.Base(r.URL.Path)
	s.mu.Lock()
	if s.times == nil {
		s.times = map[string][]time.Time{}
	}
	s.times[what] = append(s.times[what], time.Now())
	s.busy++
	s.atOnce = max(s.atOnce, s.busy)
	if what == "jobs" {
		s.since = append(s.since, r.URL.Query().Get("update_time"))
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}()
	s.mu.Lock()
	takes := s.takes[what]
	s.mu.Unlock()
	time.Sleep(takes)
	w := httptest.NewRecorder()
	text, err := s.answer(what)
	status, cut := http.StatusOK, false
	if s.fail != nil && what != "ping" {
		if code, words, short := s.fail(what); code != 0 || words != "" {
			status, text = code, words
		} else {
			cut = short
		}
	}
	if err != nil {
		return nil, err
	}
	if s.unanswered && r.URL.Query().Has("update_time") {
		status, text = http.StatusNotModified, ""
	}
	if cut {
		text = text[:len(text)/2]
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

func (s *slurmrestd) answer(what string) (string, error) {
	switch what {
	case "ping":
		return `{"meta":{"slurm":{"release":"` + s.release + `"}},"errors":[]}`, nil
	case "diag":
		text, err := os.ReadFile("testdata/diag.json")
		return strings.Replace(string(text), "24.11.5", s.release, 1), err
	}
	text, err := os.ReadFile(filepath.Join("../../internal/slurmrest/answer/testdata", s.release, what+"-"+s.version+".json"))
	return string(text), err
}

// asks are the times of the requests for something.
func (s *slurmrestd) asks(what string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.times[what])
}

func (s *slurmrestd) client(t *testing.T) *slurmrest.Client {
	t.Helper()
	c, err := slurmrest.New(slurmrest.Config{Server: "http://slurmrestd:6820", Transport: versioned{s}, Token: slurmrest.Static("secret"), Retries: -1, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return c
}

// versioned turns away requests of versions that a slurmrestd has not.
type versioned struct{ *slurmrestd }

func (v versioned) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/slurm/"+v.version+"/") {
		return v.slurmrestd.RoundTrip(r)
	}
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusNotFound)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// old and newest are the ends of what is supported.
func old() *slurmrestd    { return &slurmrestd{version: "v0.0.42", release: "24.11.5"} }
func newest() *slurmrestd { return &slurmrestd{version: "v0.0.45", release: "26.05.5"} }

// unchanged makes it say after the first read of jobs that none has changed.
func unchanged(s *slurmrestd) *slurmrestd {
	s.unanswered = true
	return s
}

// running is a collector that runs until the test ends, and what a scrape of it gives.
func running(t *testing.T, s *slurmrestd, cfg Config) (c *Collector, scrape func() string) {
	t.Helper()
	client := s.client(t)
	cfg.Slurm, cfg.Version = client, client.Version
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Why = func(err error) string {
		if slurmrest.IsAuth(err) {
			return "token"
		}
		return map[bool]string{true: "unreachable", false: "error"}[slurmrest.IsTransient(err)]
	}
	c = New(cfg)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return c, func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		return w.Body.String()
	}
}

// The pages that a scrape gives, from recorded answers of both ends of what is supported.
func TestPages(t *testing.T) {
	for name, tt := range map[string]struct {
		slurm *slurmrestd
		cfg   Config
	}{
		"24.11":     {unchanged(old()), Config{}},
		"26.05":     {newest(), Config{Labels: prometheus.Labels{"cluster": "tide"}}},
		"26.05-all": {newest(), Config{Options: exporter.Options{PerNode: true, PerUser: true, PerJob: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Unix(1_795_250_000, 0))) // when the answers were recorded
				c, scrape := running(t, tt.slurm, tt.cfg)
				assert.False(t, c.Tried())
				time.Sleep(20 * time.Second)
				assert.True(t, c.Tried())
				page := scrape()
				golden.Compare(t, "testdata/"+name+".golden.txt", page)
				problems, err := promlint.New(strings.NewReader(page)).Lint()
				require.NoError(t, err)
				assert.Empty(t, problems)
			})
		})
	}
}

// What cannot be read vanishes, says so, and comes back; what can be read stays.
func TestFailures(t *testing.T) {
	series := map[string]string{"nodes": "slurm_nodes{", "jobs": "slurm_jobs{", "partitions": "slurm_partition_state{", "diag": "slurm_controller_rpcs_total{"}
	for name, tt := range map[string]struct {
		what   string // what fails; empty: everything
		status int
		text   string
		cut    bool
		why    string
	}{
		"token refused":         {"", 401, "Authentication failure", false, "token"},
		"no slurmrestd":         {"", 503, "upstream connect error", false, "unreachable"},
		"no slurmctld":          {"", 502, `{"errors":[{"error_number":1800,"error":"Unable to contact slurm controller (connect failure)","description":"no"}]}`, false, "unreachable"},
		"somebody else":         {"", 200, "<html>please log in</html>", false, "error"},
		"an empty answer":       {"", 200, "{}", false, "error"},
		"nodes cut short":       {"nodes", 0, "", true, "unreachable"},
		"jobs cut short":        {"jobs", 0, "", true, "unreachable"},
		"statistics cut short":  {"diag", 0, "", true, "unreachable"},
		"no right to see nodes": {"nodes", 500, `{"errors":[{"error_number":2002,"error":"Access/permission denied"}]}`, false, "token"},
		"no slurmdbd":           {"partitions", 500, `{"errors":[{"error_number":7000,"error":"Unable to connect to database","description":"Slurmdb connection error"}]}`, false, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newest()
				var broken sync.Map
				s.fail = func(what string) (int, string, bool) {
					if _, ok := broken.Load("broken"); ok && (tt.what == "" || tt.what == what) {
						return tt.status, tt.text, tt.cut
					}
					return 0, "", false
				}
				_, scrape := running(t, s, Config{})
				time.Sleep(2 * time.Minute)
				page := scrape()
				for what, start := range series {
					assert.Contains(t, page, "\n"+start, what)
					assert.Contains(t, page, `slurmtide_exporter_readable{what="`+what+`"} 1`)
				}
				assert.NotRegexp(t, `(?m)^slurmtide_exporter_read_failures_total\{.* [^0]`, page)
				broken.Store("broken", true)
				time.Sleep(20 * time.Second)
				assert.Contains(t, scrape(), "\n"+series["nodes"], "one read that fails takes nothing away")
				time.Sleep(3 * time.Minute)
				page = scrape()
				for what, start := range series {
					fails := tt.what == "" || tt.what == what
					assert.Equal(t, !fails, strings.Contains(page, "\n"+start), what)
					assert.Contains(t, page, fmt.Sprintf(`slurmtide_exporter_readable{what="%s"} %d`, what, map[bool]int{true: 0, false: 1}[fails]))
					assert.Equal(t, fails, !strings.Contains(page, `slurmtide_exporter_read_failures_total{what="`+what+`",why="`+tt.why+`"} 0`), "%s\n%s", what, page)
					assert.Contains(t, page, `slurmtide_exporter_last_success_timestamp_seconds{what="`+what+`"}`)
				}
				broken.Delete("broken")
				time.Sleep(70 * time.Second)
				page = scrape()
				for what, start := range series {
					assert.Contains(t, page, "\n"+start, what)
				}
			})
		})
	}
}

// A slurmrestd that takes requests and never answers makes each read last until it is given up. That is no reason to show old figures for longer.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		var broken sync.Map
		s.fail = func(string) (int, string, bool) {
			_, ok := broken.Load("broken")
			return map[bool]int{true: 503}[ok], "", false
		}
		_, scrape := running(t, s, Config{})
		time.Sleep(2 * time.Minute)
		broken.Store("broken", true)
		s.mu.Lock()
		s.takes = map[string]time.Duration{"nodes": time.Minute, "jobs": time.Minute, "partitions": 15 * time.Second, "diag": 15 * time.Second}
		s.mu.Unlock()
		gone := map[exporter.Source]time.Duration{}
		for passed := time.Duration(0); passed < 15*time.Minute; passed += 5 * time.Second {
			time.Sleep(5 * time.Second)
			page := scrape()
			for _, what := range exporter.Sources {
				shown := strings.Contains(page, fmt.Sprintf(`slurmtide_exporter_readable{what="%s"} 1`, what))
				if !shown && gone[what] == 0 {
					gone[what] = passed
				}
				assert.False(t, shown && gone[what] != 0, "%s came back after %v", what, passed)
			}
		}
		first := slices.Min(slices.Collect(maps.Values(gone)))
		assert.Less(t, first, 2*time.Minute, "as soon as its own read has failed")
		for _, what := range exporter.Sources { // in turn: each has to be tried first, after the rests of those before
			assert.NotZero(t, gone[what], what)
			assert.Less(t, gone[what], 8*time.Minute, what)
		}
	})
}

// If one kind is never answered, its figures go, and those of others stay, though they have to wait for it each time.
func TestOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		var broken sync.Map
		s.fail = func(what string) (int, string, bool) {
			_, ok := broken.Load(what)
			return map[bool]int{true: 503}[ok], "", false
		}
		_, scrape := running(t, s, Config{})
		time.Sleep(2 * time.Minute)
		broken.Store("jobs", true)
		s.mu.Lock()
		s.takes = map[string]time.Duration{"jobs": time.Minute}
		s.mu.Unlock()
		time.Sleep(3 * time.Minute)
		for range 200 { // nobody has looked before
			page := scrape()
			for _, what := range exporter.Sources {
				want := 1
				if what == exporter.FromJobs {
					want = 0
				}
				require.Contains(t, page, fmt.Sprintf(`slurmtide_exporter_readable{what="%s"} %d`, what, want))
			}
			time.Sleep(7 * time.Second)
		}
	})
}

// Slurm is read once for any number of scrapes, one read at a time, and left alone for a time after each.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		s.takes = map[string]time.Duration{"nodes": time.Second, "jobs": 2 * time.Second}
		_, scrape := running(t, s, Config{})
		for range 600 {
			time.Sleep(time.Second)
			scrape()
		}
		jobs := s.asks("jobs")
		s.mu.Lock()
		assert.Equal(t, 1, s.atOnce)
		s.mu.Unlock()
		for what, want := range map[string]int{"nodes": 40, "jobs": 40, "diag": 40, "partitions": 10} {
			assert.InDelta(t, want, len(s.asks(what)), 2, what)
		}
		for at, asked := range s.asks("diag") { // follows jobs
			assert.GreaterOrEqual(t, asked.Sub(jobs[at]), 6*time.Second, "it took two, and rests for four")
		}
	})
}

// Reads that take long are made less often, and their figures stay for longer.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		s.takes = map[string]time.Duration{"nodes": 5 * time.Second, "jobs": 40 * time.Second}
		_, scrape := running(t, s, Config{})
		time.Sleep(5 * time.Minute)
		for range 1200 {
			time.Sleep(time.Second)
			page := scrape()
			for _, what := range exporter.Sources {
				require.Contains(t, page, fmt.Sprintf(`slurmtide_exporter_readable{what="%s"} 1`, what), "nothing comes and goes")
			}
		}
		assert.InDelta(t, 1500/135, len(s.asks("jobs")), 2, "a third of the time at the most")
	})
}

// While no job changes slurmctld says so; now and then all are read in any case.
func TestUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		s.unanswered = true
		_, scrape := running(t, s, Config{})
		time.Sleep(10*time.Minute + time.Second)
		page := scrape()
		assert.Contains(t, page, "\nslurm_jobs{")
		assert.Contains(t, page, `slurmtide_exporter_read_seconds_count{what="unchanged"} 30`)
		whole := 0
		s.mu.Lock()
		defer s.mu.Unlock()
		for at, since := range s.since {
			if since == "" {
				whole++
			} else {
				assert.NotZero(t, at)
			}
		}
		assert.Equal(t, 11, whole, "%v", s.since)
	})
}

// After a read of jobs that was cut short all are asked for: nobody knows which were in the rest.
func TestAllJobsAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		var cut sync.Map
		s.fail = func(what string) (int, string, bool) {
			_, ok := cut.Load(what)
			return 0, "", ok
		}
		running(t, s, Config{})
		time.Sleep(20 * time.Second)
		cut.Store("jobs", true)
		time.Sleep(15 * time.Second)
		cut.Delete("jobs")
		time.Sleep(15 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Len(t, s.since, 4)
		assert.Empty(t, s.since[0])
		assert.NotEmpty(t, s.since[1])
		assert.NotEmpty(t, s.since[2], "the one that is cut")
		assert.Empty(t, s.since[3])
	})
}

// Partitions, which are read once a minute, are good for longer than what is read more often.
func TestPartitionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, scrape := running(t, newest(), Config{MaxAge: 30 * time.Second})
		time.Sleep(time.Minute)
		for range 120 {
			time.Sleep(5 * time.Second)
			require.Contains(t, scrape(), `slurmtide_exporter_readable{what="partitions"} 1`)
		}
	})
}

// The log has a failure once, however long it lasts, and its end.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newest(), &clitest.Log{}
		var broken sync.Map
		s.fail = func(what string) (int, string, bool) {
			_, ok := broken.Load(what)
			return map[bool]int{true: 503}[ok], "", false
		}
		broken.Store("nodes", true)
		running(t, s, Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 1, strings.Count(log.String(), "reading Slurm failed"))
		assert.NotContains(t, log.String(), "read again")
		broken.Delete("nodes")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, strings.Count(log.String(), `msg="Slurm is read again" what=nodes`))
	})
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newest()
		s.fail = func(what string) (int, string, bool) { return map[bool]int{true: 503}[what == "diag"], "", false }
		running(t, s, Config{})
		time.Sleep(5 * time.Minute)
		var waits []time.Duration
		asks := s.asks("diag")
		for at := 1; at < len(asks); at++ {
			waits = append(waits, asks[at].Sub(asks[at-1]))
		}
		require.GreaterOrEqual(t, len(waits), 4)
		assert.Equal(t, []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, time.Minute}, waits[:4])
		assert.InDelta(t, 20, len(s.asks("nodes")), 1, "the others go on")
	})
}

// half hands over some facts and fails.
type half struct{ Slurm }

func (half) EachNode(_ context.Context, begin func() func(exporter.Node)) error {
	begin()(exporter.Node{Name: "a"})
	add := begin()
	add(exporter.Node{Name: "a"})
	return errors.New("cut")
}

func TestHalfAReadIsNone(t *testing.T) {
	c := New(Config{Slurm: half{}})
	list, _, err := c.readNodes(t.Context(), time.Now())
	require.EqualError(t, err, "cut")
	assert.Empty(t, list)
	assert.Empty(t, c.seconds.Samples())
}
