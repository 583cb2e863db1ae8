//go:build integration

package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/hack/stack"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

// pushAllowance is for what a push does not wait for itself: sbatch's way back through kubectl exec, and a machine that runs other tests meanwhile.
const pushAllowance = 500 * time.Millisecond

// The daemon before a real slurmctld and slurmrestd: what a job means is known within a second, and a Slurm that does not answer is
// an error.
func TestScaler(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "scaler", version, forClasses(stack.Options{
			NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600,
			NodeLines: []string{"NodeName=other-[0-3] CPUs=4 RealMemory=800 State=CLOUD", "NodeName=shape-[0-3] CPUs=4 RealMemory=800 State=DOWN Reason=shape", "NodeName=sparse-[0-49] CPUs=1 RealMemory=800 State=CLOUD"},
			PartitionLines: []string{
				"PartitionName=cpu Nodes=cpu-[0-5] Default=YES", "PartitionName=other Nodes=other-[0-3]", "PartitionName=shapes Nodes=shape-[0-3]",
				"PartitionName=sparse Nodes=sparse-[0-49]",
			},
		}), nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
		kubectl(t, c.manifests("keda/scaler.yaml", "ServiceAccount", "Role", "RoleBinding"), "apply", "-f", "-")
		d := startScaler(c, "--kubeconfig", c.kubeconfigOf("slurmtide-scaler"))
		cpu := map[string]string{"nodeSet": "cpu", "scalerAddress": d.grpc}
		other := map[string]string{"partition": "other", "cpus": "4", "memory": "800", "maxNodes": "4"}
		d.within(cpu, 0)
		d.refuses(map[string]string{"nodeSet": "cup"}, codes.NotFound, `there is no NodeSet "cup" (did you mean cpu?)`)
		d.refuses(map[string]string{"partition": "other"}, codes.NotFound, "partition other has no NodeSet")
		d.refuses(map[string]string{"nodeSet": "cpu", "cpu": "1"}, codes.InvalidArgument, "cpu: there is no such key (did you mean cpus?)")

		// How long a push takes, from the end of sbatch. The nodes never come up, but the jobs need them all the same.
		pushes := d.stream(cpu)
		require.False(t, d.pushed(pushes))
		var took []time.Duration
		for range 5 {
			id := c.sbatch("sleep 600")
			submitted := time.Now()
			require.True(t, d.pushed(pushes))
			took = append(took, time.Since(submitted))
			c.slurm("scancel", id)
			require.False(t, d.pushed(pushes))
			d.within(cpu, 0)
		}
		t.Logf("pushed after %v", took)
		slices.Sort(took) // one that a busy machine has kept waiting says nothing
		assert.Less(t, took[len(took)/2], time.Second+pushAllowance)

		// A quiet Slurm is asked, and tells next to nothing.
		time.Sleep(4 * time.Second)
		before := d.reads()
		time.Sleep(6 * time.Second)
		after := d.reads()
		t.Logf("reads before and after six quiet seconds: %v %v", before, after)
		assert.GreaterOrEqual(t, after["unchanged"]-before["unchanged"], 6.0)
		assert.LessOrEqual(t, after["jobs"]-before["jobs"], 2.0)

		d.explained()
		d.within(cpu, 0)

		// Jobs of several nodes, an array, a job that is held.
		c.sbatch("sleep 600", "-N", "3", "--exclusive")
		require.True(t, d.pushed(pushes))
		d.within(cpu, 3)
		c.sbatch("sleep 600", "--hold", "-N", "2", "--exclusive")
		c.sbatch("sleep 600", "--array=0-1", "--exclusive")
		d.within(cpu, 5)
		c.sbatch("sleep 600", "--array=0-8", "--exclusive")
		d.within(cpu, 6)
		d.within(map[string]string{"nodeSet": "cpu", "includeRunning": "false", "metric": "cpus", "target": "2"}, 0)
		d.within(other, 0)
		c.sbatch("sleep 600", "-p", "other", "-N", "2", "-n", "8")
		d.within(other, 2)
		// Records that stand for shapes take no places.
		c.sbatch("sleep 600", "-p", "shapes", "-N", "3", "-n", "12")
		d.within(map[string]string{"partition": "shapes", "cpus": "4", "memory": "800", "maxNodes": "3"}, 3)
		assert.Contains(t, d.get("/metrics"), `slurmtide_scaler_nodes_needed{cluster="`+c.Options.ClusterName+`",nodeset="cpu"} 6`)
		assert.Contains(t, d.get("/metrics"), `why="held"} 1`)

		sparseArray(d)

		// slurmrestd hangs, and slurmctld does: both are errors, and both are over by themselves.
		for daemon, container := range map[string]string{"slurmrestd": stack.ContainerSlurmrestd, "slurmctld": stack.ContainerSlurmctld} {
			signal := func(s string) {
				_, stderr, err := c.run(nil, container, "pkill", "-"+s, "--oldest", daemon)
				require.NoError(t, err, "%s %s: %s", s, daemon, stderr)
			}
			signal("STOP")
			c.within(patience, 200*time.Millisecond, daemon+" hangs", func() (bool, string) {
				v, err := d.value(cpu)
				if err == nil {
					assert.InDelta(t, 6, v, 0, "%s: an old figure is better than none, and 0 is none", daemon)
				}
				return status.Code(err) == codes.Unavailable, fmt.Sprintf("%v %v", v, err)
			})
			_, err := d.value(cpu)
			require.ErrorContains(t, err, "Slurm's queue was last read ", daemon)
			require.Regexp(t, "has not answered for |no answer within 15s", err.Error(), daemon) // after 15 s it is asked anew
			t.Logf("%s hangs: %v", daemon, err)
			assert.Contains(t, d.get("/readyz"), "ok", "it goes on answering")
			signal("CONT")
			d.within(cpu, 6)
		}
		c.slurm("scancel", "--user=slurm")
		require.False(t, d.pushed(pushes), "the stream has outlived it")
	})
}

