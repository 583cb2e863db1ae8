package traces

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "google.golang.org/protobuf/proto"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/powersave/traces/tracestest"
	"github.com/slurmtide/slurmtide/test/leaks"
)

// patience is how long spans may take on a machine that does much else.
const patience = time.Minute

func TestEndpoint(t *testing.T) {
	type env = map[string]string
	for name, tc := range map[string]struct {
		flag      string
		env       env
		want, err string
	}{
		"nobody wants any":              {},
		"flag":                          {flag: "http://otel:4318", want: "http://otel:4318/v1/traces"},
		"with a path":                   {flag: "https://otel/tenant/", want: "https://otel/tenant/v1/traces"},
		"environment":                   {env: env{"OTEL_EXPORTER_OTLP_ENDPOINT": " http://otel:4318 "}, want: "http://otel:4318/v1/traces"},
		"environment for traces":        {env: env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo/spans"}, want: "http://tempo/spans"},
		"as it is":                      {env: env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo:4318"}, want: "http://tempo:4318/"},
		"flag and environment":          {flag: "http://otel:4318", env: env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, want: "http://otel:4318/v1/traces"},
		"OpenTelemetry is off":          {flag: "http://otel:4318", env: env{"OTEL_SDK_DISABLED": "True"}},
		"traces are off":                {env: env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318", "OTEL_TRACES_EXPORTER": "none"}},
		"protocol":                      {flag: "http://otel:4318", env: env{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, want: "http://otel:4318/v1/traces"},
		"protocol for traces":           {flag: "http://otel:4318", env: env{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, want: "http://otel:4318/v1/traces"},
		"gRPC":                          {flag: "http://otel:4317", env: env{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": spans are sent by http/protobuf alone; unset it, and name the port that the collector has for that, usually 4318`},
		"gRPC, and no traces":           {env: env{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}},
		"no URL":                        {flag: "otel:4318", err: "it must be http://host:port or https://host:port"},
		"no URL at all":                 {flag: "http://user:hunter2@ho st", err: "it must be http://host:port or https://host:port"},
		"no host":                       {env: env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http:///x"}, err: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: it must be http://host:port or https://host:port"},
		"password":                      {env: env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:hunter2@otel"}, err: "OTEL_EXPORTER_OTLP_ENDPOINT: it must have no user, password or query: what the collector asks for stands in OTEL_EXPORTER_OTLP_HEADERS"},
		"a token in the query":          {flag: "https://otel?token=hunter2", err: "it must have no user, password or query: what the collector asks for stands in OTEL_EXPORTER_OTLP_HEADERS"},
		"wrong, but nobody looks at it": {env: env{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "otel"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Endpoint(tc.flag, func(name string) string { return tc.env[name] })
			assert.Equal(t, tc.want, got)
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tc.err)
			}
		})
	}
}

// sending is a bridge's traces on their way, its log, and how many spans it has dropped.
type sending struct {
	*Traces
	log     logged
	dropped atomic.Int64
	end     func()
}

// logged is a log that is written and read at once.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func send(t *testing.T, endpoint string) *sending {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
	s := &sending{}
	traces, err := New(t.Context(), Config{Endpoint: endpoint, Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Dropped: func(n int) { s.dropped.Add(int64(n)) }})
	require.NoError(t, err)
	s.Traces = traces
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- traces.Run(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(s.end)
	return s
}

// boot has a request of so many nodes come, and none of them boot: three spans a node, and one more.
func (s *sending) boot(t *testing.T, id, nodes string) (spans int) {
	r := history.NewRecorder()
	all := list(t, nodes)
	s.Add(r.Step(noon, powersave.RequestAccepted{Request: powersave.Request{ID: id, Kind: spool.KindResume, Started: ms(-20), Nodes: all}}, nil)...)
	s.Finished(ms(2000), id)
	return 3*all.Len() + 1
}

func (s *sending) warnings() int { return strings.Count(s.log.String(), "level=WARN") }

func TestEnvironment(t *testing.T) {
	clean(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2,x-scope=tide, hunter3, hun ter4=x, y=%zzhunter5")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter6@ho st") // the flag counts
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
	t.Setenv("OTEL_SERVICE_NAME", "burst")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=other")
	c := tracestest.Start(t)
	s := send(t, c.Server.URL)
	s.boot(t, "r1", "cpu-0")
	s.end()
	require.NotEmpty(t, c.Requests())
	for _, r := range c.Requests() { // one, or more: a batch is sent every few milliseconds
		assert.Equal(t, []string{"Bearer hunter2", "tide", "gzip"}, []string{r.Header.Get("Authorization"), r.Header.Get("X-Scope"), r.Header.Get("Content-Encoding")})
	}
	assert.Len(t, c.Spans(), 4)
	assert.Equal(t, "burst", c.Resource()["service.name"])
	assert.Equal(t, "test", c.Resource()["deployment.environment.name"])
	assert.NotContains(t, s.log.String(), "hunter")
	assert.NotContains(t, s.log.String(), "hun ter")
	assert.Equal(t, 3, strings.Count(s.log.String(), `failed="parse headers"`)+strings.Count(s.log.String(), `failed="escape header value"`), s.log.String())
	assert.Contains(t, s.log.String(), `failed="read tls ca cert file" file=/nowhere/ca.pem`)
}

func TestTLS(t *testing.T) {
	clean(t)
	c := tracestest.StartTLS(t)
	c.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s := send(t, c.Server.URL)
	spans := s.boot(t, "r1", "cpu-0")
	s.end()
	assert.Empty(t, c.Spans(), "nobody knows its certificate")
	assert.EqualValues(t, spans, s.dropped.Load())
	assert.Contains(t, s.log.String(), "certificate signed by unknown authority")

	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Server.Certificate().Raw}), 0o600))
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
	s = send(t, c.Server.URL)
	s.boot(t, "r1", "cpu-0")
	s.end()
	assert.Len(t, c.Spans(), spans)
	assert.Zero(t, s.dropped.Load())

	_, err := New(t.Context(), Config{Endpoint: "http://otel:4318/v1/traces", Log: slog.New(slog.DiscardHandler)})
	require.EqualError(t, err, "OpenTelemetry: insecure HTTP endpoint cannot use TLS client configuration", "no certificate is asked for there")
}

// TestCollectorThatRefuses loses spans, counts them and says so once; later ones arrive.
func TestCollectorThatRefuses(t *testing.T) {
	partly, err := wire.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 4, ErrorMessage: "too old"}})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		say    string
	}{
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("no", 5000), http.StatusUnauthorized)
		}, "401 Unauthorized"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"takes none": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(partly)
		}, "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			c := tracestest.Start(t)
			c.Answer(tc.answer)
			s := send(t, c.Server.URL)
			spans := 0
			for _, id := range []string{"r1", "r2", "r3"} {
				spans += s.boot(t, id, "cpu-0")
				require.Eventually(t, func() bool { return s.dropped.Load() == int64(spans) }, patience, time.Millisecond, s.log.String())
			}
			assert.Equal(t, 1, s.warnings(), s.log.String())
			assert.Contains(t, s.log.String(), tc.say)
			assert.Less(t, len(s.log.String()), 1000)
			c.Answer(nil)
			for i, id := range []string{"r4", "r5"} {
				s.boot(t, id, "cpu-0")
				require.Eventually(t, func() bool { return len(c.Spans()) == 4*(i+1) && s.waiting.number.Load() == 0 }, patience, time.Millisecond)
				require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "spans are exported again") }, patience, time.Millisecond)
			}
			assert.Equal(t, 1, strings.Count(s.log.String(), "spans are exported again"))
			assert.EqualValues(t, spans, s.dropped.Load())
			c.Answer(tc.answer)
			s.boot(t, "r6", "cpu-0")
			require.Eventually(t, func() bool { return s.dropped.Load() == int64(spans+4) }, patience, time.Millisecond)
			assert.Equal(t, 1, s.warnings(), "one that comes and goes is no flood either: %s", s.log.String())
		})
	}
}

