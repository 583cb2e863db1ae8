package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slurmtide/slurmtide/internal/certs"
)

// NewRegistry has what each daemon tells of its process and of Go's runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Metrics listens on the address of --metrics-address. The part it returns answers there: GET /metrics from the registry, and the routes, each
// a pattern of http.ServeMux. With a certificate it speaks TLS; whoever wants metrics, but not the routes, must show one if there is a CA for that.
func Metrics(address string, tls *certs.TLS, registry *prometheus.Registry, routes map[string]http.Handler) (part func(context.Context) error, err error) {
	mux := http.NewServeMux()
	metrics := pages(registry)
	if tls != nil {
		metrics = tls.Known(metrics)
	}
	mux.Handle("GET /metrics", metrics)
	for pattern, handler := range routes {
		mux.Handle(pattern, handler)
	}
	return serve("metrics", address, tls, mux, scrapeWait)
}

// pages answers with what the scraper understands: text, OpenMetrics, where exemplars are, or protobuf, where native histograms are, too.
func pages(registry *prometheus.Registry) http.Handler {
	return promhttp.InstrumentMetricHandler(registry, // how many have asked
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: mostScrapes, EnableOpenMetrics: true}))
}

// Each scrape has all series in memory until it is read.
const (
	mostScrapes = 10 // at once
	scrapeWait  = time.Minute
)

// Profiles does the same for --pprof-address: Go's profiles of the daemon, under /debug/pprof/. They show what is in its memory, and taking one costs time, so
// they have an address of their own, and none by default.
func Profiles(address string) (part func(context.Context) error, err error) {
	return serve("pprof", address, nil, profiles(), 0)
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// Page does the same for --page-address. It is for those whom metrics are for.
func Page(address string, tls *certs.TLS, handler http.Handler) (part func(context.Context) error, err error) {
	if tls != nil {
		handler = tls.Known(handler)
	}
	return serve("page", address, tls, handler, 0)
}

// serve listens on the address of --<what>-address. An answer that takes longer than wait is cut off; 0: the handler sees to that.
func serve(what, address string, tls *certs.TLS, handler http.Handler, wait time.Duration) (part func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w; choose another --%s-address", what, err, what)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: wait, IdleTimeout: 2 * time.Minute}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		var err error
		if tls == nil {
			err = server.Serve(listener)
		} else {
			server.TLSConfig, server.ErrorLog = tls.HTTP(), tls.ErrorLog()
			err = server.ServeTLS(listener, "", "")
		}
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving %s: %w", what, err)
		}
		return nil
	}, nil
}

// OK answers probes of what is well whenever it answers at all.
func OK(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
