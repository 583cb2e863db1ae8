//go:build integration

package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// The exporter, by the manifest of the user guide, tells what a real Slurm does, and that it cannot be read.
func TestExporter(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		gpus, err := stack.FakeGPUs("gpu-[0-1]", "h100", 2)
		require.NoError(t, err)
		c := deploy(t, "exporter", version, stack.Options{
			Gate: true, OpenSlurmrestd: true, SuspendTime: 600, GresLines: []string{gpus},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=gpu Nodes=gpu-[0-1]"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "gpu", nodes: "gpu-[0-1]", gres: "gpu:h100:2"})
		address := c.startExporter("--per-node", "--per-user", "--per-job=2", "--interval=1s", "--timeout=1s", "--max-age=10s")
		c.shows(address, map[string]float64{
			`slurm_nodes{state="powered_down"}`: 6, `slurm_gres{gres="gpu",type="h100",use="off"}`: 4, `slurm_jobs{state="pending"}`: 0,
			`slurm_partition_configured_nodes{partition="cpu"}`: 4, `slurm_partition_state{partition="gpu",state="up"}`: 1,
		})

		two, gpu := c.sbatch("sleep 600", "-N2", "--exclusive"), c.sbatch("sleep 600", "-p", "gpu", "--gres=gpu:h100:1")
		c.sbatch("true", "--hold", "--array=1-5")
		c.waitJob(two, "RUNNING")
		c.waitJob(gpu, "RUNNING")
		page := c.shows(address, map[string]float64{
			`slurm_nodes{state="allocated"}`: 2, `slurm_nodes{state="powered_down"}`: 3, `slurm_nodes_flagged{flag="powered_down"}`: 3,
			`slurm_gres{gres="gpu",type="h100",use="allocated"}`: 1, `slurm_gres{gres="gpu",type="h100",use="idle"}`: 1, `slurm_gres{gres="gpu",type="h100",use="off"}`: 2,
			`slurm_jobs{state="running"}`: 2, `slurm_jobs{state="pending"}`: 5, `slurm_jobs_nodes{state="running"}`: 3,
			`slurm_jobs_pending{reason="JobHeldUser"}`: 5, `slurm_partition_jobs{partition="gpu",state="running"}`: 1, `slurm_partition_jobs{partition="cpu",state="pending"}`: 5,
			`slurm_user_jobs{account="",state="running",user="slurm"}`:       2,
			`slurm_scheduler_jobs_submitted_total`:                           number(t, c.slurm("sdiag"), `Jobs submitted: +(\d+)`),
			`slurm_node_gres_allocated{gres="gpu",node="gpu-0",type="h100"}`: 1,
			fmt.Sprintf(`slurm_job_node{job_id="%s",node="gpu-0"}`, gpu):     1,
			fmt.Sprintf(`slurm_job_state{job_id="%s",state="running"}`, gpu): 1,
			fmt.Sprintf(`slurm_job_cpus{job_id="%s"}`, two):                  4,
			`slurm_jobs_left_out{what="jobs"}`:                               0,
			`slurm_nodes_draining_seconds_count`:                             0,
		})
		assert.Positive(t, page[`slurm_controller_rpcs_total{type="REQUEST_NODE_INFO"}`])
		assert.Positive(t, page[`slurm_user_rpcs_total{user="slurm"}`])
		assert.Positive(t, page[`slurm_scheduler_cycles_total{scheduler="main"}`])
		assert.Positive(t, page[`slurm_gpu_seconds_total{type="h100",use="allocated"}`])
		for series, value := range page {
			if strings.Contains(series, `="other"`) || strings.HasPrefix(series, "slurm_nodes_gres_unread") {
				assert.Zero(t, value, "%s: words that the exporter does not know", series)
			}
		}
		assert.Empty(t, documented(t, page), "metrics of the documentation that the page lacks")

		c.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=test")
		c.shows(address, map[string]float64{`slurm_nodes{state="draining"}`: 1})
		c.slurm("scontrol", "update", "nodename=cpu-0", "state=resume")
		c.shows(address, map[string]float64{`slurm_nodes{state="draining"}`: 0, `slurm_nodes_draining_seconds_count`: 1, `slurm_nodes_unavailable_seconds_count`: 0})

		c.slurmrestd("STOP")
		c.eventually("the figures to vanish", func() (bool, string) {
			page := c.page(address)
			_, shown := page[`slurm_nodes{state="allocated"}`]
			return !shown && page[`slurmtide_exporter_readable{what="nodes"}`] == 0 && page[`slurmtide_exporter_read_failures_total{what="nodes",why="unreachable"}`] > 0, fmt.Sprint(page)
		})
		c.slurmrestd("CONT")
		c.shows(address, map[string]float64{`slurm_nodes{state="allocated"}`: 2, `slurmtide_exporter_readable{what="diag"}`: 1})
	})
}

