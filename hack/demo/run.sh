#!/usr/bin/env bash
# From nothing to `demo: PASS` on a Debian 12 machine with root and Go: programs, a local cluster with pretended GPUs, images, CRD, and
# then the demo itself (main.go). What is there already is kept, so the second run is short. Ends with `demo: PASS` or `demo: FAIL`.
#
# DEMO_CLUSTER  name of the local cluster; default slurmtide-demo, which `make demo-down` removes
# DEMO_SLURM    Slurm version; default 26.05
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

cluster=${DEMO_CLUSTER:-slurmtide-demo}
slurm=${DEMO_SLURM:-26.05}
gpus=4
cache=${SLURMTIDE_CACHE:-${HOME:-/root}/.cache/slurmtide}
localcluster=(hack/localcluster/localcluster.sh --name "$cluster")
log=out/demo.log
ticker=

say() { printf '[%5ds] %s\n' "$SECONDS" "$*"; }

quiet() {
	[ -z "$ticker" ] || kill "$ticker" 2>/dev/null
	ticker=
}

fail() {
	quiet
	echo "demo: $*"
	echo "demo: FAIL"
	exit 1
}

interrupted() {
	quiet
	echo
	echo "demo: interrupted; \`make demo\` goes on from here, \`make demo-down\` removes the cluster"
	echo "demo: FAIL"
	exit 130
}
trap interrupted INT TERM

# step WHAT FAILURE COMMAND...: runs a command whose output goes to the log, and says every now and then that it still works. The
# output's last lines are shown when it fails.
step() {
	local what=$1 failure=$2 status=0
	shift 2
	say "$what"
	(
		began=$SECONDS
		trap 'kill $!; exit' TERM # a sleep left behind would hold on to our output
		while sleep 15 & wait $!; do say "$what: $((SECONDS - began))s so far"; done
	) &
	ticker=$!
	"$@" >"$log" 2>&1 || status=$?
	quiet
	if [ "$status" != 0 ]; then
		tail -n 15 "$log" | sed 's/^/    /'
		fail "$failure; the lines above are the end of $log"
	fi
}

# talk WHAT FAILURE COMMAND...: the same for a command that shows its own progress.
talk() {
	local what=$1 failure=$2
	shift 2
	say "$what"
	"$@" || fail "$failure, see above"
}

# load TAR: loads an image archive unless this cluster has had it. The cluster never drops images; a new cluster has another uid.
load() {
	local loaded=$cache/demo-loaded-$cluster uid sum
	uid=$("${localcluster[@]}" kubectl get namespace kube-system -o 'jsonpath={.metadata.uid}') || fail "the cluster $cluster does not answer"
	sum=$(sha256sum <"$1") || fail "the image archive $1 cannot be read"
	if grep -qsx "$uid ${1##*/} $sum" "$loaded"; then
		return
	fi
	talk "loading ${1##*/}" "the image ${1##*/} could not be loaded into the cluster" "${localcluster[@]}" load-image "$1"
	# Lines of earlier clusters and archives of the same name are history.
	{ grep -s "^$uid " "$loaded" | grep -v " ${1##*/} "; echo "$uid ${1##*/} $sum"; } >"$loaded.new"
	mv "$loaded.new" "$loaded"
}

[ "$#" = 0 ] || fail "it takes no arguments, got \"$1\"; use the variables DEMO_SLURM (24.11 or 26.05) and DEMO_CLUSTER (a name)"
case $slurm in 24.11 | 26.05) ;; *) fail "DEMO_SLURM is \"$slurm\": there are 24.11 and 26.05" ;; esac
[ "$(uname -s)" = Linux ] || fail "this needs Linux: the cluster lives in namespaces of its own"
[ "$(id -u)" = 0 ] || fail "root is needed for the cluster's namespaces, mounts and cgroups: run it as root"
command -v go >/dev/null || fail "the Go toolchain is missing: put go, version $(sed -n 's/^go //p' go.mod) or newer, on PATH"
command -v make >/dev/null || fail "make is missing: apt-get install make"
mkdir -p out "$cache" || fail "out/ and $cache must be writable"

step "building the programs" "the programs could not be built" make -s build
step "building the demo" "the demo could not be built" env CGO_ENABLED=0 go build -buildvcs=false -trimpath -o out/demo ./hack/demo
step "building the cluster's command" "the local cluster's command could not be built" "${localcluster[@]}" kubeconfig
kubeconfig=$(tail -n 1 "$log")
# Before the cluster, since it may need packages from the network.
image=$(hack/images/build.sh "$slurm") || fail "the image with Slurm $slurm could not be built, see above"
own=$(hack/images/build.sh slurmtide) || fail "the image with Slurmtide's programs could not be built, see above"
talk "cluster $cluster: starting it, or finding it running" "the cluster $cluster does not run" "${localcluster[@]}" up --gpus "$gpus"
load "$image"
load "$own"
step "installing the NodeSet CRD" "the NodeSet CRD could not be installed" \
	"${localcluster[@]}" kubectl apply --server-side --force-conflicts -f helm/slurmtide-crds/templates/
step "waiting for the CRD" "the cluster does not serve the NodeSet CRD" \
	"${localcluster[@]}" kubectl wait --for=condition=Established --timeout=60s crd/nodesets.slurmtide.io

trap - INT TERM
exec out/demo --kubeconfig "$kubeconfig" --slurm "$slurm" --out out/demo.json --kubectl "${localcluster[*]} kubectl"
