#!/usr/bin/env bash
# Compares figures that no machine's speed is in with hack/bench/baseline.json, each the mean of five rounds, and fails when one has become
# worse by more than a fifth. Brings up a cluster of its own and takes it down; KEEP=1 leaves it.
#
#   BASELINE=1            write the baseline instead
#   SLURM_VERSION=24.11   (default 26.05, as the baseline)
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${NAME:-slurmtide-bench}
version=${SLURM_VERSION:-26.05}
rounds=5
cluster=(hack/localcluster/localcluster.sh --name "$name")
out=out/check
rm -rf "$out"
mkdir -p "$out"
cleanup() {
	[ -n "${KEEP:-}" ] || "${cluster[@]}" down
}
trap cleanup EXIT

make build
kwok=$(hack/kwok/build.sh | tail -n 1)
go build -o "$out" ./hack/bench/resume ./hack/bench/cluster ./hack/bench/check
for package in ./hack/bench/reference ./powersave ./scaler ./exporter/collect; do
	go test -c -o "$out/$(basename "$package").test" "$package"
done
# In turn, so that a moment in which the machine is slow is everybody's.
measure() { (cd "$1" && "$OLDPWD/$out/$(basename "$1").test" -test.run '^$' -test.bench "$2" -test.benchtime "$3" -test.benchmem); }
for round in $(seq $rounds); do
	echo "round $round of $rounds"
	"$out/resume" -runs 100 >"$out/resume-$round.json"
	{
		measure hack/bench/reference Reference 10x
		measure powersave 'TenThousandNodes$' 3x
		measure scaler 'Demand/requests=(500|20000)$' 5x
		measure exporter/collect 'Scrape/series=all' 3x
	} >>"$out/bench.txt"
done
"${cluster[@]}" up
for image in "$(hack/images/build.sh slurmtide | tail -n 1)" "$(hack/images/build.sh "$version" | tail -n 1)"; do
	"${cluster[@]}" load-image "$image"
done
"${cluster[@]}" kubectl apply --server-side -f helm/slurmtide-crds/templates/
KUBECONFIG=$("${cluster[@]}" kubeconfig)
export KUBECONFIG
"$out/cluster" -slurm "$version" -only check -rounds $rounds -kwok "$kwok" >"$out/cluster.json"
write=()
[ -z "${BASELINE:-}" ] || write=(-write hack/bench/baseline.json -machine "$(nproc) CPUs, Slurm $version")
"$out/check" -cluster "$out/cluster.json" "${write[@]}" "$out/bench.txt" "$out"/resume-*.json
