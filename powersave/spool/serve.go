package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of what Serve takes at once. A gate that is refused lets its job go on.
const (
	maxConns    = 5000
	maxGates    = 4096
	maxQuestion = 1 << 20         // bytes; a nodelist has at most 128 kB
	askWait     = 5 * time.Second // a client that connects must put its question within this
)

// bridgeListener is the socket and the lock that makes it ours.
type bridgeListener struct {
	*net.UnixListener
	layout
	lock *os.File
	once sync.Once
}

// Listen opens the socket of the spool in dir, which must exist (Open makes it). One
// process at a time can hold it; a socket left behind by a killed bridge is replaced.
func Listen(dir string) (net.Listener, error) {
	l := layout{dir}
	lock, err := l.lockBridge()
	if err != nil {
		return nil, err
	}
	listener, err := l.listen()
	if err != nil {
		lock.Close()
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // Close does it under the right name, while the lock is held
	return &bridgeListener{UnixListener: listener, layout: l, lock: lock}, nil
}

// Close removes the socket and gives up the lock.
func (b *bridgeListener) Close() error {
	err := net.ErrClosed
	b.once.Do(func() {
		os.Remove(b.socket())
		err = errors.Join(b.UnixListener.Close(), b.lock.Close())
	})
	return err
}

func (l layout) lockBridge() (*os.File, error) {
	f, err := os.OpenFile(l.bridgeLock(), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening bridge lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			holder, _ := io.ReadAll(io.LimitReader(f, 20))
			return nil, fmt.Errorf("another bridge (process %s) serves spool %s; stop it first", strings.TrimSpace(string(holder)), l.dir)
		}
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	// The number is only for the message above.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

func (l layout) listen() (*net.UnixListener, error) {
	address, release, err := l.socketAddress()
	if err != nil {
		return nil, err
	}
	defer release()
	switch info, err := os.Lstat(l.socket()); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("looking at bridge socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is not a socket; move it away", l.socket())
	default:
		if conn, err := net.DialTimeout("unix", address, time.Second); err == nil {
			conn.Close()
			return nil, fmt.Errorf("somebody answers on %s without holding %s; end that process first", l.socket(), l.bridgeLock())
		}
		if err := os.Remove(l.socket()); err != nil {
			return nil, fmt.Errorf("removing stale bridge socket: %w", err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", l.socket(), err)
	}
	if err := os.Chmod(l.socket(), 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("restricting bridge socket: %w", err)
	}
	return listener, nil
}

// server is one run of Serve.
type server struct {
	handler Handler
	log     *slog.Logger
	conns   atomic.Int64
	gates   atomic.Int64
	wg      sync.WaitGroup
}

// Serve answers on l until ctx is done; then it closes l, lets all gates go and returns nil.
func Serve(ctx context.Context, l net.Listener, h Handler, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{handler: h, log: log}
	defer s.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting on bridge socket: %w", err)
		case err != nil:
			// Out of file descriptors, most likely: it passes when gates end.
			log.Warn("accepting on bridge socket", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.wg.Add(1)
		s.conns.Add(1)
		go func() {
			defer s.wg.Done()
			defer s.conns.Add(-1)
			s.serve(ctx, conn)
		}()
	}
}

// serve answers one connection's question.
func (s *server) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic while answering on the bridge socket", "panic", p)
		}
	}()
	if s.conns.Load() > maxConns {
		s.answer(conn, answer{Error: "the bridge has too many connections"})
		return
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var q question
	if err := conn.SetReadDeadline(time.Now().Add(askWait)); err != nil {
		return
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&q); err != nil {
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			s.log.Debug("bad question on the bridge socket", "error", err)
			s.answer(conn, answer{Error: "bad question: " + err.Error()})
		}
		return
	}
	switch {
	case q.Op == opPoke:
		s.handler.Poked()
	case q.Op == opStatus:
		status, err := s.handler.Status(ctx)
		if err != nil {
			s.answer(conn, answer{Error: err.Error()})
			return
		}
		s.answer(conn, answer{Status: status})
	case q.Op == opExplain:
		known, err := s.handler.Explain(ctx, q.Explain)
		if err != nil {
			s.answer(conn, answer{Error: err.Error()})
			return
		}
		s.answer(conn, answer{Explain: known})
	case q.Op == opGate && q.Gate != nil:
		s.gate(ctx, conn, *q.Gate)
	default:
		s.answer(conn, answer{Error: fmt.Sprintf("unknown question %.40q", q.Op)})
	}
}

// gate holds a connection until the handler has a reply or the client goes away.
func (s *server) gate(ctx context.Context, conn net.Conn, r GateRequest) {
	defer s.gates.Add(-1)
	if s.gates.Add(1) > maxGates {
		s.answer(conn, answer{Error: "the bridge holds too many start gates"})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !r.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, r.Deadline)
		defer cancel()
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	// A client has nothing more to say: any end of its stream means it went away.
	s.wg.Go(func() {
		defer cancel()
		for buf := make([]byte, 16); ; {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	})
	reply := make(chan GateReply, 1)
	s.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic in a start gate", "job", r.JobID, "panic", p)
				reply <- GateReply{Reason: "the bridge failed"}
			}
		}()
		reply <- s.handler.Gate(ctx, r)
	})
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for s.answer(conn, answer{Waiting: true}) {
		select {
		case g := <-reply:
			s.answer(conn, answer{Gate: &g})
			return
		case <-ticker.C:
		}
	}
}

// answer writes one line and reports whether that worked.
func (s *server) answer(conn net.Conn, a answer) bool {
	if err := conn.SetWriteDeadline(time.Now().Add(askWait)); err != nil {
		return false
	}
	return json.NewEncoder(conn).Encode(a) == nil
}
