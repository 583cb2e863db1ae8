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

# The image's own slurmstepd (slurmstepd/main.go) takes the place of this one and runs it.
install -d -o root -g root -m 0755 /usr/libexec/slurm
mv /usr/sbin/slurmstepd /usr/libexec/slurm/slurmstepd
mv /tmp/slurmstepd /usr/sbin/slurmstepd

# Login pods. The package has made host keys, which everybody with the image would know; LoginSets bring their own.
rm -f /etc/ssh/ssh_host_*
install -d -o root -g root -m 0755 /run/sshd /var/lib/extrausers
# Users come from the image, from spec.usersRef of a LoginSet (extrausers), and from sssd where one runs.
sed -i -E 's/^(passwd|group):.*/\1: files extrausers sss/; s/^(shadow|gshadow):.*/\1: files/' /etc/nsswitch.conf
# Debian's stack wants more than a pod may do, and an sssd for users that the image does not have. Keys need no auth part: it is for
# sites with sssd that turn passwords on. Whom sssd knows it also has to let in.
cat >/etc/pam.d/sshd <<-'EOT'
	-auth [success=1 default=ignore] pam_sss.so
	auth requisite pam_deny.so
	auth required pam_permit.so
	account required pam_nologin.so
	account sufficient pam_localuser.so
	account sufficient pam_localuser.so file=/var/lib/extrausers/passwd
	-account required pam_sss.so
	-password sufficient pam_sss.so
	password required pam_deny.so
	session optional pam_loginuid.so
	session required pam_limits.so
	session required pam_env.so
	session optional pam_mkhomedir.so umask=0077
	-session optional pam_sss.so
EOT

# Debian's plugstack.conf includes a glob, which slurmctld cannot hand to configless slurmds and complains about.
rm -rf /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d

# Not needed at run time.
rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bash-completion \
	/var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log
