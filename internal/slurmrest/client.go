package slurmrest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/internal/address"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
)

// Defaults of Config.
const (
	// DefaultTimeout leaves slurmrestd the 10 s it needs to find out, and say, that slurmctld does not answer.
	DefaultTimeout = 15 * time.Second
	// DefaultRetries bounds the repetitions of one call after transient failures.
	DefaultRetries = 2

	// retryFor ends repetitions by time: slurmrestd tries to reach slurmctld for 10 s before
	// it says that it cannot, and after that the caller should know.
	retryFor  = 5 * time.Second
	retryBase = 200 * time.Millisecond
)

// Config says where slurmrestd is and how to speak to it.
type Config struct {
	// Server is http://host:6820, https://host:6820 or unix:///path/slurmrestd.sock.
	Server string
	// Token authenticates each request. Nil sends none, which rest_auth/local accepts on a unix socket.
	Token TokenSource
	// Timeout bounds one request, its answer included; DefaultTimeout if 0. The list of all
	// nodes gets four times as long: slurmrestd needs several seconds for 10,000 of them.
	Timeout time.Duration
	// Retries bounds the repetitions after transient failures: DefaultRetries if 0, none if
	// negative. There are none either once a call has taken 5 s.
	Retries int
	// Log is slog.Default() if nil.
	Log *slog.Logger
	// TLS is used with https; nil means the host's certificates.
	TLS *tls.Config
	// Now is time.Now if nil.
	Now func() time.Time
	// Jitter gives numbers in [0,1) that spread retries; math/rand if nil.
	Jitter func() float64
	// Transport replaces the network, for tests.
	Transport http.RoundTripper
	// OnRequest is told of every HTTP request: what for, its HTTP status or "error", and how long it took.
	OnRequest func(op, status string, d time.Duration)
}

// Client speaks to one slurmrestd. It is safe for concurrent use.
type Client struct {
	cfg    Config
	base   string // what generated request builders take; ends in /
	where  string // what messages show
	http   *http.Client
	tokens tokenCache
	known  []*api

	cutLists sync.Once // the log has said that there are some

	mu        sync.Mutex
	api       *api // nil until negotiated
	release   string
	total     int // nodes in the last complete list
	totalJobs int
}

// New checks cfg and returns a client that asks the server for its version with the first call.
func New(cfg Config) (*Client, error) {
	base, socket, err := parseServer(cfg.Server)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	switch {
	case cfg.Retries == 0:
		cfg.Retries = DefaultRetries
	case cfg.Retries < 0:
		cfg.Retries = 0
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Transport == nil {
		dialer := &net.Dialer{Timeout: min(cfg.Timeout, 5*time.Second)}
		// No proxy: the socket has none, and slurmrestd is the cluster's own neighbour.
		cfg.Transport = &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if socket != "" {
					network, address = "unix", socket
				}
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig:     cfg.TLS,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     time.Minute,
		}
	}
	return &Client{
		cfg:    cfg,
		base:   base,
		where:  cfg.Server,
		http:   &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		tokens: tokenCache{source: cfg.Token, now: cfg.Now},
		known:  apis(),
	}, nil
}

// Dial is New, and asks the server for its version at once. Its error is an
// *UnsupportedError, IsAuth or IsTransient.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := c.negotiated(ctx, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// parseServer returns the base URL for requests and the unix socket's path, if it is one.
func parseServer(server string) (base, socket string, err error) {
	bad := func(why string) error {
		return fmt.Errorf("slurmrestd address %s: %s; write http://host:6820, https://host:6820 or unix:///path/slurmrestd.sock", address.Quoted(server), why)
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return "", "", bad("it is not a URL")
	case u.Scheme == "unix":
		path := u.Path
		if path == "" {
			path = u.Opaque // unix:path, as slurmrestd itself spells it
		}
		if u.Host != "" || !strings.HasPrefix(path, "/") {
			return "", "", bad("the socket's path is not absolute")
		}
		return "http://localhost/", path, nil
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "", bad("it has no scheme")
	case u.Host == "":
		return "", "", bad("it has no host")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", bad("only scheme, host, port and path are allowed")
	}
	return strings.TrimSuffix(server, "/") + "/", "", nil
}

