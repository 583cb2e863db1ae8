#!/usr/bin/env bash
# prometheus.sh prometheus|promtool ARGUMENT...  runs Prometheus or its promtool. Where one is missing it is taken out of Debian's package
# prometheus, which is not installed: that would start a server.
set -euo pipefail
program=${1:?prometheus or promtool}
shift
if command -v "$program" >/dev/null; then exec "$program" "$@"; fi
tools=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/prometheus
if [ ! -x "$tools/$program" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "$program is missing: put it into the PATH (it comes with Prometheus; Debian's package prometheus has it)" >&2
		exit 1
	fi
	echo "unpacking Prometheus" >&2
	mkdir -p "$tools"
	# Beside it, so that two at once do no harm.
	dir=$(mktemp -d "$tools.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	cd "$dir"
	download=(apt-get -q -o APT::Sandbox::User=root download prometheus)
	# A fresh machine may never have read its package lists.
	"${download[@]}" >log 2>&1 || { apt-get -q update >>log 2>&1 && "${download[@]}" >>log 2>&1; } || {
		echo "$program is missing and apt-get could not download Debian's package prometheus:" >&2
		tail -n 3 log >&2
		exit 1
	}
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/prometheus ./usr/bin/promtool
	mv usr/bin/* "$tools"
	cd - >/dev/null
	rm -rf "$dir"
	trap - EXIT
fi
exec "$tools/$program" "$@"
