//go:build integration

package integration

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// silent are parts of the expressions of dashboards that need not show anything here, and why.
var silent = map[string]string{"slurmtide_dynamic_impossible_jobs": "no NodeSet is of mode Dynamic"}

// unprovoked are alerts that would take too long here, or trouble that other tests make. Promtool's tests of them are all there is.
var unprovoked = map[string]string{
	"SlurmAccountingBehind": "1,000 records would have to wait", "SlurmtideBootsSlow": "boots would have to take minutes",
	"SlurmtideHostMarked": "it would keep the pods of other tests off the host", "SlurmtideSlurmNotRead": "five minutes",
}

// hasty are parts of alerts' expressions that would take long, and what stands here in their place.
var hasty = map[string]string{
	`{what="power_down"}) > 900`: `{what="power_down"}) > 9`,
	"clamp_min(1.5 * max by":     "clamp_min(0.01 * max by", "{}), 1800)": "{}), 6)",
}

// A real Prometheus, with the rule files and dashboards of the charts, scrapes bridge, scaler, exporter and controller: nothing is wrong while jobs come and go,
// panels have something to show, and alerts see their trouble; silent and unprovoked name the others.
func TestPrometheus(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		gpus, err := stack.FakeGPUs("gpu-[0-1]", "h100", 2)
		require.NoError(t, err)
		c := deploy(t, "prometheus", version, stack.Options{
			Gate: true, OpenSlurmrestd: true, SuspendTime: 600, ResumeTimeout: 600, SpoolSize: "96Mi", GresLines: []string{gpus}, NodeLines: []string{"NodeName=spare-0 CPUs=2 RealMemory=400 State=CLOUD"},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=gpu Nodes=gpu-[0-1]", "PartitionName=ill Nodes=ill-[0-9]", "PartitionName=slow Nodes=slow-0", "PartitionName=soon Nodes=soon-0"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "gpu", nodes: "gpu-[0-1]", gres: "gpu:h100:2"}, nodeSet{name: "slow", nodes: "slow-0", gated: true},
			nodeSet{name: "soon", nodes: "soon-0"}, nodeSet{name: "ill", nodes: "ill-[0-9]", image: "registry.invalid/slurmd:none"})
		scaler := startScaler(c)
		exporter := c.startExporter("--interval=1s", "--timeout=1s", "--max-age=10s")
		controllerAddress := freeAddress(t)
		controller := c.start("../../bin/slurmtide", "controller", "--namespace", c.ns, "--kubeconfig", os.Getenv("KUBECONFIG"), "--image", "slurmtide", "--metrics-address", controllerAddress)
		bridge, err := c.Forward(c.ctx, 9441)
		require.NoError(t, err)
		p := c.startPrometheus(map[string]string{"bridge": bridge, "scaler": scaler.http, "exporter": exporter, "controller": controllerAddress})
		kubectl(t, "", "-n", c.ns, "patch", "nodeset", "soon", "--type=merge", "-p", `{"spec":{"lookAhead":{"maxNodes":1,"leadTime":"10s"}}}`)

		p.shows(map[string]float64{`count(up == 1)`: 4, `count(slurmtide_boots_total == 0)`: 5})

		c.sbatch("sleep 5", "-p", "soon", "--begin=now+20")
		two, gpu := c.sbatch("sleep 3600", "-N2", "--exclusive"), c.sbatch("sleep 3600", "-p", "gpu", "--gres=gpu:h100:2", "--exclusive")
		c.waitJob(two, "RUNNING")
		c.waitJob(gpu, "RUNNING")
		c.sbatch("true", "--hold", "--array=1-5")
		p.shows(map[string]float64{
			`sum(max by (namespace, job, nodeset) (slurmtide_nodes{state="powered_up",nodeset!="soon"}))`: 3, `sum(round(increase(slurmtide_boots_total{nodeset!="soon"}[5m])))`: 3,
			`sum(slurm_jobs{state="running"} == 2 or slurm_jobs{state="running"} == 3)`: 2, `sum(slurmtide_scaler_pending_jobs{why="held"})`: 1,
			`sum(slurmtide_controller_leading)`: 1,
		})
		p.fires()

		ill := c.sbatch("true", "-p", "ill", "--array=1-10", "--exclusive")
		p.fires("SlurmtideBootsFail", "SlurmtideBreakerOpen", "SlurmtideJobsGivenBack")
		c.slurm("scancel", ill)

		late := c.sbatch("true", "-p", "slow")
		p.fires("SlurmtideRequestsWait", "SlurmtideNodesFailed") // its boot has a problem
		c.ungate("slow-0")
		c.waitJob(late, "COMPLETED")
		pod := []string{"-n", c.ns, "patch", "pod", "slow-0", "--type=merge", "-p"}
		kubectl(t, "", append(pod, `{"metadata":{"finalizers":["slurmtide.io/test"]}}`)...)
		c.slurm("scontrol", "update", "NodeName=slow-0", "State=POWER_DOWN")
		p.fires("SlurmtidePowerDownsStuck")
		kubectl(t, "", append(pod, `{"metadata":{"finalizers":null}}`)...)

		// A floor, an object of the controller, boots for the second time, a job that waits, and one that no node can run any more.
		kubectl(t, "", "-n", c.ns, "patch", "nodeset", "gpu", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":1}}`)
		kubectl(t, "apiVersion: slurmtide.io/v1alpha1\nkind: Token\nmetadata: {name: nobody, namespace: "+c.ns+"}\nspec: {controllerRef: {name: none}, username: alice}\n", "apply", "-f", "-")
		c.waitJob(c.sbatch("sleep 3600", "-N2", "--exclusive"), "RUNNING")
		c.sbatch("true", "-N4", "--exclusive") // waits
		c.slurm("scontrol", "update", "nodename=cpu-[0-3]", "availablefeatures=rare", "activefeatures=rare")
		c.sbatch("true", "-C", "rare")
		c.slurm("scontrol", "update", "nodename=cpu-[0-3]", "availablefeatures=", "activefeatures=")

		c.slurmrestd("STOP")
		c.sbatch("true", "-p", "gpu") // without anything to do the bridge reads once a minute
		p.fires("SlurmtideBridgeBlind", "SlurmtideScalerBlind", "SlurmtideExporterBlind", "SlurmNotAnswering")
		c.slurmrestd("CONT")
		c.slurm("scontrol", "update", "NodeName=spare-0", "State=DOWN", "Reason=test")
		p.fires("SlurmNodesDown")

		// A certificate that is valid for an hour more, and a quota that lets nothing be made.
		certificate, key, _ := selfSigned(t, "localhost", x509.ExtKeyUsageServerAuth)
		p.scrapes("tls", startScaler(c, "--tls-cert", certificate, "--tls-key", key).http)
		kubectl(t, "", "-n", c.ns, "create", "quota", "none", "--hard=secrets=0,pods=0")
		kubectl(t, "apiVersion: slurmtide.io/v1alpha1\nkind: Controller\nmetadata: {name: other, namespace: "+c.ns+"}\nspec: {slurmctld: {image: none}}\n", "apply", "-f", "-")
		p.fires("SlurmtideScalerCertificateExpires", "SlurmtideControllerFails")
		c.sbatch("true", "-p", "soon", "--exclusive")
		p.allSeen(func() {
			_, _ = scaler.value(map[string]string{"nodeSet": "cpu"}) // an error until it has read Slurm again
		})
		p.understandsDocs()
		c.slurm("scancel", "--state=RUNNING", "--user="+c.slurm("id", "-un"))
		p.fires("SlurmNodesIdle")

		c.slurm("sh", "-c", "head -c 48M /dev/zero >/var/spool/slurmtide/filler") // the last 64 MiB are for requests
		c.slurm("scontrol", "update", "NodeName=cpu-[0-3]", "State=POWER_DOWN")   // something to tell
		p.fires("SlurmtideHistoryLost")
		c.slurm("rm", "/var/spool/slurmtide/filler")

		kubectl(t, "", "-n", c.ns, "patch", "lease", pods.LeaseName(c.Options.ClusterName), "--type=merge", "-p", `{"spec":{"holderIdentity":"another"}}`)
		p.fires("SlurmtideBridgeNotLeading")

		scaler.hang(t)
		controller.hang(t)
		require.NoError(t, c.Signal(c.ctx, "STOP", stack.ContainerBridge))
		t.Cleanup(func() { assert.NoError(t, c.Signal(context.WithoutCancel(c.ctx), "CONT", stack.ContainerBridge)) })
		kubectl(t, "", "-n", c.ns, "delete", "deployment", "slurmtide-exporter")
		p.fires("SlurmtideBridgeDown", "SlurmtideScalerDown", "SlurmtideExporterDown", "SlurmtideControllerNotLeading")

		// The others' certificates, each of a daemon that has nothing to do.
		tls := func(daemon string, args ...string) {
			address := freeAddress(t)
			c.start("../../bin/slurmtide", append([]string{daemon, "--metrics-address", address, "--tls-cert", certificate, "--tls-key", key}, args...)...)
			p.scrapes("tls-"+daemon, "https://"+address)
		}
		slurmrestd, err := c.Forward(c.ctx, 6820)
		require.NoError(t, err)
		slurm, kube := []string{"--cluster", "nobody", "--slurmrestd", "http://" + slurmrestd, "--jwt-key", c.jwtKeyFile()}, []string{"--kubeconfig", os.Getenv("KUBECONFIG"), "--namespace"}
		tls("exporter", slurm...)
		tls("bridge", slices.Concat(slurm, kube, []string{c.ns, "--spool", t.TempDir()})...)
		tls("controller", append(kube, c.ns+"-nobody", "--image", "slurmtide")...)
		p.fires("SlurmtideExporterCertificateExpires", "SlurmtideBridgeCertificateExpires", "SlurmtideControllerCertificateExpires")
		for _, alert := range slices.Sorted(maps.Keys(p.alerts())) {
			_, excused := unprovoked[alert]
			assert.NotEqual(t, p.fired[alert], excused, "%s: either it fires here, or unprovoked has it", alert)
		}
	})
}

