package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/kube/groups"
)

func TestUnread(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	type answer struct {
		verb string
		err  error
	}
	for name, test := range map[string]struct {
		answers []answer
		want    bool
		news    bool // of the last one
	}{
		"nothing yet":             {},
		"all is well":             {[]answer{{"list", nil}, {"watch", nil}}, false, false},
		"neither":                 {[]answer{{"watch", no}, {"list", no}}, true, true},
		"as before":               {[]answer{{"watch", no}, {"list", no}, {"watch", no}}, true, false},
		"another error":           {[]answer{{"watch", no}, {"watch", context.DeadlineExceeded}}, true, false},
		"given, by watch alone":   {[]answer{{"watch", no}, {"list", no}, {"watch", nil}}, false, true},
		"given, list and watch":   {[]answer{{"list", no}, {"list", nil}, {"watch", nil}}, false, false},
		"list alone is of no use": {[]answer{{"watch", no}, {"list", nil}}, true, false},
		"watch alone is enough":   {[]answer{{"list", no}, {"watch", nil}}, false, true},
		"taken away":              {[]answer{{"watch", nil}, {"watch", no}}, true, true},
	} {
		var u unread
		var news bool
		for _, a := range test.answers {
			news = u.note(a.verb, a.err)
		}
		assert.Equal(t, test.want, u.is(), name)
		assert.Equal(t, test.news, news, name)
	}
}

// As an API server has it: a right that is given later is found out by the watch, which streams all hosts, and nobody lists them again.
func TestUnreadUntilAllowed(t *testing.T) {
	var allowed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !allowed.Load() {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		assert.Equal(t, "true", r.URL.Query().Get("sendInitialEvents"), "it lists")
		fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}
`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	kube, err := groups.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	l := newLoop(kube, tidefake.NewSimpleClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Settings: settings})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.hosts.RunWithContext(ctx) }()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return l.unread.is() }, time.Minute, 10*time.Millisecond)
	allowed.Store(true)
	require.Eventually(t, func() bool { return l.hosts.HasSynced() }, time.Minute, 10*time.Millisecond)
	assert.False(t, l.unread.is())
	assert.Len(t, l.hosts.GetStore().List(), 1)
}

// While something cannot be read nothing is done, and the log says what it is.
func TestUnreadKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &clitest.Log{}
		l := newLoop(fake.NewClientset(), tidefake.NewSimpleClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Settings: settings, Log: slog.New(slog.NewTextHandler(log, nil))})
		defer l.queue.ShutDown()
		l.synced["Lease"] = func() bool { return false }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(readsWithin + time.Minute)
		cancel()
		require.NoError(t, <-done)
		assert.Equal(t, 1, strings.Count(log.String(), "waiting for objects to be read"))
		assert.Contains(t, log.String(), "kinds=[Lease]")
		assert.NotContains(t, log.String(), "control plane runs")
	})
}
