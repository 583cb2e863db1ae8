package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// fleet is what many nodes cost that Slurm wants at once. Their pods only pretend to run, on hosts that only pretend to be there (kwok):
// no slurmd registers, all else is real.
type fleet struct {
	Nodes int `json:"nodes"`
	Jobs  int `json:"jobs"` // that wanted them: one, or as many as nodes
	// Direct are as many pods like the bridge's, created directly by a client with the bridge's limits: seconds until the last is
	// there, and until the last is Running.
	Direct made `json:"direct"`
	// Bridge are the bridge's, from when resume wrote its request.
	Bridge made `json:"bridge"`
	// Gone is from powering them down in Slurm until the last pod is gone, in seconds.
	Gone float64 `json:"gone_s"`
	// The bridge's requests to the API server, by verb, for each node, from nothing to nothing.
	Requests map[string]float64 `json:"kubernetes_requests_per_node"`
	// SlurmCalls are its calls for slurmrestd, all together.
	SlurmCalls float64 `json:"slurm_calls"`
	CPU        float64 `json:"cpu_s"`
	RSS        float64 `json:"rss_mib"` // afterwards
	// RPC is slurmctld's own time for the requests of SlurmUser, by which slurmrestd and the programs speak (sdiag), in seconds.
	RPC  float64 `json:"slurmctld_rpc_s"`
	Load load    `json:"slurmctld_load"`
}

const (
	podsPerHost  = 250
	pretended    = "kwok" // label and taint of pretended hosts
	fleetPatient = 20 * time.Minute
)

// withFleet gives slurmctld that many nodes more.
func withFleet(nodes int) func(*stack.Options) {
	return func(o *stack.Options) {
		o.NodeLines = append(o.NodeLines, fmt.Sprintf("NodeName=far-[0-%d] CPUs=2 RealMemory=400 State=CLOUD", nodes-1))
		o.PartitionLines = append(o.PartitionLines, fmt.Sprintf("PartitionName=far Nodes=far-[0-%d]", nodes-1))
		// Nothing registers: nobody gives the nodes up before they are powered down. Many gates may wait.
		o.ResumeTimeout, o.SuspendTimeout = 7200, 1200
		o.ExtraConf = []string{"AuthInfo=ttl=600,cred_expire=600", "MessageTimeout=100"}
	}
}

// mostTasks is how many tasks an array may have, by the default of MaxArraySize.
const mostTasks = 1000

