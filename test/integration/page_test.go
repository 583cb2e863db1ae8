//go:build integration

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave/page"
)

// The bridge's page shows what a real cluster does, as it happens. How browsers show it, powersave/page tries in Chromium.
func TestPage(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "page", version, stack.Options{Gate: true, SuspendTime: 600, ResumeTimeout: 600, BridgeArgs: []string{"--page-address=:9447"}}, nodeSet{name: "cpu", nodes: "cpu-[0-2]"}, nodeSet{name: "slow", nodes: "slow-0", gated: true})
		address, err := c.Forward(c.ctx, 9447)
		require.NoError(t, err)
		text := c.fetch(address, "/")
		assert.Contains(t, text, "<title>")
		assert.Contains(t, text, `src="page.js"`)
		views := c.watchPage(address)

		seen := func(what string, right func(v page.View) bool) {
			t.Helper()
			var last page.View
			c.eventually("the page to show "+what, func() (bool, string) {
				for {
					select {
					case v, open := <-views:
						require.True(t, open, "its events end")
						if last = v; right(v) {
							return true, ""
						}
					default:
						return false, fmt.Sprintf("%+v", last)
					}
				}
			})
		}
		seen("nodes that are off", func(v page.View) bool {
			return v.Leading && len(v.Trouble) == 0 && v.Cluster == c.Options.ClusterName && v.Nodes == page.Nodes{All: 4, Off: 4}
		})
		waits, runs := c.sbatch("true", "-w", "slow-0"), c.sbatch("sleep 600", "-w", "cpu-[0-1]", "-N2")
		seen("a job that waits, and nodes that boot and serve", func(v page.View) bool {
			return len(v.Jobs.Items) == 1 && fmt.Sprint(v.Jobs.Items[0].ID) == waits && v.Nodes.Ready == 2 && v.Nodes.Booting+v.Nodes.Failed == 1 && len(v.Over.Items) >= 2
		})
		c.ungate("slow-0")
		c.waitJob(waits, "COMPLETED")
		seen("that it waits no more", func(v page.View) bool { return len(v.Jobs.Items) == 0 && v.Nodes.Ready == 3 })

		assert.Contains(t, c.fetch(address, "/find?q=cpu-0"), "cpu-0")
		story := c.fetch(address, "/story?job="+runs)
		for _, part := range []string{"slurmd registered", "gate opened", "cpu-[0-1]"} {
			assert.Contains(t, story, part)
		}
	})
}

// fetch gets what the page's server has at a path.
func (c *cluster) fetch(address, path string) string {
	c.t.Helper()
	r, err := http.Get("http://" + address + path)
	require.NoError(c.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, r.StatusCode, "%s: %s", path, text)
	return string(text)
}

// watchPage gives what the page is told, until the test ends.
func (c *cluster) watchPage(address string) <-chan page.View {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "http://"+address+"/events", nil)
	require.NoError(c.t, err)
	r, err := http.DefaultClient.Do(request)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { r.Body.Close() })
	views := make(chan page.View, 1000)
	go func() {
		defer close(views)
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, 1<<20)
		for event := ""; lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			var v page.View
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == "view" && json.Unmarshal([]byte(data), &v) == nil {
				views <- v
			}
		}
	}()
	return views
}
