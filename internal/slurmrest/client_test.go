package slurmrest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestServerAddress(t *testing.T) {
	for name, tc := range map[string]struct{ server, base, socket, err string }{
		"http":             {"http://ctl:6820", "http://ctl:6820/", "", ""},
		"https and path":   {"https://proxy/slurm-rest/", "https://proxy/slurm-rest/", "", ""},
		"IPv6":             {"http://[fd00::1]:6820", "http://[fd00::1]:6820/", "", ""},
		"unix":             {"unix:///run/slurmrestd.sock", "http://localhost/", "/run/slurmrestd.sock", ""},
		"unix, short":      {"unix:/run/slurmrestd.sock", "http://localhost/", "/run/slurmrestd.sock", ""},
		"unix, relative":   {"unix://run/slurmrestd.sock", "", "", "not absolute"},
		"no scheme":        {"ctl:6820", "", "", "no scheme"},
		"empty":            {"", "", "", "no scheme"},
		"no host":          {"http://", "", "", "no host"},
		"with a query":     {"http://ctl?x=1", "", "", "only scheme"},
		"with credentials": {"http://root:pw@ctl", "", "", "only scheme"},
		"no URL":           {"http://ctl:port", "", "", "not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			base, socket, err := parseServer(tc.server)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.ErrorContains(t, err, "unix:///path/slurmrestd.sock", "it must show how to write it")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.base, base)
			assert.Equal(t, tc.socket, socket)
		})
	}
}

func TestVersionChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		offers  []string
		release string
		version string
		err     string
	}{
		"24.11":               {[]string{"v0.0.40", "v0.0.41", "v0.0.42"}, "24.11.5", "v0.0.42", ""},
		"26.05":               {[]string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"}, "26.05.5", "v0.0.45", ""},
		"only some loaded":    {[]string{"v0.0.43"}, "25.05.1", "v0.0.43", ""},
		"newer with ours":     {[]string{"v0.0.45", "v0.0.46"}, "26.11.0", "v0.0.45", ""},
		"too old":             {[]string{"v0.0.39", "v0.0.40", "v0.0.41"}, "24.05.3", "", "is Slurm 24.05.3, which is not supported: supported are 24.11 to 26.05"},
		"too new":             {[]string{"v0.0.47", "v0.0.48"}, "28.05.0", "", "is Slurm 28.05.0, which is not supported"},
		"something different": {nil, "", "", "is it slurmrestd? Supported are Slurm 24.11 to 26.05"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.versions, f.release = tc.offers, tc.release
			c, err := Dial(t.Context(), f.config())
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				var unsupported *UnsupportedError
				require.ErrorAs(t, err, &unsupported)
				assert.False(t, IsTransient(err))
				return
			}
			require.NoError(t, err)
			version, release := c.Version()
			assert.Equal(t, tc.version, version)
			assert.Equal(t, tc.release, release)
		})
	}
}

func TestVersionAfterUpgrade(t *testing.T) {
	f := newFake()
	f.versions, f.release = []string{"v0.0.42"}, "24.11.5"
	c := dialFake(t, f)
	f.versions, f.release = []string{"v0.0.44", "v0.0.45"}, "26.05.5"
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	assert.Len(t, nodes, len(f.nodes))
	version, release := c.Version()
	assert.Equal(t, "v0.0.45 26.05.5", version+" "+release)
	assert.Equal(t, []string{"GET /slurm/v0.0.42/nodes/", "GET /slurm/v0.0.45/ping/", "GET /slurm/v0.0.45/nodes/"}, f.seen())

	// A server that has nothing for us any more is asked once, not for ever.
	f.versions = nil
	f.reset()
	_, err = c.Nodes(t.Context())
	var unsupported *UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	assert.Len(t, f.seen(), 1+len(apis())+len(foreignVersions()))
}

func TestLazyVersion(t *testing.T) {
	f := newFake()
	f.script = []func(http.ResponseWriter) error{nil}
	c, err := New(f.config())
	require.NoError(t, err)
	assert.Empty(t, f.seen(), "New must not need the server")
	_, err = c.Nodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"GET /slurm/v0.0.45/ping/", "GET /slurm/v0.0.45/nodes/"}, f.seen())
}