// Version returns the data_parser version in use ("v0.0.45") and the Slurm
// release of the last answer ("26.05.5"); both are empty before the first.
func (c *Client) Version() (dataParser, release string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		dataParser = c.api.version
	}
	return dataParser, c.release
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one question to slurmrestd.
type call struct {
	op     string // a fixed set of words, for metrics
	detail string // what it is about, for messages
	// build picks the request from the version in use; nil means that this version does not have it.
	build func(*api) request
	// repeatable: doing it twice is the same as doing it once.
	repeatable bool
	// single: one attempt is enough, the caller has another way.
	single bool
	// long: the answer is big.
	long bool
	// read consumes a good answer's body. It must start afresh each time it is called.
	read func(io.Reader) (answer.Envelope, error)
	// unchanged is called instead of read if the answer is "Not Modified"; nil takes that for a failure.
	unchanged func()
}

// notOfferedError means that the version in use does not have the call.
type notOfferedError struct{ op, version string }

func (e notOfferedError) Error() string {
	return fmt.Sprintf("%s: not offered by slurmrestd's %s", e.op, e.version)
}

// NotOffered is for callers that do not import this package.
func (notOfferedError) NotOffered() bool { return true }

// do negotiates if needed, and repeats the call as its fate allows.
func (c *Client) do(ctx context.Context, q call) error {
	a, err := c.negotiated(ctx, nil)
	if err != nil {
		return err
	}
	err = c.withRetries(ctx, a, q)
	var e *Error
	if errors.As(err, &e) && e.unknownURL {
		// The server has changed under us and does not know this version's URLs any more.
		if a, err = c.negotiated(ctx, a); err != nil {
			return err
		}
		err = c.withRetries(ctx, a, q)
	}
	if errors.As(err, &e) && !q.repeatable {
		e.Unknown = e.fate == uncertain || e.fate == broken
	}
	return err
}

func (c *Client) withRetries(ctx context.Context, a *api, q call) error {
	build := q.build(a)
	if build == nil {
		return notOfferedError{q.op, a.version}
	}
	start, wait := c.cfg.Now(), retryBase
	var refusedBy *Error // the answer to the token before this one
	var refusedToken string
	for attempt := 0; ; {
		token, err := c.token(ctx, refusedToken)
		if err != nil {
			return fmt.Errorf("%s: %w", q.op, err)
		}
		if refusedBy != nil && token == refusedToken {
			return refusedBy // the source has no other
		}
		e := c.once(ctx, q, build, token)
		switch {
		case e == nil:
			return nil
		case e.fate == badToken && refusedBy == nil && token != "":
			c.cfg.Log.Info("slurm token refused, getting a new one", "error", e)
			refusedBy, refusedToken = e, token
			continue
		case q.single:
			return e
		case e.fate == unsent, e.fate == uncertain && q.repeatable:
		default:
			return e
		}
		if attempt++; attempt > c.cfg.Retries || ctx.Err() != nil || c.cfg.Now().Sub(start) >= retryFor {
			return e
		}
		pause := time.Duration(float64(wait) * (0.5 + c.cfg.Jitter()/2))
		c.cfg.Log.Debug("slurmrestd call failed, trying again", "op", q.op, "error", e, "in", pause)
		if !sleep(ctx, pause) {
			return e
		}
		wait *= 2
	}
}

