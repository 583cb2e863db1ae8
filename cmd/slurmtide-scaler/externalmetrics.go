package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/kube/aggregated"
	"github.com/slurmtide/slurmtide/kube/groups"
	"github.com/slurmtide/slurmtide/scaler/external"
	"github.com/slurmtide/slurmtide/scaler/metricsapi"
)

// serveExternalMetrics adds the API for plain HPAs.
func (s *setup) serveExternalMetrics(address string, service *external.Service, certs *certs.TLS) error {
	if err := s.reachKubernetes(); err != nil {
		return err
	}
	kube, err := groups.New(s.kube)
	if err != nil {
		return fmt.Errorf("serving external metrics: %w", err)
	}
	front := aggregated.New(kube, metricsapi.Group)
	server := &http.Server{
		Handler: metricsapi.New(service, front, front, s.log), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// Certificates of clients are checked with each request: the CA may change.
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, GetCertificate: certs.Certificate},
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serving external metrics: %w; choose another --external-metrics", err)
	}
	s.parts = append(s.parts, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving external metrics: %w", err)
		}
		return nil
	})
	return nil
}
