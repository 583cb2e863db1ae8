//go:build integration && scale

package integration

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/scaler"
)

// longJobs make a queue that takes seconds to be read.
const longJobs = 4000

// A new job counts within a second though reading the queue takes several. JOBS says how many there are.
func TestScalerLongQueue(t *testing.T) {
	longJobs := longJobs
	if text := os.Getenv("JOBS"); text != "" {
		var err error
		longJobs, err = strconv.Atoi(text)
		require.NoError(t, err, "JOBS")
	}
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "long", version, stack.Options{
			NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600,
			ExtraConf:      []string{"MaxJobCount=100000"},
			NodeLines:      []string{"NodeName=far-[0-9] CPUs=4 RealMemory=800 State=CLOUD", "NodeName=shape-[0-3] CPUs=4 RealMemory=800 State=DOWN Reason=shape"},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-5] Default=YES", "PartitionName=far Nodes=far-[0-9]", "PartitionName=shapes Nodes=shape-[0-3]"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
		c.fillQueue(longJobs)
		c.peeks()

		d := startScaler(c)
		others := map[string]string{"partition": "shapes", "cpus": "4", "memory": "800", "maxNodes": "3"} // jobs wait until they are there
		d.within(others, 0)
		pushes := d.stream(others)
		require.False(t, d.pushed(pushes))
		var on, off []time.Duration
		for i := range 12 {
			time.Sleep(time.Duration(i%4) * 900 * time.Millisecond) // in the middle of reads, and of rests
			id := c.sbatch("sleep 600", "-p", "shapes")
			submitted := time.Now()
			require.True(t, d.pushed(pushes))
			on = append(on, time.Since(submitted))
			c.slurm("scancel", id)
			cancelled := time.Now()
			require.False(t, d.pushed(pushes))
			off = append(off, time.Since(cancelled))
		}
		count, sum := d.reads()["jobs"], d.sum("jobs")
		slices.Sort(on)
		slices.Sort(off)
		t.Logf("%.0f reads of %d jobs took %.2f s each; a new one was pushed after %v, its end after %v", count, longJobs, sum/count, on, off)
		assert.Greater(t, sum/count, 0.5, "or the queue is too short for this test")
		assert.Less(t, on[len(on)-2], time.Second, "all but one, for which slurmrestd, that writes all jobs meanwhile, or the machine may have been too busy")
		assert.Positive(t, d.reads()["new jobs"])
		assert.NotContains(t, d.log.String(), "looking for them failed")
	})
}

// fillQueue submits held jobs, no two of them alike.
func (c *cluster) fillQueue(jobs int) {
	address, err := c.Forward(c.ctx, 6820)
	require.NoError(c.t, err)
	token, _, err := c.jwt().Token(c.ctx)
	require.NoError(c.t, err)
	api := map[string]string{"24.11": "v0.0.42", "26.05": "v0.0.44"}[c.Options.SlurmVersion]
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, 4)
	for w := range errs {
		submit := func() error {
			for {
				i := next.Add(1) - 1
				if i >= int64(jobs) {
					return nil
				}
				body := fmt.Sprintf(`{"script": "#!/bin/sh\ntrue\n", "job": {"name": "j%d", "partition": "far", "hold": true, "environment": ["A=B"],
					"current_working_directory": "/tmp", "tasks": %d, "minimum_nodes": %d, "memory_per_node": {"set": true, "number": %d}}}`, i, 3+i%4, 1+i%3, 1+i%800)
				r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://"+address+"/slurm/"+api+"/job/submit", strings.NewReader(body))
				if err != nil {
					return err
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-SLURM-USER-TOKEN", token)
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					return err
				}
				said, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %.500s %w", answer.Status, said, err)
				}
			}
		}
		wait.Go(func() { errs[w] = submit() })
	}
	wait.Wait()
	require.NoError(c.t, errors.Join(errs...))
}

func (c *cluster) jwt() slurmrest.KeyFile {
	return slurmrest.KeyFile{Path: c.jwtKeyFile(), User: "slurm"}
}

// peeks holds what slurmrestd tells of single jobs against what it tells of all.
func (c *cluster) peeks() {
	t := c.t
	address, err := c.Forward(c.ctx, 6820)
	require.NoError(t, err)
	rest, err := slurmrest.Dial(c.ctx, slurmrest.Config{Server: "http://" + address, Token: c.jwt()})
	require.NoError(t, err)
	defer rest.Close()
	for _, args := range [][]string{{"-p", "far", "--hold", "--exclusive"}, {"-p", "far", "--hold", "--array=0-98:2%5"}, {"-p", "far", "--hold", "-n", "1", ":", "-n", "2"}} {
		c.sbatch("true", args...)
	}
	start := time.Now()
	all, _, err := rest.QueueJobs(c.ctx, time.Time{})
	require.NoError(t, err)
	took := time.Since(start)
	slices.SortFunc(all, func(a, b scaler.Job) int { return int(a.ID) - int(b.ID) })
	newest := all[len(all)-4:]
	require.NotZero(t, newest[3].HetJobID, "the array and the het job are among them: %+v", newest)
	ids := []uint32{}
	for _, j := range newest {
		ids = append(ids, j.ID)
	}
	for i := range uint32(320) { // more than are ever asked for at once, with numbers as long as they get
		ids = append(ids, newest[3].ID+1+i, 67_000_000+i)
	}
	raw, err := http.NewRequestWithContext(c.ctx, http.MethodGet, fmt.Sprintf("http://%s/slurm/v0.0.42/jobs/state?job_id=%d&job_id=%d", address, ids[0], ids[1]), nil)
	require.NoError(t, err)
	text, _, err := c.jwt().Token(c.ctx)
	require.NoError(t, err)
	raw.Header.Set("X-SLURM-USER-TOKEN", text)
	answer, err := http.DefaultClient.Do(raw)
	require.NoError(t, err)
	said, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	require.NoError(t, err)
	t.Logf("%.3000s", said)
	start = time.Now()
	jobs, marks, err := rest.PeekJobs(c.ctx, ids, nil)
	require.NoError(t, err)
	t.Logf("all jobs took %v, the newest 4 %v: %v", took, time.Since(start), marks)
	assert.Equal(t, newest, jobs)
	assert.Equal(t, ids[:4], slices.Sorted(maps.Keys(marks)), "there are no others")
	start = time.Now()
	jobs, again, err := rest.PeekJobs(c.ctx, ids, marks)
	require.NoError(t, err)
	t.Logf("that nothing has changed %v", time.Since(start))
	assert.Empty(t, jobs)
	assert.Equal(t, marks, again)
	_, none, err := rest.PeekJobs(c.ctx, ids[4:], nil)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// sum is how long all reads of something took, in seconds.
func (d *scalerProcess) sum(what string) (seconds float64) {
	for line := range strings.Lines(d.get("/metrics")) {
		if strings.HasPrefix(line, "slurmtide_scaler_read_seconds_sum{") && strings.Contains(line, `what="`+what+`"`) {
			_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &seconds)
			require.NoError(d.c.t, err)
		}
	}
	return seconds
}
