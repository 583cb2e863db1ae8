package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/slurmtide/slurmtide/internal/address"
	"github.com/slurmtide/slurmtide/powersave/history"
)

const (
	// mostWaiting bounds the spans that wait to be exported: about 2 KB each.
	mostWaiting = 16_384
	// flushFor bounds what the end of the bridge waits for the collector.
	flushFor = 5 * time.Second
	// warnEvery is how long nothing more is said of spans that are dropped.
	warnEvery = 10 * time.Minute
	// shownError is how much of an error is logged: collectors may answer at length.
	shownError = 300
	// shortSecret is the length of the shortest word of a header, or part of a path, that is taken for one; Bearer and Basic are none.
	shortSecret = 7
	// tracesPath is where a collector takes them, below its own address.
	tracesPath = "/v1/traces"
)

// Config says where spans go, and what they are told to come from.
type Config struct {
	Endpoint  string // from Endpoint
	Cluster   string // Slurm's ClusterName
	Namespace string
	Instance  string // tells this bridge from others
	Version   string
	Log       *slog.Logger
	Dropped   func(spans int) // is told of spans that nobody will see. It may be called from any goroutine.
	Past      []history.Entry // what an earlier bridge of this spool has seen, in order
}

// Endpoint is the URL that spans are sent to by OTLP over HTTP: base is a collector's, and what OpenTelemetry's environment variables say counts without it. Empty: nobody
// wants spans. Errors do not show URLs, in which passwords may stand.
func Endpoint(base string, getenv func(string) string) (string, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	name, value, path := "", base, tracesPath
	if value == "" {
		name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
		if value = strings.TrimSpace(getenv(name)); value != "" {
			path = ""
		} else {
			name = "OTEL_EXPORTER_OTLP_ENDPOINT"
			value = strings.TrimSpace(getenv(name))
		}
	}
	if value == "" {
		return "", nil
	}
	for _, protocol := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := getenv(protocol); p == "http/protobuf" {
			break
		} else if p != "" {
			return "", fmt.Errorf("%s is %q: spans are sent by http/protobuf alone; unset it, and name the port that the collector has for that, usually 4318", protocol, p)
		}
	}
	if name != "" {
		name += ": "
	}
	u, err := url.Parse(value)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", errors.New(name + "it must be http://host:port or https://host:port")
	case u.User != nil, u.RawQuery != "":
		return "", errors.New(name + "it must have no user, password or query: what the collector asks for stands in OTEL_EXPORTER_OTLP_HEADERS")
	}
	if path != "" {
		u = u.JoinPath(path)
	} else if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), nil
}

// hider shows errors without what may be a secret: more than the host of URLs, and the values of headers and the parts of the endpoint's path, which a collector may say back.
func hider(endpoint string, getenv func(string) string) func(error) string {
	var pairs []string
	hide := func(word string) {
		if len(word) >= shortSecret {
			pairs = append(pairs, word, "…")
		}
	}
	if u, err := url.Parse(endpoint); err == nil {
		for part := range strings.SplitSeq(strings.TrimSuffix(u.Path, tracesPath), "/") {
			hide(part)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for header := range strings.SplitSeq(getenv(name), ",") {
			_, value, _ := strings.Cut(header, "=")
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
			for word := range strings.FieldsSeq(value) {
				hide(word)
			}
		}
	}
	hidden := strings.NewReplacer(pairs...)
	return func(err error) string { return hidden.Replace(address.Hide(err.Error())) }
}

// New returns what makes spans and exports them; Run must run. Headers, TLS, compression and timeouts are those of OpenTelemetry's environment variables.
func New(ctx context.Context, c Config) (*Traces, error) {
	otel.SetLogger(logr.New(sink{c.Log})) // it writes to stderr of its own accord, header values included
	hide := hider(c.Endpoint, os.Getenv)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Debug("OpenTelemetry", "error", hide(err)) }))
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "slurmtide-bridge"), attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.Instance),
		attribute.String("slurm.cluster.name", c.Cluster), attribute.String("k8s.namespace.name", c.Namespace),
	), resource.WithFromEnv())
	if err != nil {
		c.Log.Warn("OTEL_RESOURCE_ATTRIBUTES is used in part only", "error", err)
	}
	w := &waiting{most: mostWaiting, log: c.Log, dropped: c.Dropped, hide: hide}
	batches := sdktrace.NewBatchSpanProcessor(&exporter{client, w}, sdktrace.WithMaxQueueSize(mostWaiting))
	provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(generator{}), sdktrace.WithResource(from), sdktrace.WithSpanProcessor(&queue{batches, w}))
	return newTraces(export{tracer: provider.Tracer("github.com/slurmtide/slurmtide"), provider: provider, waiting: w, flushFor: flushFor}, c.Past), nil
}

// export is the way of spans to a collector.
type export struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	waiting  *waiting
	flushFor time.Duration
}

// flush exports what is left, and nothing more.
func (e *export) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), e.flushFor)
	defer cancel()
	_ = e.provider.Shutdown(ctx)
	if left := e.waiting.number.Load(); left > 0 {
		e.waiting.lose(int(left), errors.New("the bridge ends, and the collector has not taken them"))
	}
}

// waiting counts the spans that wait to be exported, and tells of those that were dropped.
type waiting struct {
	number  atomic.Int64
	most    int64
	log     *slog.Logger
	dropped func(int)
	hide    func(error) string

	mu     sync.Mutex
	warned time.Time // when that was said last; zero: all is well
	again  time.Time // when it may be said once more
}

// lose counts spans, and says so now and then.
func (w *waiting) lose(spans int, err error) {
	w.dropped(spans)
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); !now.Before(w.again) {
		w.warned, w.again = now, now.Add(warnEvery)
		w.log.Warn("spans are dropped: the bridge goes on without, and traces will lack them", "error", fmt.Sprintf("%.*s", shownError, w.hide(err)))
	}
}

// many says that it is better to wait a moment before more are made: the collector takes them, only not as fast.
func (w *waiting) many() bool {
	if w.number.Load() <= w.most/2 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.warned.IsZero()
}

// works says that it works again.
func (w *waiting) works() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.warned.IsZero() {
		w.warned = time.Time{}
		w.log.Info("spans are exported again")
	}
}

// queue passes on no more spans than may wait, so that batches drop none without a word.
type queue struct {
	sdktrace.SpanProcessor
	*waiting
}

func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if q.number.Add(1) > q.most {
		q.number.Add(-1)
		q.lose(1, fmt.Errorf("%d wait for the collector already", q.most))
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// exporter tells what became of spans.
type exporter struct {
	sdktrace.SpanExporter
	*waiting
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.number.Add(-int64(len(spans)))
	if err != nil {
		e.lose(len(spans), err)
	} else {
		e.works()
	}
	return nil // it is dealt with
}

// sink has OpenTelemetry's own complaints logged, about environment variables most likely. What it shows beside may be a secret: only names of files are taken.
type sink struct{ log *slog.Logger }

func (sink) Init(logr.RuntimeInfo)            {}
func (sink) Enabled(int) bool                 { return false }
func (sink) Info(int, string, ...any)         {}
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }

func (s sink) Error(_ error, text string, keysAndValues ...any) {
	var file any = ""
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		if keysAndValues[i] == "file" {
			file = keysAndValues[i+1]
		}
	}
	s.log.Warn("a setting of OpenTelemetry is not used; look at the environment variables OTEL_…", "failed", text, "file", file)
}
