#!/bin/sh
# Made by Slurmtide, for NodeSets with spec.ssh. Only proctrack/cgroup follows who comes by ssh into the job; with others what a user has
# started is ended here, when its last job on the node is over. It never fails: that would drain the node.
uid=${SLURM_JOB_UID:-0}
[ "$uid" -ne 0 ] && pgrep -U "$uid" >/dev/null || exit 0
if jobs=$(squeue --noheader --format=%A --user="$uid" --nodelist="$SLURMD_NODENAME" --states=CONFIGURING,RUNNING,SUSPENDED,STOPPED) && [ -z "$jobs" ]; then
	pkill -KILL -U "$uid"
fi
exit 0
