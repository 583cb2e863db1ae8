// Package tracestest is an OpenTelemetry collector for tests: it takes spans by OTLP over HTTP, and shows them.
package tracestest

import (
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	proto "go.opentelemetry.io/proto/otlp/trace/v1"
	wire "google.golang.org/protobuf/proto"
)

// Span is one that was taken.
type Span struct {
	Trace, ID, Parent, Name string
	Start, End              time.Time
	Attributes              map[string]string
	Error                   string // its status; empty: not an error
}

// Collector takes spans.
type Collector struct {
	t      testing.TB
	Server *httptest.Server

	mu       sync.Mutex
	answer   http.Handler
	requests []*http.Request
	spans    []Span
	resource map[string]string
}

// Start returns a collector that listens until the test ends.
func Start(t testing.TB) *Collector { return start(t, httptest.NewServer) }

// StartTLS does the same with a certificate that nobody knows.
func StartTLS(t testing.TB) *Collector { return start(t, httptest.NewTLSServer) }

func start(t testing.TB, serve func(http.Handler) *httptest.Server) *Collector {
	c := &Collector{t: t}
	c.Server = serve(http.HandlerFunc(c.serve))
	t.Cleanup(c.Server.Close)
	return c
}

// Answer has the collector answer so, and take nothing; nil: it takes spans again.
func (c *Collector) Answer(h http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer = nil; h != nil {
		c.answer = h
	}
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests = append(c.requests, r)
	answer := c.answer
	c.mu.Unlock()
	if answer != nil {
		answer.ServeHTTP(w, r)
		return
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if !assert.NoError(c.t, err) {
			return
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	assert.NoError(c.t, err)
	var sent collector.ExportTraceServiceRequest
	assert.NoError(c.t, wire.Unmarshal(raw, &sent))
	assert.Equal(c.t, "application/x-protobuf", r.Header.Get("Content-Type"))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range sent.ResourceSpans {
		c.resource = texts(from.Resource.Attributes)
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span(s))
			}
		}
	}
}

func span(s *proto.Span) Span {
	out := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)).UTC(), End: time.Unix(0, int64(s.EndTimeUnixNano)).UTC(), Attributes: texts(s.Attributes),
	}
	if s.Status.GetCode() == proto.Status_STATUS_CODE_ERROR {
		out.Error = cmp.Or(s.Status.Message, "error")
	}
	return out
}

func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_ArrayValue:
			var values []string
			for _, v := range v.ArrayValue.Values {
				values = append(values, fmt.Sprint(v.GetIntValue()))
			}
			all[a.Key] = strings.Join(values, ",")
		default:
			all[a.Key] = fmt.Sprint(v)
		}
	}
	return all
}

// Spans are those that were taken, by their start.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := slices.Clone(c.spans)
	slices.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return spans
}

// Resource is what the newest spans came from.
func (c *Collector) Resource() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.resource)
}

// Requests are those that came, also when they were not answered.
func (c *Collector) Requests() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Text shows the spans as trees, with times in seconds after from.
func (c *Collector) Text(from time.Time) string {
	spans := c.Spans()
	var out strings.Builder
	var show func(parent, indent string)
	show = func(parent, indent string) {
		for _, s := range spans {
			if s.Parent != parent {
				continue
			}
			fmt.Fprintf(&out, "%s%s %.3f-%.3f", indent, s.Name, s.Start.Sub(from).Seconds(), s.End.Sub(from).Seconds())
			if s.Error != "" {
				fmt.Fprintf(&out, " ERROR %q", s.Error)
			}
			for _, key := range slices.Sorted(maps.Keys(s.Attributes)) {
				fmt.Fprintf(&out, " %s=%q", key, s.Attributes[key])
			}
			out.WriteString("\n")
			show(s.ID, indent+"  ")
		}
	}
	show("", "")
	return out.String()
}
