package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunAll(t *testing.T) {
	broken := errors.New("broken")
	patient := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	slow := func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return nil }
	failing := func(context.Context) error { time.Sleep(time.Minute); return broken }
	failingLate := func(ctx context.Context) error { <-ctx.Done(); return errors.New("too late") }
	for name, tc := range map[string]struct {
		parts []func(context.Context) error
		after time.Duration
		want  []string // in the error; none: no error
	}{
		"told to end":            {[]func(context.Context) error{patient, slow}, time.Hour + time.Second, nil},
		"one fails":              {[]func(context.Context) error{patient, failing, slow}, time.Minute + time.Second, []string{"broken"}},
		"one ends":               {[]func(context.Context) error{patient, func(context.Context) error { return nil }}, 0, nil},
		"another fails thereby":  {[]func(context.Context) error{failing, failingLate}, time.Minute, []string{"broken", "too late"}},
		"a client's own timeout": {[]func(context.Context) error{patient, func(context.Context) error { return context.Canceled }}, 0, []string{"context canceled"}},
		"nothing to run":         {nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(time.Hour, cancel).Stop()
				defer cancel()
				start := time.Now()
				err := RunAll(ctx, tc.parts)
				assert.Equal(t, tc.after, time.Since(start), "it waits for all")
				if tc.want == nil {
					require.NoError(t, err)
				}
				for _, want := range tc.want {
					require.ErrorContains(t, err, want)
				}
			})
		})
	}
}

func TestLogger(t *testing.T) {
	for _, format := range []string{"text", "JSON"} {
		var b bytes.Buffer
		log, err := NewLogger(&b, "warn", format)
		require.NoError(t, err)
		log.Info("quiet")
		log.Warn("loud")
		assert.NotContains(t, b.String(), "quiet")
		assert.Contains(t, b.String(), "loud")
	}
	_, err := NewLogger(nil, "loud", "text")
	require.EqualError(t, err, `unknown log level "loud": use debug, info, warn or error`)
	_, err = NewLogger(nil, "info", "xml")
	require.EqualError(t, err, `unknown log format "xml": use text or json`)
}

func TestKubernetes(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := Kubernetes("")
	require.ErrorContains(t, err, "finding Kubernetes: ")
	require.ErrorContains(t, err, "; outside a cluster, give --kubeconfig")
	file := filepath.Join(t.TempDir(), "config")
	_, err = Kubernetes(file)
	require.ErrorContains(t, err, "reading kubeconfig "+file)
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":"https://k:6443"}}]}`), 0o600))
	cfg, err := Kubernetes(file)
	require.NoError(t, err)
	assert.Equal(t, "https://k:6443", cfg.Host)
}
