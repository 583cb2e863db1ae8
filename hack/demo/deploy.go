package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// controlPlanePod is the pod that package stack makes.
const controlPlanePod = "slurmctld-0"

// cluster is what the demo deploys: ten CPU nodes and two with GPUs, which say the same in slurm.conf and in their NodeSets.
func clusterOptions(namespace, version string) (stack.Options, error) {
	gpus, err := stack.FakeGPUs("gpu-[0-1]", "h100", 2)
	if err != nil {
		return stack.Options{}, err
	}
	return stack.Options{
		Namespace:    namespace,
		SlurmVersion: version,
		NodeLines: []string{
			"NodeName=cpu-[0-9] CPUs=2 RealMemory=500 State=CLOUD",
			"NodeName=gpu-[0-1] CPUs=2 RealMemory=500 Gres=gpu:h100:2 State=CLOUD",
		},
		PartitionLines: []string{
			"PartitionName=cpu Nodes=cpu-[0-9] Default=YES MaxTime=1:00:00",
			"PartitionName=gpu Nodes=gpu-[0-1] MaxTime=1:00:00",
		},
		GresLines: []string{gpus},
		Gate:      true,
		// Long enough to read a job's output in its pod before the pod goes.
		SuspendTime: 10,
	}, nil
}

// nodeSets are the two NodeSets for the nodes of clusterOptions.
func nodeSets(o stack.Options, clusterName string) []*v1alpha1.NodeSet {
	make := func(name, names, gres string) *v1alpha1.NodeSet {
		template := stack.PodTemplate(o)
		// Small requests, or a machine with two cores could hold one node. They would come from the shape otherwise.
		template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi"),
		}
		return &v1alpha1.NodeSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.Namespace},
			Spec: v1alpha1.NodeSetSpec{
				ClusterRef: v1alpha1.ClusterRef{Name: clusterName},
				NodeNames:  names,
				Shape:      v1alpha1.Shape{CPUs: 2, RealMemory: 500, Gres: gres},
				Template:   template,
			},
		}
	}
	return []*v1alpha1.NodeSet{make("cpu", "cpu-[0-9]", ""), make("gpu", "gpu-[0-1]", "gpu:h100:2")}
}

// deploy brings Slurm and the bridge up, in a namespace that it makes anew.
func (d *demo) deploy(ctx context.Context) (string, error) {
	o := d.stack.Options
	if err := d.stack.Delete(ctx); err != nil {
		return "", err
	}
	var err error
	if d.stack, err = stack.Deploy(ctx, d.config, o); err != nil {
		return "", err
	}
	if err := d.stack.WaitReady(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("slurmctld, slurmrestd and the bridge run in pod %s of namespace %s", controlPlanePod, o.Namespace), nil
}

// wakeScheduler returns when the scheduler has had its first pass. Only there it reads SchedulerParameters; until then batch_sched_delay
// is 3 s (job_scheduler.c), and the first job would show how slurmctld starts and not how nodes do.
func (d *demo) wakeScheduler(ctx context.Context) (string, error) {
	// Setting what is set already asks for a pass.
	if _, _, err := d.stack.Exec(ctx, stack.ContainerSlurmctld, "scontrol", "update", "PartitionName=cpu", "State=UP"); err != nil {
		return "", err
	}
	for {
		out, _, err := d.stack.Exec(ctx, stack.ContainerSlurmctld, "sdiag", "--json")
		if err != nil {
			return "", err
		}
		passes, err := printed.ParsePasses(out)
		if err != nil {
			return "", err
		}
		if passes > 0 {
			return "slurmctld has just started; its scheduler has now read slurm.conf's SchedulerParameters", nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return "", fmt.Errorf("slurmctld's scheduler has not run: %w", context.Cause(ctx))
		}
	}
}

// createNodeSets returns when the bridge has accepted them and found their nodes in Slurm.
func (d *demo) createNodeSets(ctx context.Context) (string, error) {
	client := d.tide.SlurmtideV1alpha1().NodeSets(d.stack.Options.Namespace)
	sets := nodeSets(d.stack.Options, d.stack.Options.ClusterName)
	for _, ns := range sets {
		if _, err := client.Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return "", fmt.Errorf("creating NodeSet %s: %w", ns.Name, err)
		}
	}
	for _, ns := range sets {
		for {
			got, err := client.Get(ctx, ns.Name, metav1.GetOptions{})
			if err != nil {
				return "", fmt.Errorf("reading NodeSet %s: %w", ns.Name, err)
			}
			problem := nodeSetProblem(got)
			if problem == "" {
				break
			}
			if !pause(ctx, 100*time.Millisecond) {
				return "", fmt.Errorf("NodeSet %s is not ready: %s: %w", ns.Name, problem, context.Cause(ctx))
			}
		}
	}
	return "cpu with nodes cpu-[0-9], gpu with nodes gpu-[0-1] and two GPUs each; all are off", nil
}

// nodeSetProblem says why the NodeSet cannot be used yet.
func nodeSetProblem(ns *v1alpha1.NodeSet) string {
	for _, name := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionNodesInSlurm} {
		c := meta.FindStatusCondition(ns.Status.Conditions, name)
		switch {
		case c == nil || c.ObservedGeneration != ns.Generation:
			return "the bridge has not looked at it yet"
		case c.Status != metav1.ConditionTrue:
			return c.Message
		}
	}
	return ""
}