func (c *cluster) slurmrestd(signal string) {
	c.t.Helper()
	_, stderr, err := c.run(nil, stack.ContainerSlurmrestd, "pkill", "-"+signal, "--oldest", "slurmrestd")
	require.NoError(c.t, err, stderr)
}

// startExporter runs the guide's exporter with further arguments, and returns its address.
func (c *cluster) startExporter(args ...string) string {
	c.t.Helper()
	text := c.manifests("exporter.yaml", "Service", "Deployment")
	const first = "        - exporter\n"
	require.Contains(c.t, text, first)
	more := first
	for _, arg := range args {
		more += "        - " + arg + "\n"
	}
	kubectl(c.t, strings.NewReplacer("namespace: slurm,", "namespace: "+c.ns+",", "slurmrestd.slurm:", "slurmrestd."+c.ns+":", first, more).Replace(text), "apply", "-f", "-")
	kubectl(c.t, "", "-n", c.ns, "rollout", "status", "deployment/slurmtide-exporter", fmt.Sprintf("--timeout=%v", patience))
	list, err := c.kube.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slurmtide-exporter"})
	require.NoError(c.t, err)
	require.Len(c.t, list.Items, 1)
	address, err := c.ForwardPod(c.ctx, list.Items[0].Name, 9446)
	require.NoError(c.t, err)
	return address
}

// shows waits for these series, and returns the whole page.
func (c *cluster) shows(address string, want map[string]float64) (page map[string]float64) {
	c.t.Helper()
	c.eventually("the exporter's figures", func() (bool, string) {
		page = c.page(address)
		var lacks []string
		for _, series := range slices.Sorted(maps.Keys(want)) {
			if value, shown := page[series]; !shown || value != want[series] {
				lacks = append(lacks, fmt.Sprintf("%s is %v (%v), not %v", series, value, shown, want[series]))
			}
		}
		return len(lacks) == 0, strings.Join(lacks, "\n")
	})
	return page
}

// page is what Prometheus would get: values by series, without the label cluster.
func (c *cluster) page(address string) map[string]float64 {
	c.t.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	require.NoError(c.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, r.StatusCode, "%s", text)
	page := map[string]float64{}
	for _, line := range strings.Split(string(text), "\n") {
		if series, value, found := strings.Cut(line, "} "); found && !strings.HasPrefix(line, "#") {
			series = strings.Replace(strings.Replace(series+"}", `cluster="tide",`, "", 1), `{cluster="tide"}`, "", 1)
			page[series], err = strconv.ParseFloat(value, 64)
			require.NoError(c.t, err, line)
		}
	}
	return page
}

// documented are the metrics of the documentation that are not on the page, but for those that this Slurm has no reason to show.
func documented(t *testing.T, page map[string]float64) (missing []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	have := map[string]bool{}
	for series := range page {
		name, _, _ := strings.Cut(series, "{")
		have[strings.TrimSuffix(name, "_count")] = true // of a histogram
	}
	rows := regexp.MustCompile("(?m)^\\| `(slurm_\\w+)").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(rows), 50)
	for _, row := range rows {
		if !have[row[1]] && !slices.Contains([]string{
			"slurm_partition_oldest_pending_timestamp_seconds", "slurm_backfill_last_cycle_timestamp_seconds", // all that wait are held
			"slurm_node_failures_total",                                           // no node has failed
			"slurm_controller_rpcs_queued", "slurm_controller_rpcs_dropped_total", // no rpc queues are set up
		}, row[1]) {
			missing = append(missing, row[1])
		}
	}
	return missing
}

func number(t *testing.T, text, pattern string) float64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s in %s", pattern, text)
	n, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return n
}
