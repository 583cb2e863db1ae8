#!/usr/bin/env bash
# promtool.sh ARGUMENT...  runs Prometheus's promtool. Where it is missing it is taken out of Debian's package prometheus, which is not installed:
# that would start a server.
set -euo pipefail
if command -v promtool >/dev/null; then exec promtool "$@"; fi
tool=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/promtool/promtool
if [ ! -x "$tool" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "promtool is missing: put it into the PATH (it comes with Prometheus; Debian's package prometheus has it)" >&2
		exit 1
	fi
	echo "unpacking promtool" >&2
	mkdir -p "$(dirname "$tool")"
	# Beside it, so that two at once do no harm.
	dir=$(mktemp -d "$tool.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	cd "$dir"
	download=(apt-get -q -o APT::Sandbox::User=root download prometheus)
	# A fresh machine may never have read its package lists.
	"${download[@]}" >log 2>&1 || { apt-get -q update >>log 2>&1 && "${download[@]}" >>log 2>&1; } || {
		echo "promtool is missing and apt-get could not download Debian's package prometheus:" >&2
		tail -n 3 log >&2
		exit 1
	}
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
	mv usr/bin/promtool "$tool"
	cd - >/dev/null
	rm -rf "$dir"
	trap - EXIT
fi
exec "$tool" "$@"
