#!/usr/bin/env bash
# need.sh COMMAND PACKAGE...  installs Debian packages when a command is missing.
set -euo pipefail
command=$1
shift
if command -v "$command" >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "$command is missing: install $* (needs root and apt-get)" >&2
	exit 1
fi
echo "installing $*" >&2
export DEBIAN_FRONTEND=noninteractive
install=(apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@")
# A fresh machine may never have read its package lists.
"${install[@]}" >/dev/null 2>&1 || { apt-get -q update >/dev/null && "${install[@]}" >/dev/null; } || {
	echo "$command is missing and apt-get could not install $*" >&2
	exit 1
}