func TestCollectorThatIsAway(t *testing.T) {
	clean(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s := send(t, gone.URL)
	spans := s.boot(t, "r1", "cpu-[0-9]")
	s.end()
	assert.EqualValues(t, spans, s.dropped.Load())
	assert.Equal(t, 1, s.warnings())
	assert.Contains(t, s.log.String(), "connection refused")
}

// TestSecrets: whatever a collector does, the log shows neither the token in its address, nor what it was sent, nor where it sends on to.
func TestSecrets(t *testing.T) {
	secrets := leaks.Secrets{"path": []byte("token-in-the-path"), "header": []byte("token-in-a-header"), "elsewhere": []byte("token-of-elsewhere")}
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		say    string
	}{
		"says it back": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "nobody knows "+r.Header.Get("Authorization")+" of http://"+r.Host+r.URL.Path, http.StatusForbidden)
		}, "failed to send to http://127.0.0.1:"},
		"busy": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "later, "+r.Header.Get("Authorization"), http.StatusServiceUnavailable)
		}, "later, Bearer …"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"sends on": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, away.URL+"/token-of-elsewhere?token=token-of-elsewhere", http.StatusTemporaryRedirect)
		}, "connection refused"},
		"sends on to nowhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://user:token-of-elsewhere@ho st/", http.StatusTemporaryRedirect)
		}, "invalid character"},
		"is away": {nil, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token-in-a-header")
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "300") // ms, repetitions included
			c := tracestest.Start(t)
			base := c.Server.URL
			if c.Answer(tc.answer); tc.answer == nil {
				base = away.URL
			}
			endpoint, err := Endpoint(base+"/token-in-the-path", os.Getenv)
			require.NoError(t, err)
			s := send(t, endpoint)
			spans := s.boot(t, "r1", "cpu-0")
			require.Eventually(t, func() bool { return s.dropped.Load() == int64(spans) }, patience, time.Millisecond)
			s.end()
			assert.Contains(t, s.log.String(), tc.say)
			assert.Empty(t, secrets.In(s.log.String()), s.log.String())
		})
	}
}

