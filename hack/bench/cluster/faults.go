package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// narrowNodes share a host port: the one host has room for one of them.
const narrowNodes = "narrow-[0-2]"

func withNarrow(o *stack.Options) {
	o.NodeLines = append(o.NodeLines, "NodeName="+narrowNodes+" CPUs=2 RealMemory=400 State=CLOUD")
	o.PartitionLines = append(o.PartitionLines, "PartitionName=narrow Nodes="+narrowNodes)
}

// timeGiveBack runs a 3-node job that gets one node, and prints the nanoseconds since 1970 at which its record first said why while
// no node of it was powering up any more, looked at every 100 ms, where slurmctld runs.
const timeGiveBack = `
id=$(sbatch --parsable --output=/dev/null -N3 --exclusive -p narrow --wrap 'sleep 600')
for ((i = 0; i < 600; i++)); do
	if scontrol --oneliner show job "$id" | grep -q 'AdminComment=slurmtide: capacity: ' &&
		! scontrol --oneliner show node '` + narrowNodes + `' | grep -q 'State=[^ ]*POWERING_UP'; then
		date +%s%N
		scancel "$id"
		exit 0
	fi
	sleep 0.1
done
scontrol show job "$id" >&2
exit 1
`

// giveBacks measures how long it takes, from the resume request on, until a job with a member that fits nowhere has been given back
// whole and says why. Nothing of the NodeSet is set: the grace is the default.
func (b *bench) giveBacks(runs int) ([]float64, error) {
	t := b.template()
	t.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9, HostPort: 31009}}
	sets := b.tide.SlurmtideV1alpha1().NodeSets(b.Options.Namespace)
	_, err := sets.Create(b.ctx, &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Spec: v1alpha1.NodeSetSpec{
		ClusterRef: v1alpha1.ClusterRef{Name: b.Options.ClusterName}, NodeNames: narrowNodes,
		Shape: v1alpha1.Shape{CPUs: 2, RealMemory: 400}, Template: t,
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	var values []float64
	for i := range runs {
		began := time.Now()
		out, err := b.sh(timeGiveBack)
		if err != nil {
			return nil, err
		}
		ended, err := strconv.ParseInt(out, 10, 64)
		if err != nil {
			return nil, err
		}
		asked, err := b.asked("narrow-", began)
		if err != nil {
			return nil, err
		}
		values = append(values, time.Unix(0, ended).Sub(asked).Seconds())
		if _, err := b.zero("narrow"); err != nil {
			return nil, err
		}
		again := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"run":"%d"}}}}}`, i) // tried again at once
		if _, err := sets.Patch(b.ctx, "narrow", types.MergePatchType, []byte(again), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		if _, err := b.sh(`for ((i = 0; i < 300; i++)); do
	scontrol --oneliner show node '` + narrowNodes + `' | grep -q 'State=[^ ]*DRAIN' || exit 0
	sleep 0.2
done
echo "the NodeSet is not tried again" >&2
exit 1`); err != nil {
			return nil, err
		}
	}
	return values, nil
}

var accepted = regexp.MustCompile(`^time=(\S+) .*msg="request accepted" program=resume .* nodes="?(\S+)`)

// asked is when resume wrote its first request after a moment whose nodes begin so.
func (b *bench) asked(nodes string, after time.Time) (at time.Time, err error) {
	log, err := b.sh("cat /var/spool/slurmtide/programs.log")
	if err != nil {
		return at, err
	}
	for line := range strings.Lines(log) {
		if m := accepted.FindStringSubmatch(line); m != nil && strings.HasPrefix(m[2], nodes) {
			if at, err = time.Parse(time.RFC3339Nano, m[1]); err != nil || at.After(after) {
				return at, err
			}
		}
	}
	return at, fmt.Errorf("programs.log has no new request for %s", nodes)
}

// killedNodes are those of the job in whose resume the bridge is killed.
const killedNodes = "cpu-[0-3]"

// goesOn kills the bridge while nodes boot, as kill -9 does, and measures from the start of the next one until it has done something
// for each of them.
func (b *bench) goesOn(runs int) (values []float64, err error) {
	for range 3 * runs { // now and then nothing is in hand any more
		if len(values) == runs {
			return values, nil
		}
		took, inHand, err := b.killed()
		if err != nil {
			return nil, err
		}
		if inHand {
			values = append(values, took.Seconds())
		}
		if _, err := b.zero("all"); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the bridge had something in hand in only %d of %d kills", len(values), 3*runs)
}

func (b *bench) killed() (took time.Duration, inHand bool, err error) {
	nodes, err := slurmconf.ParseHostlist(killedNodes)
	if err != nil {
		return 0, false, err
	}
	id, err := b.sh(`cd /var/spool/slurmtide
count() { grep -c 'msg="request accepted" program=resume' programs.log || [ $? = 1 ]; }
touch programs.log
before=$(count)
id=$(sbatch --parsable --output=/dev/null --exclusive --nodelist='` + killedNodes + `' --wrap 'sleep 600')
for ((i = 0; i < 1000; i++)); do
	if [ "$(count)" != "$before" ]; then
		echo "$id"
		exit 0
	fi
	sleep 0.02
done
echo "resume was not called for job $id within 20 s" >&2
exit 1`)
	if err != nil {
		return 0, false, err
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	before, err := b.restarts()
	if err != nil {
		return 0, false, err
	}
	if err := b.Signal(b.ctx, "KILL", stack.ContainerBridge); err != nil {
		return 0, false, err
	}
	var on stack.Onward
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		on, err = b.onward(before, nodes)
		waited := time.Since(began)
		switch done := err == nil && len(on.Waiting()) == 0; {
		case done && len(on.InHand) > 0, done && waited > 20*time.Second:
			_, err = b.sh("scancel " + id)
			return on.Slowest().After, len(on.InHand) > 0, err
		case waited > time.Minute:
			return 0, false, fmt.Errorf("after a kill nothing was done for %v: %w", on.Waiting(), err)
		}
	}
}

// onward reads the log of the bridge that was started after so many others.
func (b *bench) onward(before int32, nodes slurmconf.Hostlist) (stack.Onward, error) {
	now, err := b.restarts()
	if err != nil {
		return stack.Onward{}, err
	}
	if now == before {
		return stack.Onward{}, errors.New("the bridge was not started again")
	}
	log, err := b.kube.CoreV1().Pods(b.Options.Namespace).GetLogs("slurmctld-0", &corev1.PodLogOptions{Container: stack.ContainerBridge}).DoRaw(b.ctx)
	if err != nil {
		return stack.Onward{}, err
	}
	return stack.GoesOn(string(log), nodes)
}

// restarts is how often the bridge was started again.
func (b *bench) restarts() (int32, error) {
	pod, err := b.kube.CoreV1().Pods(b.Options.Namespace).Get(b.ctx, "slurmctld-0", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == stack.ContainerBridge {
			return s.RestartCount, nil
		}
	}
	return 0, errors.New("slurmctld's pod has no bridge")
}
