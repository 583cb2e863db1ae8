package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry has what each daemon tells of its process and of Go's runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Metrics listens on the address of --metrics-address. The part it returns answers there: GET /metrics from the registry, and the routes, each
// a pattern of http.ServeMux.
func Metrics(address string, registry *prometheus.Registry, routes map[string]http.Handler) (part func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w; choose another --metrics-address", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	for pattern, handler := range routes {
		mux.Handle(pattern, handler)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics: %w", err)
		}
		return nil
	}, nil
}

// OK answers probes of what is well whenever it answers at all.
func OK(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