// sparseArray: all tasks count of an array whose list is longer than slurmrestd writes by itself, with our slurmrestd and with one that somebody has started
// without SLURM_BITSTR_LEN=0.
func sparseArray(d *scalerProcess) {
	c := d.c
	squares := make([]string, 30) // MaxArraySize is 1001
	for i := range squares {
		squares[i] = strconv.Itoa(i * i)
	}
	sparse := map[string]string{"partition": "sparse", "cpus": "1", "memory": "800", "maxNodes": "50"}
	id := c.sbatch("sleep 600", "-p", "sparse", "--hold", "--exclusive", "--array="+strings.Join(squares, ","))
	d.within(sparse, 0)
	const cutting = 6821
	_, stderr, err := c.run(nil, stack.ContainerSlurmrestd, "sh", "-c",
		fmt.Sprintf("unset SLURM_BITSTR_LEN; setsid slurmrestd -a rest_auth/jwt -s openapi/slurmctld 127.0.0.1:%d >/dev/null 2>&1 </dev/null &", cutting))
	require.NoError(c.t, err, "%s", stderr)
	address, err := c.Forward(c.ctx, cutting)
	require.NoError(c.t, err)
	other := startScaler(c, "--slurmrestd", "http://"+address)
	c.slurm("scontrol", "release", id)
	d.within(sparse, float64(len(squares)))
	assert.NotContains(c.t, d.log.String(), "SLURM_BITSTR_LEN")
	other.within(sparse, float64(len(squares)))
	assert.Contains(c.t, other.log.String(), "SLURM_BITSTR_LEN=0")
	assert.Contains(c.t, other.get("/metrics"), `slurmtide_scaler_cut_arrays{cluster="`+c.Options.ClusterName+`"} 0`)
	_, stderr, err = c.run(nil, stack.ContainerSlurmrestd, "pkill", "--newest", "slurmrestd")
	require.NoError(c.t, err, "%s", stderr)
	c.slurm("scancel", id)
	d.within(sparse, 0)
}

// scalerProcess is a slurmtide-scaler that runs beside the test.
type scalerProcess struct {
	c      *cluster
	grpc   string
	http   string
	client pb.ExternalScalerClient
	*process
}