// TestCollectorThatHangs holds up nothing: what is over the queue is dropped, and the end waits for the collector no longer than it may.
func TestCollectorThatHangs(t *testing.T) {
	clean(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "120000") // ms: while it has not failed, there is hope
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "120000")
	c := tracestest.Start(t)
	release := make(chan struct{})
	c.Answer(func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	s := send(t, c.Server.URL)
	s.flushFor, s.waiting.most = 300*time.Millisecond, 1000
	began := time.Now()
	s.boot(t, "r0", "cpu-0")
	require.Eventually(t, func() bool { return len(c.Requests()) == 1 }, patience, time.Millisecond)
	spans := 4 + s.boot(t, "r1", "cpu-[0-999]")
	assert.Less(t, time.Since(began), 8*time.Second, "nobody waits")
	require.Eventually(t, func() bool { return s.dropped.Load() == int64(spans-1000) }, patience, time.Millisecond, "what is over the queue")
	ending := time.Now()
	s.end()
	assert.Less(t, time.Since(ending), 5*time.Second)
	assert.EqualValues(t, spans, s.dropped.Load(), "all are counted")
	assert.Equal(t, 1, s.warnings(), s.log.String())
	assert.Empty(t, c.Spans())
}

// TestMany: it is better to wait a moment while there is hope that the collector takes what waits, and not longer.
func TestMany(t *testing.T) {
	w := waiting{most: 10, log: slog.New(slog.DiscardHandler), dropped: func(int) {}, hide: error.Error}
	w.number.Store(5)
	assert.False(t, w.many())
	w.number.Store(6)
	assert.True(t, w.many())
	w.lose(1, errors.New("refused"))
	assert.False(t, w.many())
	w.works()
	assert.True(t, w.many())
}

// TestManyAtOnce has more boots end together than may wait: a collector that takes them gets all.
func TestManyAtOnce(t *testing.T) {
	clean(t)
	c := tracestest.Start(t)
	s := send(t, c.Server.URL)
	s.waiting.most = 1000
	spans := s.boot(t, "r1", "cpu-[0-1999]")
	assert.Eventually(t, func() bool { return len(c.Spans()) == spans }, patience, 10*time.Millisecond)
	require.Zero(t, s.dropped.Load(), "%d of %d came: %s", len(c.Spans()), spans, s.log.String())
	require.Len(t, c.Spans(), spans)
	assert.Greater(t, len(c.Requests()), 10)

	// The bridge ends without waiting for that.
	s = send(t, c.Server.URL)
	s.waiting.most = 100
	spans += s.boot(t, "r2", "cpu-[0-9999]")
	ending := time.Now()
	s.end()
	assert.Less(t, time.Since(ending), 5*time.Second)
	assert.Equal(t, spans, len(c.Spans())+int(s.dropped.Load()))
}
