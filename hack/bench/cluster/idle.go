package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// idle describes the bridge while its nodes are up and nothing happens.
type idle struct {
	Nodes        int     `json:"nodes"`
	Seconds      float64 `json:"seconds"`
	RSS          float64 `json:"rss_mib"`
	CPU          float64 `json:"cpu_percent"` // of one core
	RESTRequests float64 `json:"slurmrestd_requests_per_minute"`
}

func (b *bench) idle(nodes int, period time.Duration) (idle, error) {
	if _, err := b.sh(fmt.Sprintf("scontrol update nodename=cpu-[0-%d] state=power_up >/dev/null", nodes-1)); err != nil {
		return idle{}, err
	}
	_, err := b.sh(fmt.Sprintf(`
for ((i = 0; i < 600; i++)); do
	[ "$(sinfo -h -N -p all -o %%T | grep -cx idle)" = %d ] && exit 0
	sleep 0.2
done
sinfo -p all >&2
exit 1`, nodes))
	if err != nil {
		return idle{}, fmt.Errorf("waiting for %d nodes: %w", nodes, err)
	}
	time.Sleep(5 * time.Second)
	before, err := b.usage()
	if err != nil {
		return idle{}, err
	}
	began := time.Now()
	time.Sleep(period)
	after, err := b.usage()
	if err != nil {
		return idle{}, err
	}
	took := time.Since(began).Seconds()
	return idle{
		Nodes: nodes, Seconds: took, RSS: after.rss,
		CPU:          (after.cpu - before.cpu) / took * 100,
		RESTRequests: (after.requests - before.requests) / took * 60,
	}, nil
}

type usage struct {
	rss, cpu, requests float64            // MiB, seconds, calls for slurmrestd
	kubernetes         map[string]float64 // requests by verb
}

var verbLabel = regexp.MustCompile(`verb="(\w+)"`)

// usage reads the bridge's own metrics, over bash: the image has no HTTP client.
func (b *bench) usage() (usage, error) {
	out, err := b.sh(`exec 3<>/dev/tcp/127.0.0.1/9441; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	if err != nil {
		return usage{}, fmt.Errorf("reading the bridge's metrics: %w", err)
	}
	u := usage{kubernetes: map[string]float64{}}
	for _, line := range strings.Split(out, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch {
		case name == "process_resident_memory_bytes":
			u.rss = v / (1 << 20)
		case name == "process_cpu_seconds_total":
			u.cpu = v
		case strings.HasPrefix(name, "slurmtide_slurm_calls_total"):
			u.requests += v
		case strings.HasPrefix(name, "slurmtide_kubernetes_requests_total"):
			if m := verbLabel.FindStringSubmatch(name); m != nil {
				u.kubernetes[m[1]] += v
			}
		}
	}
	if u.rss == 0 || u.cpu == 0 || u.requests == 0 || len(u.kubernetes) == 0 {
		return usage{}, fmt.Errorf("the bridge's metrics lack what is measured: %+v", u)
	}
	return u, nil
}

// comparison is one hostlist task done by both, in turn, as whole processes.
type comparison struct {
	Task      string  `json:"task"`
	Slurmtide samples `json:"slurmtide_s"`
	Scontrol  samples `json:"scontrol_s"`
	Ratio     float64 `json:"ratio"` // of the medians
}

func (b *bench) hostlists(program string) ([]comparison, error) {
	binary, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	if _, stderr, err := b.ExecInput(b.ctx, binary, stack.ContainerSlurmctld, "bash", "-c", "cat > /tmp/slurmtide && chmod 755 /tmp/slurmtide"); err != nil {
		return nil, fmt.Errorf("copying %s into the pod: %w: %s", program, err, stderr)
	}
	const list = "'n[0-49999,50000-99999]'" // scontrol refuses ranges of more than 65,536 names
	if _, err := b.sh(`/tmp/slurmtide hostlist expand ` + list + ` > /tmp/names; paste -sd, /tmp/names > /tmp/list`); err != nil {
		return nil, err
	}
	var all []comparison
	for _, task := range []struct{ name, ours, theirs string }{
		{"expand 100,000 names", "/tmp/slurmtide hostlist expand " + list, "scontrol show hostnames " + list},
		{"compress 100,000 names", "/tmp/slurmtide hostlist compress < /tmp/list", "scontrol show hostlist /tmp/list"},
	} {
		if _, err := b.sh(fmt.Sprintf("cmp <(%s) <(%s)", task.ours, task.theirs)); err != nil {
			return nil, fmt.Errorf("%s: the answers differ: %w", task.name, err)
		}
		var ours, theirs []float64
		for range 7 {
			for _, side := range []struct {
				command string
				into    *[]float64
			}{{task.ours, &ours}, {task.theirs, &theirs}} {
				out, err := b.sh(fmt.Sprintf("t0=$(date +%%s%%N); %s >/dev/null; t1=$(date +%%s%%N); echo $((t1 - t0))", side.command))
				if err != nil {
					return nil, err
				}
				ns, err := strconv.ParseFloat(out, 64)
				if err != nil {
					return nil, err
				}
				*side.into = append(*side.into, ns/1e9)
			}
		}
		c := comparison{Task: task.name, Slurmtide: summarise(ours), Scontrol: summarise(theirs)}
		c.Ratio = c.Slurmtide.Median / c.Scontrol.Median
		all = append(all, c)
	}
	return all, nil
}