func startScaler(c *cluster, args ...string) *scalerProcess {
	c.t.Helper()
	address, err := c.Forward(c.ctx, 6820)
	require.NoError(c.t, err)
	d := &scalerProcess{c: c, grpc: freeAddress(c.t), http: freeAddress(c.t)}
	args = append([]string{
		"scaler", "--cluster", c.Options.ClusterName, "--namespace", c.ns, "--kubeconfig", os.Getenv("KUBECONFIG"), "--slurmrestd", "http://" + address,
		"--jwt-key", c.jwtKeyFile(), "--listen", d.grpc, "--metrics-address", d.http, "--max-age", "5s",
	}, args...)
	d.process = c.start("../../bin/slurmtide", args...)
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	d.client = pb.NewExternalScalerClient(conn)
	c.eventually("the scaler", func() (bool, string) {
		text := d.get("/readyz")
		return text == "ok\n", text + d.log.String()
	})
	return d
}

// jwtKeyFile is the cluster's key for tokens.
func (c *cluster) jwtKeyFile() string {
	c.t.Helper()
	key, err := c.JWTKey(c.ctx)
	require.NoError(c.t, err)
	file := filepath.Join(c.t.TempDir(), "jwt_hs256.key")
	require.NoError(c.t, os.WriteFile(file, key, 0o600))
	return file
}

func (d *scalerProcess) get(path string) string {
	resp, err := http.Get("http://" + d.http + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (d *scalerProcess) value(metadata map[string]string) (float64, error) {
	ref := &pb.ScaledObjectRef{Name: "so", Namespace: d.c.ns, ScalerMetadata: metadata}
	metrics, err := d.client.GetMetrics(d.c.ctx, &pb.GetMetricsRequest{ScaledObjectRef: ref})
	if err != nil {
		return 0, err
	}
	active, err := d.client.IsActive(d.c.ctx, ref)
	if err != nil {
		return 0, err
	}
	v := metrics.MetricValues[0]
	if float64(v.MetricValue) != v.MetricValueFloat || active.Result != (v.MetricValue > 0) { // the figures may be newer for the second
		return d.value(metadata)
	}
	return v.MetricValueFloat, nil
}

func (d *scalerProcess) within(metadata map[string]string, want float64) {
	d.c.t.Helper()
	d.c.within(patience, 100*time.Millisecond, fmt.Sprintf("%v for %v", want, metadata), func() (bool, string) {
		got, err := d.value(metadata)
		return err == nil && got == want, fmt.Sprintf("%v %v\n%s", got, err, d.c.slurm("squeue", "-a"))
	})
}

func (d *scalerProcess) refuses(metadata map[string]string, code codes.Code, text string) {
	d.c.t.Helper()
	_, err := d.value(metadata)
	assert.Equal(d.c.t, code, status.Code(err))
	assert.ErrorContains(d.c.t, err, text)
}

func (d *scalerProcess) stream(metadata map[string]string) <-chan bool {
	d.c.t.Helper()
	stream, err := d.client.StreamIsActive(d.c.ctx, &pb.ScaledObjectRef{ScalerMetadata: metadata})
	require.NoError(d.c.t, err)
	pushes := make(chan bool, 100)
	go func() {
		defer close(pushes)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			pushes <- r.Result
		}
	}()
	return pushes
}

// pushed waits for the next push.
func (d *scalerProcess) pushed(pushes <-chan bool) bool {
	d.c.t.Helper()
	select {
	case p, ok := <-pushes:
		require.True(d.c.t, ok, "the stream has ended")
		return p
	case <-time.After(patience):
		require.FailNow(d.c.t, "nothing was pushed", d.c.slurm("squeue", "-a"))
	}
	return false
}

// reads counts reads of Slurm by what was read.
func (d *scalerProcess) reads() map[string]float64 {
	counts := map[string]float64{}
	for line := range strings.Lines(d.get("/metrics")) {
		labels, ok := strings.CutPrefix(line, "slurmtide_scaler_read_seconds_count{")
		if !ok {
			continue
		}
		labels, number, _ := strings.Cut(strings.TrimSpace(labels), "} ")
		_, what, _ := strings.Cut(labels, `what="`)
		n, err := strconv.ParseFloat(number, 64)
		require.NoError(d.c.t, err)
		counts[strings.TrimSuffix(what, `"`)] = n
	}
	return counts
}