// Errors that slurmrestd was seen to give, and what follows from them.
func TestErrors(t *testing.T) {
	dialErr := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	type answer = func(http.ResponseWriter) error
	text := func(status int, body string) answer {
		return func(w http.ResponseWriter) error {
			w.WriteHeader(status)
			_, err := w.Write([]byte(body))
			return err
		}
	}
	for name, tc := range map[string]struct {
		answer          answer
		reads           int // attempts for a list
		drains          int // attempts for a drain
		powerUps        int // attempts for a power_up
		transient, auth bool
		unknown         bool // of the power_up
		says            []string
	}{
		"connection refused":     {lose(dialErr), 3, 3, 3, true, false, false, []string{"http://slurmrestd:6820", "connection refused", "is slurmrestd running"}},
		"connection reset":       {lose(syscall.ECONNRESET), 3, 3, 1, true, false, true, []string{"connection reset"}},
		"no HTTP":                {lose(errors.New("malformed HTTP response")), 1, 1, 1, false, false, true, nil},
		"slurmctld down":         {reply(502, 1800, "Unable to contact slurm controller (connect failure)"), 3, 3, 3, true, false, false, []string{"Failure to do it: Unable to contact slurm controller (connect failure)", "Slurm error 1800", "HTTP 502", "is slurmctld up"}},
		"slurmctld down, at 200": {reply(200, 1800, "Unable to contact slurm controller"), 3, 3, 3, true, false, false, []string{"Unable to contact slurm controller"}},
		"slurmctld hangs":        {reply(504, 5004, "Socket timed out on send/recv operation"), 3, 3, 1, true, false, true, []string{"Socket timed out"}},
		"slurmctld hangs, 26.05": {reply(500, 1802, "Unable to contact slurm controller (receive failure)"), 3, 3, 1, true, false, true, nil},
		"backup in standby":      {reply(500, 2027, "Slurm backup controller in standby mode"), 3, 3, 3, true, false, false, nil},
		"proxy without server":   {text(503, "no upstream"), 3, 3, 3, true, false, false, []string{"no upstream", "HTTP 503"}},
		"proxy gave up":          {text(504, "gateway timeout"), 3, 3, 1, true, false, true, nil},
		"bad state, 24.11":       {reply(500, 2028, "Invalid node state specified"), 1, 1, 1, false, false, false, []string{"Invalid node state specified"}},
		"bad state, 26.05":       {reply(422, 2180, "Invalid node state transition"), 1, 1, 1, false, false, false, nil},
		"not SlurmUser":          {reply(500, 2010, "Invalid user id"), 1, 1, 1, false, true, false, []string{"Invalid user id", "use a token for SlurmUser"}},
		"bad flag":               {reply(500, 9207, "Data parser unable to parse invalid flag"), 1, 1, 1, false, false, false, nil},
		"error without a number": {reply(200, 0, "No error"), 1, 1, 1, false, false, false, nil},
		"token refused, 511":     {reply(511, 1007, "Protocol authentication error"), 1, 1, 1, false, true, false, []string{"Protocol authentication error", "AuthAltTypes=auth/jwt"}},
		"token refused, 401":     {text(401, "Authentication failure"), 1, 1, 1, false, true, false, []string{"Authentication failure", "HTTP 401"}},
		"some web server":        {text(200, "<html>hello</html>"), 1, 1, 1, false, false, true, []string{"reading its answer"}},
		"half an answer":         {text(200, `{"nodes":[`), 3, 3, 1, true, false, true, nil},
		"internal error":         {text(500, "oops"), 1, 1, 1, false, false, false, []string{"oops"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := dialFake(t, f)
				always := func() {
					f.script = nil
					for range 10 {
						f.script = append(f.script, tc.answer)
					}
					f.reset()
				}
				drain := powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateDrain, Reason: "slurmtide: test"}
				powerUp := powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StatePowerUp}

				always()
				nodes, err := c.Nodes(t.Context())
				require.Error(t, err)
				assert.Nil(t, nodes)
				assert.Len(t, f.seen(), tc.reads, "attempts to read")
				assert.Equal(t, tc.transient, IsTransient(err), "transient")
				assert.Equal(t, tc.auth, IsAuth(err), "auth")
				assert.False(t, IsUnknownOutcome(err), "a read changes nothing")
				for _, want := range append(tc.says, "list nodes") {
					require.ErrorContains(t, err, want)
				}

				always()
				err = c.UpdateNodes(t.Context(), drain)
				require.Error(t, err)
				assert.Len(t, f.seen(), tc.drains, "attempts to drain")

				always()
				err = c.UpdateNodes(t.Context(), powerUp)
				require.Error(t, err)
				assert.Len(t, f.seen(), tc.powerUps, "attempts to power up")
				assert.Equal(t, tc.unknown, IsUnknownOutcome(err), "unknown outcome")
				assert.ErrorContains(t, err, "update nodes (power_up c0)")
			})
		})
	}
}

func TestRetrySucceedsAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.nodes = nil
		c := dialFake(t, f)
		down := reply(502, 1800, "Unable to contact slurm controller (connect failure)")
		f.script = []func(http.ResponseWriter) error{down, down}
		start := time.Now()
		_, err := c.Nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 600*time.Millisecond, time.Since(start), "200 ms, then 400 ms, with the longest jitter")
	})
}

func TestRetryEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		patience time.Duration // of the caller
		answer   time.Duration // until slurmrestd has given up on slurmctld
		ask      []string
		attempts int
		took     time.Duration
	}{
		"by its own time":             {time.Minute, 0, nil, 6, 6200 * time.Millisecond},
		"with the context":            {2 * time.Second, 0, nil, 4, 2 * time.Second},
		"slurmrestd waited already":   {time.Minute, 10 * time.Second, nil, 1, 10 * time.Second},
		"and for a single node, too":  {time.Minute, 10 * time.Second, []string{"c0"}, 1, 10 * time.Second},
		"not before asking all nodes": {2 * time.Second, 0, []string{"c0"}, 5, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				cfg := f.config()
				cfg.Retries = 1000
				c, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				f.reset()
				down := reply(502, 1800, "Unable to contact slurm controller (connect failure)")
				for range 1001 {
					f.script = append(f.script, func(w http.ResponseWriter) error {
						time.Sleep(tc.answer)
						return down(w)
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
				defer cancel()
				start := time.Now()
				_, err = c.Nodes(ctx, tc.ask...)
				require.ErrorContains(t, err, "Unable to contact", "the last real error, not the context's")
				assert.Equal(t, tc.took, time.Since(start))
				assert.Len(t, f.seen(), tc.attempts)
			})
		})
	}
}

// hang never answers.
type hang struct{}

func (hang) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newFake().config()
		cfg.Transport, cfg.Retries, cfg.Timeout = hang{}, -1, 10*time.Second
		start := time.Now()
		_, err := Dial(t.Context(), cfg)
		require.ErrorContains(t, err, "no answer within 10s")
		assert.True(t, IsTransient(err))
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestListMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := f.config()
		cfg.Retries = -1
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slurm/v0.0.45/ping/" {
				return f.RoundTrip(r)
			}
			return hang{}.RoundTrip(r)
		})
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		start := time.Now()
		_, err = c.Nodes(t.Context())
		require.ErrorContains(t, err, "no answer within 1m0s")
		assert.Equal(t, 4*DefaultTimeout, time.Since(start))
	})
}

func TestSeveralErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		status   int
		body     string
		number   int
		requests int
	}{
		"the first is the cause":       {500, `{"errors":[{"error_number":9207,"error":"invalid flag","source":"#/state[0]/"},{"error_number":2028,"error":"Invalid node state"}]}`, 9207, 1},
		"numbers before none":          {500, `{"errors":[{"description":"odd"},{"error_number":2010,"error":"Invalid user id"}]}`, 2010, 1},
		"404 from Slurm is no upgrade": {404, `{"errors":[{"description":"no such thing","source":"_x"}]}`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			f.script = []func(http.ResponseWriter) error{func(w http.ResponseWriter) error {
				w.WriteHeader(tc.status)
				_, err := w.Write([]byte(tc.body))
				return err
			}}
			err := c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateResume})
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tc.number, e.Number)
			assert.Len(t, f.seen(), tc.requests)
		})
	}
}

func TestCancelledUpdateIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := dialFake(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		f.script = []func(http.ResponseWriter) error{func(http.ResponseWriter) error {
			cancel()
			return ctx.Err()
		}}
		err := c.UpdateNodes(ctx, powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StatePowerUp})
		require.ErrorIs(t, err, context.Canceled)
		assert.True(t, IsUnknownOutcome(err))
		assert.False(t, IsTransient(err))
	})
}

func TestTokenRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := f.config()
		source := &tokens{life: 10 * time.Minute, now: time.Now}
		cfg.Token = source
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		f.tokens = map[string]bool{"token1": true}
		_, err = c.Nodes(t.Context())
		require.NoError(t, err)

		time.Sleep(8*time.Minute - time.Second) // synctest's clock
		_, err = c.Nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, source.n, "kept for four fifths of its life")

		time.Sleep(time.Second)
		f.tokens = map[string]bool{"token2": true}
		f.reset()
		_, err = c.Nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, source.n)
		assert.Len(t, f.seen(), 1, "renewed without being refused first")

		f.tokens = map[string]bool{"token3": true} // the key was changed
		f.reset()
		_, err = c.Nodes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, source.n, "refused once: a new one at once")
		assert.Len(t, f.seen(), 2)

		f.tokens = map[string]bool{}
		f.reset()
		_, err = c.Nodes(t.Context())
		require.True(t, IsAuth(err), "%v", err)
		assert.Len(t, f.seen(), 2, "and no third attempt")

		source.err = errors.New("no key")
		_, err = c.Nodes(t.Context())
		require.ErrorContains(t, err, "no key")
		assert.True(t, IsAuth(err))
	})
}

func TestTokenHeader(t *testing.T) {
	var header http.Header
	f := newFake()
	record := roundTripper(func(r *http.Request) (*http.Response, error) {
		header = r.Header
		return f.RoundTrip(r)
	})
	cfg := f.config()
	cfg.Transport = record
	_, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, "secret", header.Get("X-SLURM-USER-TOKEN"))

	cfg.Token = nil
	_, err = Dial(t.Context(), cfg)
	require.NoError(t, err)
	assert.NotContains(t, header, http.CanonicalHeaderKey("X-SLURM-USER-TOKEN"), "rest_auth/local wants none")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOnRequest(t *testing.T) {
	f := newFake()
	cfg := f.config()
	got := map[string]int{}
	cfg.OnRequest = func(op, status string, _ time.Duration) { got[op+" "+status]++ }
	c, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	f.script = []func(http.ResponseWriter) error{reply(500, 2028, "Invalid node state specified"), lose(errors.New("gone")), nil}
	update := powersave.NodeUpdate{Nodes: []string{"c0"}, State: powersave.StateResume}
	require.Error(t, c.UpdateNodes(t.Context(), update))
	require.Error(t, c.UpdateNodes(t.Context(), update))
	require.NoError(t, c.UpdateNodes(t.Context(), update))
	assert.Equal(t, map[string]int{"ask for the version 200": 1, "update nodes 500": 1, "update nodes error": 1, "update nodes 200": 1}, got)
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "slurmrestd.sock")
	cfg := newFake().config()
	cfg.Server, cfg.Transport, cfg.Retries = "unix://"+socket, nil, -1

	_, err := Dial(t.Context(), cfg)
	require.ErrorContains(t, err, "slurmrestd at unix://"+socket)
	require.ErrorContains(t, err, "no such file or directory")
	require.ErrorContains(t, err, "is slurmrestd running")
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.True(t, IsTransient(err))

	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	f := newFake()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.serve(w, r); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	c, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	defer c.Close()
	nodes, err := c.Nodes(t.Context(), "g0")
	require.NoError(t, err)
	assert.Equal(t, "g0", nodes[0].Name)
}
