#!/bin/sh
# Runs inside the new root file system of the LDAP image as its last step.
set -eu

# The package has made a directory of its own; a test brings another.
rm -rf /etc/ldap/slapd.d /var/lib/ldap/*

rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bash-completion \
	/var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/bootstrap.log
