package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
)

func newQuantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

// timeJob prints the nanoseconds from just before sbatch until squeue shows RUNNING, looked at
// every 50 ms, where slurmctld runs. It begins at any moment of a second: slurmctld works by the
// second, and runs one after the other would always meet the same moment of its.
const timeJob = `
sleep "0.$(printf %%03d $((RANDOM %% 1000)))"
t0=$(date +%%s%%N)
id=$(sbatch --parsable --output=/dev/null -N%d --exclusive --wrap 'sleep 600')
for ((i = 0; i < 4000; i++)); do
	[ "$(squeue -h -j "$id" -o %%T)" = RUNNING ] && break
	sleep 0.05
done
[ "$(squeue -h -j "$id" -o %%T)" = RUNNING ] || { echo "job $id does not run: $(squeue -h -j "$id")" >&2; exit 1; }
t1=$(date +%%s%%N)
scancel "$id"
echo $((t1 - t0))
`

// job runs an n-node batch job from zero and returns the seconds until it ran.
func (b *bench) job(n int) (float64, error) {
	out, err := b.sh(fmt.Sprintf(timeJob, n))
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(out, 10, 64)
	return float64(ns) / 1e9, err
}

// zero powers all nodes of the partition down and waits until nothing is left of them.
func (b *bench) zero(partition string) error {
	_, err := b.sh("p=" + partition + `
for ((i = 0; i < 600; i++)); do
	[ -z "$(squeue -h)" ] && break
	sleep 0.2
done
up=$(sinfo -h -N -p $p -o '%N %T' | awk '$2 !~ /~$/ {print $1}' | sort -u | paste -sd,)
[ -z "$up" ] || scontrol update nodename="$up" state=power_down
for ((i = 0; i < 600; i++)); do
	sinfo -h -N -p $p -o %T | grep -qv '~$' || exit 0
	sleep 0.2
done
echo "nodes are not powered down: $(sinfo -h -p $p -o '%N %T')" >&2
exit 1`)
	if err != nil {
		return err
	}
	for range 300 {
		left, err := b.kube.CoreV1().Pods(b.Options.Namespace).List(b.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode})
		if err != nil {
			return err
		}
		if len(left.Items) == 0 {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return errors.New("slurmd pods are still there")
}

// runsPerLife is how many runs of the 2-node job one slurmctld gets.
const runsPerLife = 5

// twoNodes adds up to runsPerLife values, until there are enough. It leaves the first run out: a slurmctld that has just started
// goes by the default batch_sched_delay until its first scheduling pass.
func (b *bench) twoNodes(enough int, values *[]float64) error {
	for i := range runsPerLife + 1 {
		if len(*values) == enough {
			break
		}
		v, err := b.job(2)
		if err != nil {
			return err
		}
		if i > 0 {
			*values = append(*values, v)
		}
		if err := b.zero("all"); err != nil {
			return err
		}
	}
	return nil
}

// scale compares a job on many nodes with the same pods created directly in one go.
type scale struct {
	Nodes  int     `json:"nodes"`
	Job    samples `json:"job_s"`    // sbatch to RUNNING
	Direct samples `json:"direct_s"` // first create to the last pod Running
	// Limit is 1.25 times the median of Direct plus 2 s.
	Limit float64 `json:"limit_s"`
}

func (b *bench) scale(nodes int) (scale, error) {
	var job, direct []float64
	for range 3 {
		v, err := b.direct(nodes)
		if err != nil {
			return scale{}, err
		}
		direct = append(direct, v)
		if v, err = b.job(nodes); err != nil {
			return scale{}, err
		}
		job = append(job, v)
		if err := b.zero("all"); err != nil {
			return scale{}, err
		}
	}
	s := scale{Nodes: nodes, Job: summarise(job), Direct: summarise(direct)}
	s.Limit = 1.25*s.Direct.Median + 2
	return s, nil
}

// direct creates the pods that the bridge would create, all at once, and returns the seconds
// until the last one runs.
func (b *bench) direct(nodes int) (float64, error) {
	ns := &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "direct", UID: "direct"}, Spec: v1alpha1.NodeSetSpec{
		Shape: v1alpha1.Shape{CPUs: 2, RealMemory: 400}, Template: b.template(),
	}}
	api := b.kube.CoreV1().Pods(b.Options.Namespace)
	selector := metav1.ListOptions{LabelSelector: "direct=yes"}
	began := time.Now()
	var wg sync.WaitGroup
	failed := make(chan error, nodes)
	for i := range nodes {
		pod, err := pods.Build(ns, fmt.Sprintf("direct-%d", i), 1, "direct", pods.PodOptions{ConfServer: b.ConfServer()})
		if err != nil {
			return 0, err
		}
		pod.Labels, pod.OwnerReferences = map[string]string{"direct": "yes"}, nil // none of the bridge's business
		wg.Go(func() {
			if _, err := api.Create(b.ctx, pod, metav1.CreateOptions{}); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return 0, err
	}
	var took float64
	for took == 0 {
		list, err := api.List(b.ctx, selector)
		if err != nil {
			return 0, err
		}
		running := 0
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		switch {
		case running == nodes:
			took = time.Since(began).Seconds()
		case time.Since(began) > 3*time.Minute:
			return 0, fmt.Errorf("%d of %d pods run", running, nodes)
		default:
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := api.DeleteCollection(b.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, selector); err != nil {
		return 0, err
	}
	for range 600 {
		list, err := api.List(b.ctx, selector)
		if err != nil {
			return 0, err
		}
		if len(list.Items) == 0 {
			return took, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return 0, errors.New("the pods created directly do not go")
}
