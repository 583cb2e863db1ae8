//go:build integration && faults

package integration

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Nodes that register themselves: jobs keep off a host that is to be emptied and run on where they are, and idle nodes leave it.
// Like TestHostTrouble it is alone on the one host.
func TestDynamicHosts(t *testing.T) {
	var oneByOne sync.Mutex
	forEachVersionAlone(t, func(t *testing.T, version string) {
		oneByOne.Lock()
		defer oneByOne.Unlock()
		c := deploy(t, "dynhosts", version, dynamicOptions(version), nodeSet{name: "dyn", nodes: "dyn-[0-3]", dynamic: true})
		var node, host string
		show := func() string { return c.slurm("scontrol", "--oneliner", "show", "node", node) }
		t.Run("busy", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 20", "-c2")
			c.waitJob(id, "RUNNING")
			node = c.jobField(id, "NodeList")
			host = c.slurmdPods()[node].Spec.NodeName
			c.cordon(host, true)
			began := time.Now()
			c.eventually("the node to be drained", func() (bool, string) {
				out := show()
				return strings.Contains(out, "Reason=slurmtide: host: "+host+" is cordoned") && strings.Contains(out, "+DRAIN"), out
			})
			t.Logf("drained after %s", time.Since(began).Round(10*time.Millisecond))
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.cordon(host, false)
			c.eventually("the node to be put back", func() (bool, string) {
				out := show()
				return !strings.Contains(out, "+DRAIN"), out
			})
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"))
			c.waitNothing()
		})
		t.Run("idle", func(t *testing.T) {
			c.t = t
			c.scaleDyn(1)
			c.waitRecords(1)
			var uid string
			for _, pod := range c.slurmdPods() {
				uid = string(pod.UID)
			}
			c.cordon(host, true)
			c.eventually("the idle node to leave", func() (bool, string) {
				for _, pod := range c.slurmdPods() {
					if string(pod.UID) == uid { // its record may be gone already
						return false, pod.Name + " has still its pod"
					}
				}
				return true, ""
			})
			c.cordon(host, false)
			c.scaleDyn(0)
			c.waitNothing()
		})
	})
}
