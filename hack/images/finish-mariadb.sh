#!/bin/sh
# Runs inside the new root file system of the MariaDB image as its last step.
set -eu

# Its data lies where a test mounts a volume.
install -d -m 0777 /var/lib/mysql /run/mysqld

rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bash-completion \
	/var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log
