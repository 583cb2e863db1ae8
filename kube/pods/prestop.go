package pods

import corev1 "k8s.io/api/core/v1"

// lastJobs is the script of slurmd's preStop hook: it returns when no job is on the node, and the kubelet ends slurmd then, or when the
// pod's grace period is over. While it runs slurmd stays registered, and what runs under it runs on.
//
// A job shows as its slurmstepd: one for each step, one for the batch script, and one for the whole job with PrologFlags=Contain. Such
// a process is told from the one that only keeps slurmd's cgroup, "slurmstepd infinity" (cgroup_v2.c), and from one that has ended
// and that slurmd, which is its parent as the container's first process, has not taken notice of: that has no arguments left.
// After the last job it waits for two more looks: slurmd then tells slurmctld of its end, and the next step may begin.
//
// When no job shows, Slurm is asked whether it counts one on the node, $0: slurmctld may just have launched it, its PrologSlurmctld may still run,
// or it is an allocation without steps. What hangs when Slurm is done with the node must not keep the pod: every ten seconds Slurm is asked whether
// the node powers down. Nothing else could end the hook early: of a second delete with less grace the kubelet takes no notice while it runs
// (kubelet.go SyncTerminatingPod).
//
// It needs a shell and sleep of the image; without scontrol and timeout it does not ask. A slurmctld that does not answer within three seconds is believed to have
// no job there: it may be gone for good with all of its cluster, and who deletes the namespace then waits for half the grace period of pods that are left.
// read drops the zeros that stand between arguments.
const lastJobs = `n=0 t=1
while
  for p in /proc/[0-9]*; do
    read -r name <$p/comm && [ "$name" = slurmstepd ] || continue
    args=
    read -r args <$p/cmdline
    case $args in '' | *slurmstepdinfinity) ;; *) n=3 ;; esac
  done
  n=$((n - 1))
  if [ $n -le 0 ] || [ $((t % 10)) -eq 0 ]; then
    case $(timeout 3 scontrol --oneliner show node "$0") in
    *POWERING_DOWN* | *POWERED_DOWN* | *POWERING_UP*) n=0 ;;
    *' State=ALLOCATED'* | *' State=MIXED'*) [ $n -gt 0 ] || n=3 ;;
    esac
  fi
  [ $n -gt 0 ]
do
  sleep 1 || exit
  t=$((t + 1))
done 2>/dev/null`

// letJobsEnd gives slurmd the hook, unless the template has one.
func letJobsEnd(slurmd *corev1.Container, node string) {
	if slurmd.Lifecycle == nil {
		slurmd.Lifecycle = &corev1.Lifecycle{}
	}
	if slurmd.Lifecycle.PreStop == nil {
		slurmd.Lifecycle.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", lastJobs, node}}}
	}
}