// prometheus is one that runs beside the test.
type prometheus struct {
	c       *cluster
	address string
	targets string   // file of scrape targets
	groups  []any    // in it
	waiting []string // expressions of dashboards that had no value yet
	fired   map[string]bool
}

// startPrometheus runs Prometheus with the rules of the charts; targets are addresses by job.
func (c *cluster) startPrometheus(targets map[string]string) *prometheus {
	c.t.Helper()
	p := &prometheus{c: c, address: freeAddress(c.t), waiting: c.expressions(), fired: map[string]bool{}}
	rules, err := filepath.Glob("../../helm/*/alerts/*.yaml")
	require.NoError(c.t, err)
	require.Len(c.t, rules, 4)
	dir := c.t.TempDir()
	p.targets = filepath.Join(dir, "targets.json")
	for job, address := range targets {
		p.scrapes(job, address)
	}
	config := map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{filepath.Join(dir, "*.yaml")},
		"scrape_configs": []any{map[string]any{"job_name": "all", "tls_config": map[string]any{"insecure_skip_verify": true}, "file_sd_configs": []any{map[string]any{"files": []string{p.targets}, "refresh_interval": "1s"}}}},
	}
	unused := maps.Clone(hasty)
	for _, file := range rules {
		text, err := os.ReadFile(file)
		require.NoError(c.t, err)
		for slow, fast := range hasty {
			if bytes.Contains(text, []byte(slow)) {
				delete(unused, slow)
				text = bytes.ReplaceAll(text, []byte(slow), []byte(fast))
			}
		}
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644))
	}
	require.Empty(c.t, unused)
	text, err := json.Marshal(config) // JSON is YAML
	require.NoError(c.t, err)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(c.t, os.WriteFile(file, text, 0o644))
	c.start("../../hack/prometheus.sh", "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	c.eventually("Prometheus", func() (bool, string) {
		_, err := p.ask("query", url.Values{"query": {"up"}})
		return err == nil, fmt.Sprint(err)
	})
	return p
}

