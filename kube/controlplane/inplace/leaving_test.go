package inplace

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nodes that are to go may boot for a job, or have lost their pods a moment ago: slurmctld would end the job.
func TestChangeWaitsForJobs(t *testing.T) {
	const (
		before = "SlurmctldHost=here\nNodeName=cpu-[0-3] CPUs=2 State=CLOUD\nNodeName=metal CPUs=8\n"
		after  = "SlurmctldHost=here\nNodeName=cpu-[0-1] CPUs=2 State=CLOUD\n"
	)
	begin := func(t *testing.T, states map[string]string) *world {
		w := newWorld(t)
		w.Host = "here"
		w.want(before)
		w.slurm.nodes = up("cpu-0", "cpu-1", "cpu-2", "cpu-3", "metal")
		t.Cleanup(w.start())
		wait(5 * time.Second)
		for name, state := range states {
			w.slurm.node(name, func(n *Node) { n.State = state })
		}
		return w
	}
	inForce := func(w *world) string { return w.last().InForce }
	t.Run("one boots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-0": "ALLOCATED+CLOUD", "cpu-2": "ALLOCATED+CLOUD+POWERING_UP", "cpu-3": "MIXED+CLOUD"})
			until := time.Now().Add(leavingLeast).UTC().Format(time.RFC3339)
			w.want(after)
			wait(10 * time.Second)
			assert.Equal(t, Hash(conf(before)), inForce(w))
			assert.Equal(t, "it waits for the jobs on cpu-[2-3], which it takes away, until "+until, w.last().Error)
			w.slurm.node("cpu-2", func(n *Node) { n.State = "IDLE+CLOUD+POWERING_DOWN" })
			wait(2 * time.Second)
			assert.Equal(t, Hash(conf(before)), inForce(w))
			w.slurm.node("cpu-3", func(n *Node) { n.State = "IDLE+CLOUD+COMPLETING" })
			wait(10 * time.Second)
			assert.Equal(t, Hash(conf(after)), inForce(w))
			assert.Empty(t, w.last().Error)
		})
	})
	t.Run("a job that does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-2": "ALLOCATED+CLOUD"})
			w.want(after)
			for range 10 { // other changes do not make it wait for longer
				wait(leavingLeast / 10)
				assert.Equal(t, Hash(conf(before)), inForce(w))
				w.want(after + "# " + time.Now().String() + "\n")
			}
			wait(10 * time.Second)
			assert.NotEqual(t, Hash(conf(before)), inForce(w))
		})
	})
	t.Run("one comes back in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-3": "ALLOCATED+CLOUD"})
			w.want(after)
			wait(3 * time.Minute)
			w.want("SlurmctldHost=here\nNodeName=cpu-[0-2] CPUs=2 State=CLOUD\n")
			wait(time.Minute)
			w.slurm.node("cpu-2", func(n *Node) { n.State = "ALLOCATED+CLOUD" })
			w.want(after)
			wait(leavingLeast - 3*time.Minute)
			assert.Equal(t, Hash(conf(before)), inForce(w))
			wait(4 * time.Minute)
			assert.Equal(t, Hash(conf(after)), inForce(w))
		})
	})
	t.Run("slurmctld ends meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-2": "ALLOCATED+CLOUD"})
			w.want(after)
			wait(5 * time.Second)
			w.slurm.Lock()
			w.slurm.runs, w.slurm.ended = "", time.Now()
			w.slurm.Unlock()
			wait(2 * silentFor)
			text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
			require.NoError(t, err)
			assert.Equal(t, after, string(text), "what is wanted may be what makes it start")
		})
	})
	t.Run("a job starts during the trial", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			w.slurm.Lock()
			w.slurm.tried = func() { w.slurm.nodes[2].State = "ALLOCATED+CLOUD" }
			w.slurm.Unlock()
			w.want(after)
			wait(time.Minute)
			assert.Equal(t, Hash(conf(before)), inForce(w))
		})
	})
	t.Run("a new pod with which the former one is no good", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			require.NoError(t, writeFiles(w.Kept, conf(before+"bad\n"), 0o644, nil))
			w.want(after)
			again := *w.Agent
			require.NoError(t, again.Init(t.Context()))
			text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
			require.NoError(t, err)
			assert.Equal(t, after, string(text))
		})
	})
	t.Run("nobody knows of jobs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			w.slurm.Lock()
			w.slurm.dumb = true
			w.slurm.Unlock()
			w.want(after)
			wait(leavingLeast - time.Minute)
			assert.Equal(t, Hash(conf(before)), inForce(w))
			assert.Equal(t, "whether there are jobs on nodes that it takes away is not known: it does not say", w.last().Error)
			wait(2 * time.Minute)
			assert.Equal(t, Hash(conf(after)), inForce(w))
		})
	})
	t.Run("as long as a boot may take", func(t *testing.T) {
		for timeout, want := range map[string]time.Duration{"": leavingLeast, "60": leavingLeast, "600": 11 * time.Minute, "86400": leavingMost, "x": leavingLeast} {
			assert.Equal(t, want, leavingFor(conf("ResumeTimeout="+timeout+"\n")), timeout)
		}
	})
	t.Run("gone, back, and gone again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			w.want(after)
			wait(10 * time.Second)
			assert.Equal(t, Hash(conf(after)), inForce(w))
			w.want(before)
			wait(time.Hour)
			w.slurm.node("cpu-2", func(n *Node) { n.State = "ALLOCATED+CLOUD+POWERING_UP" })
			w.want(after)
			wait(time.Minute)
			assert.Equal(t, Hash(conf(before)), inForce(w))
		})
	})
	t.Run("a new pod", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-2": "ALLOCATED+CLOUD"})
			w.want(after)
			again := *w.Agent // what it knows of its time is a new pod's own
			require.NoError(t, again.Init(t.Context()))
			text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
			require.NoError(t, err)
			assert.Equal(t, before, string(text), "it is for the agent to wait")
			again.Host = "there" // a backup that is new
			require.NoError(t, again.Init(t.Context()))
			text, err = os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
			require.NoError(t, err)
			assert.Equal(t, after, string(text))
		})
	})
	t.Run("slurmctld does not answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-2": "ALLOCATED+CLOUD"})
			w.want(after)
			wait(5 * time.Second)
			w.slurm.set(false, true)
			wait(leavingLeast / 2)
			text, err := os.ReadFile(filepath.Join(w.Etc, "slurm.conf"))
			require.NoError(t, err)
			assert.Equal(t, before, string(text))
			w.slurm.set(false, false)
			wait(10 * time.Second)
			assert.Equal(t, Hash(conf(before)), inForce(w))
		})
	})
	t.Run("refused at first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			w.want(after + "bad\n")
			wait(time.Hour)
			w.slurm.node("cpu-2", func(n *Node) { n.State = "ALLOCATED+CLOUD" })
			w.want(after)
			wait(time.Minute)
			assert.Equal(t, Hash(conf(before)), inForce(w))
		})
	})
	t.Run("lines that are moved", func(t *testing.T) {
		moved := map[string]string{"slurm.conf": "include nodes.conf\n", "nodes.conf": "NodeName=DEFAULT State=CLOUD\nNodeName=cpu-[0-2]\nNodeName=cpu-3 State=UNKNOWN\n"}
		assert.Equal(t, "cpu-3", goneNodes(conf(before), moved).String())
		assert.Zero(t, goneNodes(moved, conf(before)).Len())
	})
	t.Run("nodes that stay, or were always there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-0": "ALLOCATED+CLOUD", "metal": "ALLOCATED"})
			w.want(after)
			wait(3 * time.Second)
			assert.Equal(t, Hash(conf(after)), inForce(w))
		})
	})
	t.Run("taken back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, map[string]string{"cpu-2": "ALLOCATED+CLOUD"})
			w.want(after)
			wait(leavingLeast - time.Minute)
			w.want(before)
			wait(time.Second)
			assert.Equal(t, Report{InForce: Hash(conf(before))}, w.last())
		})
	})
}