// fleets measures each number of nodes with one job, and those that an array can want also with as many jobs as nodes.
func (b *bench) fleets(kwok string, sizes []int) (all []fleet, err error) {
	ns, stop, err := b.far(kwok, slices.Max(sizes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, nodes := range sizes {
		all = append(all, fleet{Nodes: nodes, Jobs: 1})
		if nodes <= mostTasks {
			all = append(all, fleet{Nodes: nodes, Jobs: nodes})
		}
	}
	for i := range all {
		f := &all[i]
		if err := b.quiet(); err != nil {
			return nil, err
		}
		if f.Direct, err = b.direct(ns, f.Nodes); err != nil {
			return nil, fmt.Errorf("%d pods created directly: %w", f.Nodes, err)
		}
		if err := b.quiet(); err != nil {
			return nil, err
		}
		if err := b.fleet(f); err != nil {
			return nil, fmt.Errorf("%d nodes for %d jobs: %w", f.Nodes, f.Jobs, err)
		}
	}
	return all, nil
}

// far makes the NodeSet of the nodes that withFleet adds, and hosts for their pods.
func (b *bench) far(kwok string, nodes int) (*v1alpha1.NodeSet, func() error, error) {
	stop, err := b.pretend(kwok, nodes/podsPerHost+2)
	if err != nil {
		return nil, nil, err
	}
	t := b.template()
	t.Spec.NodeSelector = map[string]string{pretended: "yes"}
	t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{Key: pretended, Operator: corev1.TolerationOpExists})
	ns := &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: v1alpha1.NodeSetSpec{
		ClusterRef: v1alpha1.ClusterRef{Name: b.Options.ClusterName}, NodeNames: fmt.Sprintf("far-[0-%d]", nodes-1),
		Shape: v1alpha1.Shape{CPUs: 2, RealMemory: 400}, Template: t,
	}}
	if _, err := b.tide.SlurmtideV1alpha1().NodeSets(b.Options.Namespace).Create(b.ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return ns, stop, nil
}

// pretend starts kwok, and makes hosts for it to keep. What it returns takes both away.
func (b *bench) pretend(dir string, count int) (func() error, error) {
	log, err := os.CreateTemp("", "kwok")
	if err != nil {
		return nil, err
	}
	kwok := exec.Command(filepath.Join(dir, "kwok"), "--config", filepath.Join(dir, "stages.yaml"), "--kubeconfig", os.Getenv("KUBECONFIG"), "--manage-all-nodes=false", "--manage-nodes-with-label-selector="+pretended+"=yes",
		"--node-lease-duration-seconds=40")
	kwok.Stdout, kwok.Stderr = log, log
	kwok.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := kwok.Start(); err != nil {
		return nil, fmt.Errorf("starting kwok: %w", err)
	}
	hosts := b.kube.CoreV1().Nodes()
	stop := func() error {
		err := hosts.DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: pretended + "=yes"})
		_ = kwok.Process.Kill()
		_ = kwok.Wait()
		return errors.Join(err, log.Close(), os.Remove(log.Name()))
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: *resource.NewQuantity(podsPerHost, resource.DecimalSI),
	}
	for i := range count {
		host := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pretended, i), Labels: map[string]string{pretended: "yes"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: pretended, Effect: corev1.TaintEffectNoSchedule}}},
			Status:     corev1.NodeStatus{Allocatable: room, Capacity: room},
		}
		if _, err := hosts.Create(b.ctx, host, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, errors.Join(err, stop())
		}
	}
	err = b.eventually(time.Minute, func() (bool, string, error) {
		list, err := hosts.List(b.ctx, metav1.ListOptions{LabelSelector: pretended + "=yes"})
		if err != nil {
			return false, "", err
		}
		ready := 0
		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		text, _ := os.ReadFile(log.Name())
		return ready == count, fmt.Sprintf("%d of %d pretended hosts are ready; kwok says: %s", ready, count, text[max(0, len(text)-2000):]), nil
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// fleet has Slurm want the nodes, and powers them down when their pods are Running.
func (b *bench) fleet(f *fleet) error {
	s := b.watch(v1alpha1.LabelNode)
	defer close(s.stop)
	before, err := b.usage()
	if err != nil {
		return err
	}
	submit := fmt.Sprintf("sbatch --quiet --output=/dev/null -p far -N%d --exclusive --wrap true", f.Nodes)
	if f.Jobs > 1 {
		submit = fmt.Sprintf("sbatch --quiet --output=/dev/null -p far --array=1-%d -N1 --exclusive --wrap true", f.Jobs)
	}
	began := time.Now()
	if _, err := b.sh("sdiag --reset; " + submit + " >/dev/null"); err != nil {
		return err
	}
	if err := b.wait(s, f.Nodes); err != nil {
		return err
	}
	asked, err := b.asked("far-", began)
	if err != nil {
		return err
	}
	f.Bridge = s.since(asked, f.Nodes)
	down := time.Now()
	if _, err := b.sh(fmt.Sprintf("scancel -p far; scontrol update nodename='far-[0-%d]' state=power_down_force", f.Nodes-1)); err != nil {
		return err
	}
	if err := b.wait(s, 0); err != nil {
		return err
	}
	f.Gone = s.lastGone.Sub(down).Seconds()
	if _, err := b.zero("far"); err != nil {
		return err
	}
	after, err := b.usage()
	if err != nil {
		return err
	}
	f.Requests = map[string]float64{}
	for verb, n := range after.kubernetes {
		if n -= before.kubernetes[verb]; n > 0 {
			f.Requests[verb] = n / float64(f.Nodes)
		}
	}
	f.SlurmCalls, f.CPU, f.RSS = after.requests-before.requests, after.cpu-before.cpu, after.rss
	d, err := b.diag()
	if err != nil {
		return err
	}
	f.Load.add(d, true)
	for _, u := range d.Users {
		if u.Name == "slurm" {
			f.RPC = u.Time / 1e6
		}
	}
	if f.RPC == 0 {
		return errors.New("sdiag tells nothing of the user slurm")
	}
	return nil
}