// scrapes adds a target, by HTTP unless its address is of another scheme.
func (p *prometheus) scrapes(job, address string) {
	p.c.t.Helper()
	scheme, target, found := strings.Cut(address, "://")
	if !found {
		scheme, target = "http", address
	}
	p.groups = append(p.groups, map[string]any{"targets": []string{target}, "labels": map[string]string{"job": job, "namespace": p.c.ns, "__scheme__": scheme}})
	text, err := json.Marshal(p.groups)
	require.NoError(p.c.t, err)
	require.NoError(p.c.t, os.WriteFile(p.targets+".new", text, 0o644))
	require.NoError(p.c.t, os.Rename(p.targets+".new", p.targets))
}

// expressions are those of all dashboards.
func (c *cluster) expressions() (found []string) {
	files, err := filepath.Glob("../../helm/*/dashboards/*.json")
	require.NoError(c.t, err)
	require.Len(c.t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(c.t, err)
		var board struct {
			Panels []struct {
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		require.NoError(c.t, json.Unmarshal(text, &board))
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				found = append(found, target.Expr)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// ask calls Prometheus' API, and returns the answer's data.
func (p *prometheus) ask(what string, values url.Values) (json.RawMessage, error) {
	r, err := http.Get("http://" + p.address + "/api/v1/" + what + "?" + values.Encode())
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data  json.RawMessage `json:"data"`
		Error string          `json:"error"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", r.Status, err, text)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %v", answer.Error, values)
	}
	return answer.Data, nil
}

// values are those of an expression now, without those that are no number.
func (p *prometheus) values(expression string) (found []float64) {
	p.c.t.Helper()
	data, err := p.ask("query", url.Values{"query": {expression}})
	require.NoError(p.c.t, err)
	var result struct {
		Result []struct {
			Value [2]any `json:"value"`
		} `json:"result"`
	}
	require.NoError(p.c.t, json.Unmarshal(data, &result), "%s: %s", expression, data)
	for _, series := range result.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64)
		require.NoError(p.c.t, err)
		if v == v {
			found = append(found, v)
		}
	}
	return found
}

// look strikes out the dashboards' expressions that have a value now, for all that can be chosen.
func (p *prometheus) look() {
	chosen := strings.NewReplacer("$namespace", p.c.ns, "$__rate_interval", "20s", "$__range", "5m", "$job", ".+", "$nodeset", ".+", "$cluster", ".+", "$partition", ".+", "$kind", ".+")
	p.waiting = slices.DeleteFunc(p.waiting, func(expression string) bool { return len(p.values(chosen.Replace(expression))) > 0 })
}

// shows waits until each of these expressions has the one value.
func (p *prometheus) shows(want map[string]float64) {
	p.c.t.Helper()
	p.c.eventually("Prometheus to show it", func() (bool, string) {
		p.look()
		for expression, value := range want {
			if got := p.values(expression); len(got) != 1 || got[0] != value {
				return false, fmt.Sprintf("%s is %v, not %v", expression, got, value)
			}
		}
		return true, ""
	})
}

// allSeen waits until each expression of the dashboards has had a value, but for the silent ones. It does something meanwhile.
func (p *prometheus) allSeen(meanwhile func()) {
	p.c.t.Helper()
	p.c.eventually("the dashboards", func() (bool, string) {
		meanwhile()
		p.look()
		missing := slices.DeleteFunc(slices.Clone(p.waiting), func(expression string) bool {
			return slices.ContainsFunc(slices.Collect(maps.Keys(silent)), func(part string) bool { return strings.Contains(expression, part) })
		})
		return len(missing) == 0, "without a value: " + strings.Join(missing, "\n")
	})
}

// inDocs are expressions that docs have in a line of text. Those that only name labels, as "slurmtide_readable{api}", are none.
var inDocs = regexp.MustCompile("`([a-z(][^`|]*slurm(?:tide)?_[a-z_]+[^`|]*[ (\"][^`|]*|slurm(?:tide)?_[a-z_]+[^`|]*[ (\"][^`|]*)`")

// understandsDocs sees that expressions of the documentation are ones, and that there are their metrics.
func (p *prometheus) understandsDocs() {
	p.c.t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(p.c.t, err)
	known, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(p.c.t, err)
	metric := regexp.MustCompile(`slurm(tide)?_[a-z_]+`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(p.c.t, err)
		for line := range strings.Lines(string(text)) {
			for _, m := range inDocs.FindAllStringSubmatch(line, -1) {
				found++
				_, err := p.ask("query", url.Values{"query": {m[1]}})
				require.NoError(p.c.t, err, "%s: %s", file, m[1])
				for _, name := range metric.FindAllString(m[1], -1) {
					assert.Contains(p.c.t, string(known), "`"+strings.TrimSuffix(name, "_bucket")+"`", "%s: %s", file, m[1])
				}
			}
		}
	}
	assert.Greater(p.c.t, found, 10)
}

// alerts are the states of all alerts by name: inactive, pending (it waits for its time) or firing.
func (p *prometheus) alerts() map[string]string {
	p.c.t.Helper()
	data, err := p.ask("rules", nil)
	require.NoError(p.c.t, err)
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string } `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(p.c.t, json.Unmarshal(data, &rules))
	states := map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			require.Contains(p.c.t, []string{"ok", "unknown"}, r.Health, "%s: %s", r.Name, r.LastError)
			states[r.Name] = r.State
		}
	}
	require.Greater(p.c.t, len(states), 20)
	return states
}

// fires waits until these alerts see their trouble, and no others but those that did so before: some look back.
func (p *prometheus) fires(want ...string) {
	p.c.t.Helper()
	began := time.Now()
	defer func() { p.c.t.Logf("%q after %s", want, time.Since(began).Round(time.Second)) }()
	p.c.eventually("alerts", func() (bool, string) {
		p.look()
		states := p.alerts()
		for _, name := range want {
			if states[name] != "pending" && states[name] != "firing" {
				return false, fmt.Sprintf("%s is %s of %v", name, states[name], states)
			}
		}
		for name, state := range states {
			if state != "inactive" && !p.fired[name] && !slices.Contains(want, name) {
				return false, fmt.Sprintf("%s is %s", name, state)
			}
		}
		for _, name := range want {
			p.fired[name] = true
		}
		return true, ""
	})
}
