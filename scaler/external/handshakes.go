package external

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/slurmtide/slurmtide/internal/certs"
)

// handshakes tells of handshakes that fail: whoever connects often hides why.
type handshakes struct {
	credentials.TransportCredentials
	tls *certs.TLS
	log *slog.Logger
}

func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // TCP probes hang up
		attrs := []any{"client", conn.RemoteAddr().String(), "error", err}
		if why := h.tls.Expired(); why != "" {
			attrs = append(attrs, "reason", why)
		}
		h.log.Log(context.Background(), slog.LevelWarn, "TLS handshake failed", attrs...)
	}
	return c, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.tls, h.log}
}
