package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/slurmtide/slurmtide/internal/certs"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

// MaxMessage is the most bytes a request may have. Metadata take a few hundred.
const MaxMessage = 64 << 10

const (
	// connectionAge makes clients connect again, and so show certificates that are still good. Streams live on.
	connectionAge = time.Hour
	stopWithin    = 3 * time.Second
)

// Options of Serve.
type Options struct {
	TLS     *certs.TLS // nil: none
	Metrics *Metrics   // nil: counts nothing
	Log     *slog.Logger
}

// Serve answers on the listener until ctx is done, with health service and reflection.
func (s *Service) Serve(ctx context.Context, listener net.Listener, o Options) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: connectionAge, Time: time.Minute}),
		// Clients in between may ping often; KEDA does not.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(o.unary),
		grpc.ChainStreamInterceptor(o.stream),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(handshakes{credentials.NewTLS(o.TLS.Config()), o.TLS, o.Log}))
	}
	server := grpc.NewServer(options...)
	pb.RegisterExternalScalerServer(server, s)
	ready := health.NewServer()
	healthpb.RegisterHealthServer(server, ready)
	reflection.Register(server)
	go s.health(ctx, ready)

	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.Close()
		ready.Shutdown()
		hard := time.AfterFunc(stopWithin, server.Stop)
		defer hard.Stop()
		server.GracefulStop()
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		return fmt.Errorf("serving KEDA: %w", err)
	}
	return nil
}

// Ready reports whether the figures of any cluster can be given.
func (s *Service) Ready() error {
	var all error
	for _, name := range s.names {
		_, err := s.clusters[name].Latest()
		if err == nil {
			return nil
		}
		all = errors.Join(all, fmt.Errorf("cluster %s: %w", name, err))
	}
	return all
}

// health keeps the health service's word for our service; that for the whole server, "", is always SERVING, since errors
// have to be answered, too.
func (s *Service) health(ctx context.Context, h *health.Server) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		state := healthpb.HealthCheckResponse_SERVING
		if s.Ready() != nil {
			state = healthpb.HealthCheckResponse_NOT_SERVING
		}
		h.SetServingStatus(pb.ExternalScaler_ServiceDesc.ServiceName, state)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (o Options) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	answer, err := handler(ctx, req)
	o.done(info.FullMethod, start, err)
	return answer, err
}

func (o Options) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(srv, stream)
	o.done(info.FullMethod, time.Time{}, err)
	return err
}
