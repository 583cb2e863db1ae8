#!/bin/sh
# Runs slurmctld and slurmd of an unpacked image in namespaces of their own, slurmd as the first process of a container would be; then COMMAND, and
# says which processes of slurmd's have ended and were not collected.
#
#   unshare --net --pid --mount --uts --fork --kill-child sh node.sh ROOT DIR COMMAND [INIT...]
#
# DIR has slurm.conf and is inside ROOT; its name in there is /tmp/NAME. INIT is what slurmd is started by.
# NODE_USERS is a process in whose user namespace slurmd runs, NODE_ROOT the image as that sees it.
set -eu
root=$1 dir=$2 name=/tmp/$(basename "$2") command=$3 node=${NODE_ROOT:-$1}
shift 3
hostname ctl
# getaddrinfo finds nothing while there is none but a loopback address.
ip link set lo up
ip addr add 10.99.0.1/32 dev lo
mkdir -p "$root/dev" "$root/proc" "$dir/state" "$dir/spool"
printf '127.0.0.1 localhost ctl\n' >"$dir/hosts"
touch "$root/etc/hosts"
for one in "$root" "$node"; do
	mount --bind /dev "$one/dev"
	mount --bind "$dir/hosts" "$one/etc/hosts"
done
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
head -c 1024 /dev/urandom >"$dir/slurm.key"
chmod 600 "$dir/slurm.key"
export SLURM_CONF="$name/slurm.conf"
chroot "$root" slurmctld -D -i >"$dir/slurmctld.log" 2>&1 &
# shellcheck disable=SC2016 # the variables are the inner shell's
${NODE_USERS:+nsenter --user --target "$NODE_USERS"} unshare --pid --mount --fork --kill-child sh -euc '
	mount -t proc proc "$0/proc"
	mount -t tmpfs tmpfs "$0/run"
	exec chroot "$0" "$@"
' "$node" "$@" slurmd -D >"$dir/slurmd.log" 2>&1 &
i=0
until chroot "$root" sinfo -h -o %t 2>/dev/null | grep -q idle; do
	i=$((i + 1))
	[ $i -lt 300 ] || { tail "$dir/slurmctld.log" "$dir/slurmd.log"; exit 1; }
	sleep 0.2
done
chroot "$root" sh -euc "$command" || { tail "$dir/slurmctld.log" "$dir/slurmd.log"; exit 1; }
slurmd=$(chroot "$root" pgrep -o -x slurmd)
i=0
while left=$(chroot "$root" pgrep --ns "$slurmd" --nslist pid -r Z -l); do
	i=$((i + 1))
	[ $i -lt 20 ] || break
	sleep 0.5
done
echo "left: $left"
