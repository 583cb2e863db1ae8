#!/bin/sh
# Runs inside the new root file system as its last step, from build.sh and from the Dockerfile.
# Gives every daemon the user and the directories it needs to run without root (slurmd excepted: it changes users for jobs).
set -eu

# The manifests name this uid; Debian reserves it for Slurm.
[ "$(id -u slurm)" = 64030 ] || { echo "finish.sh: user slurm has uid $(id -u slurm), not 64030" >&2; exit 1; }

# slurmrestd refuses to run as root, as SlurmUser, in SlurmUser's group, or as nobody.
groupadd --system --gid 64031 slurmrest
useradd --system --uid 64031 --gid 64031 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurmrest

# What package scripts left in /run belongs to the machine that built the image.
find /run -mindepth 1 -maxdepth 1 -exec rm -rf {} +

# /run/slurmctld: pid file and the socket (sack) where clients in the pod get their auth/slurm tokens.
# /run/slurm is slurmd's, which makes it itself with the owner it wants.
install -d -o slurm -g slurm -m 0755 /run/slurmctld /var/spool/slurmctld /opt/slurmtide
install -d -o slurm -g slurm -m 0700 /var/spool/slurmtide
install -d -o slurmrest -g slurmrest -m 0755 /run/slurmrestd
install -d -o root -g root -m 0755 /var/spool/slurmd

# Debian's plugstack.conf includes a glob, which slurmctld cannot hand to configless slurmds and complains about.
rm -rf /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d

# Not needed at run time.
rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bash-completion \
	/var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log
