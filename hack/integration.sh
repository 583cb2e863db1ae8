#!/usr/bin/env bash
# The integration suite: a Kubernetes of its own, the images, every test with the tag
# "integration", and everything gone afterwards.
#
#   SLURM_VERSIONS="26.05"   only these Slurm versions
#   RUN=TestJobs             only these tests
#   KEEP=1                   leave the cluster up
#   PARALLEL=8               stacks at once at most; a machine that cannot keep up gets fewer (test/integration/admit_test.go)
#   TIMEOUT=45m              of all tests together
#   RIGHTS=1                 see that all tests together use every right of the bridge
#   TAGS=integration,load    larger tests
#   QUEUES=200               of TestDemand, 12 otherwise; QUEUES=3,14 those two, QUEUES=3, that one
#   JOBS=20000               of TestScalerLongQueue, 4000 otherwise
#   TAGS=integration,faults  longer tests, of faults
#   TAGS=integration,controlplane  slurmtide controller (make e2e-control-plane)
#   TAGS=integration,controlplane,charts  the Helm charts (make e2e-charts)
#   TAGS=integration,keda    tests with the real KEDA (make e2e-keda)
#   TAGS=integration,controlplane,mariadb  a database by the real mariadb-operator (make e2e-mariadb)
set -euo pipefail
cd "$(dirname "$0")/.."
name=${NAME:-slurmtide-test}
cluster=(hack/localcluster/localcluster.sh --name "$name")

step() { printf '\n== %s (%ds)\n' "$1" "$SECONDS"; }

# What package slurmconf reads, against the real ones, and what the image's init is for. No cluster is needed, the unpacked image is enough.
unpacked() {
	local version=$1 image=$2 root=$scratch/$1
	mkdir "$root"
	tar -xOf "$image" "$(tar -tf "$image" | grep '\.tar$')" | tar -x -C "$root"
	printf 'ClusterName=none\nSlurmctldHost=localhost\n' >"$root/tmp/slurm.conf"
	cat >"$scratch/scontrol-$version" <<-EOF
		#!/bin/sh
		exec chroot "$root" /usr/bin/env SLURM_CONF=/tmp/slurm.conf /usr/bin/scontrol "\$@"
	EOF
	chmod +x "$scratch/scontrol-$version"
	SLURMTIDE_SCONTROL=$scratch/scontrol-$version hack/gotest.sh -tags integration -count=1 -run Scontrol ./slurmconf
	SLURMTIDE_SLURM_ROOT=$root SLURMTIDE_SLURM_VERSION=$version hack/gotest.sh -tags integration -count=1 ./slurmconf/daemons ./hack/images
}

step "building the programs"
make build
step "cluster $name"
scratch=$(mktemp -d)
cleanup() {
	wait # for who still reads from it
	rm -rf "$scratch"
	[ -n "${KEEP:-}" ] && return
	step "taking cluster $name down"
	"${cluster[@]}" down
}
trap cleanup EXIT
"${cluster[@]}" up --gpus 8
step "images"
images=("$(hack/images/build.sh slurmtide | tail -n 1)")
case ${TAGS:-} in *controlplane* | *scale*) images+=("$(hack/images/build.sh mariadb | tail -n 1)") ;; esac
case ${TAGS:-} in *controlplane*) images+=("$(hack/images/build.sh ldap | tail -n 1)" "$(hack/images/build.sh docker | tail -n 1)") ;; esac
case ${TAGS:-} in *charts*) images+=("$(hack/images/build.sh previous | tail -n 1)") ;; esac
case ${TAGS:-} in *faults*) images+=("$(hack/images/build.sh faults | tail -n 1)") ;; esac
checks=()
for version in ${SLURM_VERSIONS:-24.11 26.05}; do
	images+=("$(hack/images/build.sh "$version" | tail -n 1)")
	[ -n "${RUN:-}" ] || {
		unpacked "$version" "${images[-1]}" &
		checks+=($!)
	}
done
for check in "${checks[@]}"; do
	wait "$check"
done
for image in "${images[@]}"; do
	"${cluster[@]}" load-image "$image"
done
KUBECONFIG=$("${cluster[@]}" kubeconfig)
export KUBECONFIG LOCALCLUSTER=$name
step "CRDs"
# As Helm would write them, so that a chart can take them over.
"${cluster[@]}" kubectl apply --server-side --field-manager=helm -f helm/slurmtide-crds/templates/ -f test/integration/testdata/
case ${TAGS:-} in *keda*)
	step "KEDA"
	hack/keda/install.sh "$name"
	;;
esac
case ${TAGS:-} in *mariadb*)
	step "mariadb-operator"
	hack/mariadb-operator/install.sh "$name"
	;;
esac
step "tests"
hack/gotest.sh -tags "${TAGS:-integration}" -count=1 -p 2 -parallel "${PARALLEL:-8}" -timeout "${TIMEOUT:-45m}" ${RUN:+-run "$RUN"} ./kube/... ./hack/stack/... ./test/...
# What a whole suite never used of our roles nobody needs.
case ${TAGS:-integration}:${RUN:-} in
integration:) suite=${RIGHTS:+integration} ;;
integration,controlplane,charts:TestControlPlane) suite=control-plane ;;
'integration,controlplane,charts:TestCharts|TestGuideCommands') suite=charts ;;
*) suite= ;;
esac
[ -n "$suite" ] || exit 0
step "rights"
go run ./hack/rights "$suite" "$(dirname "$KUBECONFIG")"/logs/audit*.log
