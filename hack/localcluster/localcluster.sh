#!/bin/sh
# Runs localcluster, built first when its sources have changed.
set -eu
LOCALCLUSTER_SOURCE=$(cd "$(dirname "$0")" && pwd)
SLURMTIDE_CACHE=${SLURMTIDE_CACHE:-${HOME:?set HOME or SLURMTIDE_CACHE}/.cache/slurmtide}
export LOCALCLUSTER_SOURCE SLURMTIDE_CACHE

sum=$(cd "$LOCALCLUSTER_SOURCE" && cat ./*.go go.mod go.sum | sha256sum | cut -c1-10)
program=$SLURMTIDE_CACHE/tools/localcluster-$sum/localcluster
if [ ! -x "$program" ]; then
	command -v go >/dev/null || { echo "localcluster: the Go toolchain is missing: put go (1.26 or newer) on PATH" >&2; exit 1; }
	mkdir -p "${program%/*}"
	# Built under another name and renamed, so that two at once do no harm.
	CGO_ENABLED=0 GOWORK=off go -C "$LOCALCLUSTER_SOURCE" build -buildvcs=false -trimpath -o "$program.$$" .
	mv "$program.$$" "$program"
fi
exec "$program" "$@"
