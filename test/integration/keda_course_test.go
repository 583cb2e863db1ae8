//go:build integration && keda

package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// kedaPatience is how long a change of scale may take: the HorizontalPodAutoscaler's stabilization and period, and cooldownPeriod,
// twice over, since the machine may be busy.
const kedaPatience = 3 * time.Minute

// course is how a NodeSet's scale changed while a test watched it.
type course struct {
	c     *cluster
	began time.Time
	mu    sync.Mutex
	steps []courseStep
}

type courseStep struct {
	after               time.Duration
	replicas, up, ready int32
}

func (s courseStep) String() string {
	return fmt.Sprintf("%.1fs replicas=%d up=%d ready=%d", s.after.Seconds(), s.replicas, s.up, s.ready)
}

// follow watches the NodeSet of the examples until the test ends.
func (c *cluster) follow() *course {
	c.t.Helper()
	k := &course{c: c, began: time.Now()}
	w, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Watch(c.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", "cpu").String(),
	})
	require.NoError(c.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			n, ok := event.Object.(*v1alpha1.NodeSet)
			if !ok {
				continue
			}
			s := courseStep{time.Since(k.began), 0, n.Status.PoweredUp, n.Status.Ready}
			if n.Spec.Replicas != nil {
				s.replicas = *n.Spec.Replicas
			}
			k.mu.Lock()
			if last := k.lastLocked(); len(k.steps) == 0 || s.replicas != last.replicas || s.up != last.up || s.ready != last.ready {
				k.steps = append(k.steps, s)
			}
			k.mu.Unlock()
		}
	}()
	t := c.t
	t.Cleanup(func() {
		w.Stop()
		<-done
		t.Logf("course: %s", k)
	})
	return k
}

func (k *course) lastLocked() (s courseStep) {
	if len(k.steps) > 0 {
		s = k.steps[len(k.steps)-1]
	}
	return s
}

func (k *course) last() courseStep {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastLocked()
}

func (k *course) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	words := make([]string, len(k.steps))
	for i, s := range k.steps {
		words[i] = s.String()
	}
	return strings.Join(words, "; ")
}

// most is the largest number of nodes that were up at once.
func (k *course) most() (n int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.steps {
		n = max(n, s.up)
	}
	return n
}

// reaches waits until spec.replicas is n.
func (k *course) reaches(n int32) {
	k.c.t.Helper()
	k.c.within(kedaPatience, 100*time.Millisecond, fmt.Sprintf("replicas %d", n), func() (bool, string) {
		return k.last().replicas == n, k.String()
	})
}

// powersUp waits until spec.replicas is n, and as many nodes serve.
func (k *course) powersUp(n int32) {
	k.c.t.Helper()
	k.c.within(kedaPatience, 100*time.Millisecond, fmt.Sprintf("replicas %d, and as many nodes ready", n), func() (bool, string) {
		s := k.last()
		return s.replicas == n && s.ready >= n, k.String()
	})
}

// took is when spec.replicas was n, or more, for the first time.
func (k *course) took(n int32) time.Duration {
	k.c.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.steps {
		if s.replicas >= n {
			return s.after
		}
	}
	require.FailNow(k.c.t, "replicas never reached the number", "%d", n)
	return 0
}

// stays sees to it that spec.replicas does not change for a while, and that so many nodes are up.
func (k *course) stays(d time.Duration) {
	k.c.t.Helper()
	n := k.last().replicas
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		s := k.last()
		require.True(k.c.t, s.replicas == n && s.up >= n, "%d nodes were to stay: %s", n, k)
	}
}

// kedaFigure is one of what is written to out/e2e-keda.json.
type kedaFigure struct {
	What    string  `json:"what"`
	Slurm   string  `json:"slurm"`
	Seconds float64 `json:"seconds"`
	Limit   float64 `json:"limit"` // what is promised on a machine that has nothing else to do
}

// kedaFigure keeps a figure, and fails above its limit. SLACK is what a machine that is not idle may take longer ("30s").
func (c *cluster) kedaFigure(what, version string, took, limit time.Duration) {
	c.t.Helper()
	c.t.Logf("FIGURE %s, Slurm %s: %.1f s (limit %.0f s)", what, version, took.Seconds(), limit.Seconds())
	slack, err := time.ParseDuration(cmp.Or(os.Getenv("SLACK"), "0s"))
	require.NoError(c.t, err, "SLACK")
	assert.LessOrEqual(c.t, took, limit+slack, "%s", what)
	path := filepath.Join("..", "..", "out", "e2e-keda.json")
	var all []kedaFigure
	if b, err := os.ReadFile(path); err == nil {
		require.NoError(c.t, json.Unmarshal(b, &all), "%s is broken: remove it", path)
	}
	add := kedaFigure{what, version, took.Round(100 * time.Millisecond).Seconds(), limit.Seconds()}
	replaced := false
	for i := range all {
		if all[i].What == what && all[i].Slurm == version {
			all[i], replaced = add, true
		}
	}
	if !replaced {
		all = append(all, add)
	}
	b, err := json.MarshalIndent(all, "", "  ")
	require.NoError(c.t, err)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, append(b, '\n'), 0o644))
}
