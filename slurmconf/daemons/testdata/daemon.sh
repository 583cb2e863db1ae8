#!/bin/sh
# Starts slurmctld of an unpacked image in namespaces of its own, prints what it has read, and ends it.
#
#   unshare --net --pid --mount --uts --fork --kill-child sh daemon.sh ROOT DIR [COMMAND]
#
# With COMMAND it runs that instead, in there, and prints what it says.
# DIR has slurm.conf and is inside ROOT; its name in there is /tmp/NAME. It prints REFUSED and the log if slurmctld ends by itself.
set -eu
root=$1 name=/tmp/$(basename "$2")
hostname ctl
# getaddrinfo finds nothing while there is none but a loopback address.
ip link set lo up
ip addr add 10.99.0.1/32 dev lo
mkdir -p "$root/dev" "$root/proc" "$2/state"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
printf '127.0.0.1 localhost ctl\n' >"$2/hosts"
touch "$root/etc/hosts"
mount --bind "$2/hosts" "$root/etc/hosts"
head -c 1024 /dev/urandom >"$2/slurm.key"
chmod 600 "$2/slurm.key"
if [ -n "${3:-}" ]; then
	chroot "$root" /usr/bin/env SLURM_CONF="$name/slurm.conf" timeout -k 1 20 sh -c "$3" "$name" 2>&1 || echo "ENDED with $?"
	exit
fi
# shellcheck disable=SC2016 # the variables are the inner shell's
exec timeout -k 1 60 chroot "$root" /usr/bin/env SLURM_CONF="$name/slurm.conf" sh -c '
	slurmctld -D -i >"$0/log" 2>&1 &
	pid=$!
	while ! timeout 5 scontrol ping 2>/dev/null | grep -q UP; do
		kill -0 $pid 2>/dev/null || { echo REFUSED; cat "$0/log"; exit 0; }
		sleep 0.1
	done
	timeout 20 scontrol show config
	echo "== nodes"
	timeout 20 scontrol show node -o --all
	echo "== partitions"
	timeout 20 scontrol show partition --all --json
' "$name"