// token gets a token; making one may run a program that hangs with slurmctld.
func (c *Client) token(ctx context.Context, refused string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.tokens.get(ctx, refused)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once sends the request one time.
func (c *Client) once(ctx context.Context, q call, build request, token string) *Error {
	timeout := c.cfg.Timeout
	if q.long {
		timeout *= 4
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, timeout)
	defer cancel()
	req, err := build(c.base)
	if err != nil {
		return c.fail(q, &Error{cause: fmt.Errorf("building the request: %w", err)})
	}
	req = req.WithContext(ctx)
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	start := c.cfg.Now()
	status := "error"
	if c.cfg.OnRequest != nil {
		defer func() { c.cfg.OnRequest(q.op, status, c.cfg.Now().Sub(start)) }()
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // its text repeats method and URL
		}
		if errors.Is(err, context.DeadlineExceeded) && caller.Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", timeout, err)
		}
		return c.fail(q, (&Error{}).classifyTransport(err))
	}
	defer func() {
		// What is left, a newline perhaps, has to be read for the connection to be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, 4096)
		resp.Body.Close()
	}()
	status = resp.Status[:min(3, len(resp.Status))]

	if resp.StatusCode == http.StatusNotModified && q.unchanged != nil {
		q.unchanged()
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		env, text := answer.DecodeFailure(resp.Body)
		e := &Error{HTTPStatus: resp.StatusCode, Description: clip(address.Hide(text), 200)}
		e.fill(env.Errors)
		return c.fail(q, e.classify())
	}
	env, err := q.read(resp.Body)
	for _, w := range env.Warnings {
		c.cfg.Log.Debug("slurmrestd warns", "op", q.op, "warning", w.Description, "source", w.Source)
	}
	if len(env.Errors) > 0 {
		e := &Error{HTTPStatus: resp.StatusCode}
		e.fill(env.Errors)
		return c.fail(q, e.classify())
	}
	if err != nil {
		e := (&Error{HTTPStatus: resp.StatusCode}).classifyTransport(err)
		e.cause = fmt.Errorf("reading its answer: %w", err)
		return c.fail(q, e)
	}
	if env.Meta.Slurm.Release != "" {
		c.mu.Lock()
		c.release = env.Meta.Slurm.Release
		c.mu.Unlock()
	}
	return nil
}

// fill takes the first error with a number; later ones are mostly its consequences.
func (e *Error) fill(errs []answer.Problem) {
	if len(errs) == 0 {
		return
	}
	w := errs[0]
	for _, other := range errs {
		if w.Number == 0 && other.Number != 0 {
			w = other
		}
	}
	e.Number, e.Name, e.Description, e.Source = w.Number, w.Name, w.Description, w.Source
}

func (c *Client) fail(q call, e *Error) *Error {
	e.Op, e.Server = q.op, c.where
	if q.detail != "" {
		e.Op += " (" + q.detail + ")"
	}
	return e
}

// negotiated returns the version in use. If there is none, or it is stale, the server is asked.
func (c *Client) negotiated(ctx context.Context, stale *api) (*api, error) {
	c.mu.Lock()
	current := c.api
	c.mu.Unlock()
	if current != nil && current != stale {
		return current, nil
	}
	var last *Error
	for _, a := range c.known {
		err := c.withRetries(ctx, a, call{op: "ask for the version", build: func(a *api) request { return a.ping }, repeatable: true, read: answer.DecodeEnvelope})
		if err == nil {
			c.mu.Lock()
			c.api = a
			release := c.release
			c.mu.Unlock()
			c.cfg.Log.Info("connected to slurmrestd", "server", c.where, "slurm", release, "data_parser", a.version)
			return a, nil
		}
		if !errors.As(err, &last) || !last.unknownURL {
			return nil, err
		}
	}
	unsupported := &UnsupportedError{Server: c.where, Answer: last.Description}
	for _, version := range foreignVersions() {
		if release := c.releaseOf(ctx, version); release != "" {
			unsupported.Release = release
			break
		}
	}
	return nil, unsupported
}

// releaseOf asks a version this program does not know for the Slurm release; "" if it does not answer.
func (c *Client) releaseOf(ctx context.Context, version string) string {
	var release string
	_ = c.withRetries(ctx, nil, call{
		op: "ask for the version",
		build: func(*api) request {
			return func(server string) (*http.Request, error) {
				return http.NewRequest(http.MethodGet, server+"slurm/"+version+"/ping/", nil)
			}
		},
		repeatable: true,
		read: func(body io.Reader) (answer.Envelope, error) {
			env, err := answer.DecodeEnvelope(body)
			release = env.Meta.Slurm.Release
			return env, err
		},
	})
	return release
}
