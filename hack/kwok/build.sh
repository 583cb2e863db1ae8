#!/usr/bin/env bash
# Builds the real kwok, which keeps nodes and pods that only pretend to be there, of the version in go.mod, and prints the directory that holds:
#
#   kwok          the program
#   stages.yaml   kwok's own ways of hosts and pods: at once Ready, at once gone
#
# The benchmark of many nodes needs it. It is kept in ${SLURMTIDE_CACHE:-~/.cache/slurmtide}/tools.
#
#   KWOK_PARALLEL=2   how many packages to compile at once; the default, 1, leaves room for others
set -euo pipefail
cd "$(dirname "$0")"
say() { echo "kwok: $*" >&2; }

export GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0
command -v go >/dev/null || { say "the Go toolchain is missing: put go (the version in go.mod or newer) on PATH"; exit 1; }
version=$(go list -m -f '{{.Version}}' sigs.k8s.io/kwok)
key=$({ go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-10)
out=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/kwok-$version-$key
mkdir -p "$(dirname "$out")"

# Two builds at once would do the work twice: the second waits and finds the result.
exec 9>"$(dirname "$out")/kwok.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ ! -d "$out" ]; then
	part=$out.partial
	rm -rf "$part"
	mkdir "$part"
	say "building kwok $version (once)"
	go build -p "${KWOK_PARALLEL:-1}" -trimpath -ldflags "-s -w" -o "$part/kwok" sigs.k8s.io/kwok/cmd/kwok
	stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
	for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
		echo ---
		cat "$stages/$stage.yaml"
	done >"$part/stages.yaml"
	mv "$part" "$out"
	say "built in $SECONDS s"
fi
echo "$out"
