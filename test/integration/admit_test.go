//go:build integration

package integration

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// admission lets stacks of parallel tests up. How many a machine can keep up with nobody knows before: with one too many, all of them miss
// what they wait for, and none is done sooner.
var admission struct {
	sync.Mutex
	up   int
	last time.Time // when one was let up
}

// admit waits while the machine has more to do than it can, but lets a few up whatever it has to do.
func admit(t *testing.T) {
	t.Helper()
	const few, pause, apart = 3, time.Second, 15 * time.Second
	most := 8 * float64(runtime.NumCPU())
	began := time.Now()
	for {
		load := loadAverage(t) // which takes a while to show the last one
		admission.Lock()
		if admission.up < few || load < most/2 || load < most && time.Since(admission.last) > apart {
			break
		}
		admission.Unlock()
		time.Sleep(pause)
	}
	admission.up, admission.last = admission.up+1, time.Now()
	admission.Unlock()
	t.Cleanup(func() {
		admission.Lock()
		defer admission.Unlock()
		admission.up--
	})
	if waited := time.Since(began); waited > pause {
		t.Logf("waited %v for the machine", waited.Round(time.Second))
	}
}

// loadAverage of the last minute.
func loadAverage(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	var minute float64
	_, err = fmt.Sscan(string(text), &minute)
	require.NoError(t, err)
	return minute
}
