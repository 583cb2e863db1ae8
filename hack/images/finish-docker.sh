#!/bin/sh
# Runs inside the new root file system of the Docker image as its last step.
set -eu

rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bash-completion \
	/var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log
