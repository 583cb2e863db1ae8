#!/usr/bin/env bash
# Measures, into out/bench.json and a table, which is out/bench.md, too. Ratios compare figures of the same run. Brings up a
# cluster of its own and takes it down; KEEP=1 leaves it. The machine should have nothing else to do.
#
#   SLURM_VERSION=24.11   (default 26.05)
#   LIVES=4 SLOW_LIVES=2 STORMS=3 FLEETS=1000,10000 IDLE_NODES=100 IDLE_FOR=2m QUEUED_JOBS=20000 CONTROLLER_IDLE_FOR=10m
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${NAME:-slurmtide-bench}
version=${SLURM_VERSION:-26.05}
cluster=(hack/localcluster/localcluster.sh --name "$name")
mkdir -p out
cleanup() {
	[ -n "${KEEP:-}" ] || "${cluster[@]}" down
}
trap cleanup EXIT

kwok=$(hack/kwok/build.sh | tail -n 1)

echo "measuring the resume program"
go run ./hack/bench/resume -program bin/resume >out/bench-resume.json
echo "measuring the engine"
go test ./powersave -run '^$' -bench 'TenThousandNodes(Offerings)?$' -benchtime 10x | tee out/bench-engine.txt
go test ./powersave -run '^$' -bench TenThousandNodesFail -benchtime 2x | tee -a out/bench-engine.txt
echo "measuring the simulator"
go test ./powersave/sim -run '^$' -bench Schedules -benchtime 1x | tee out/bench-sim.txt
echo "measuring the demand model"
go test ./scaler -run '^$' -bench Demand -benchtime 10x | tee out/bench-demand.txt
echo "measuring the exporter"
go test ./exporter/collect -run '^$' -bench Scrape -benchtime 10x | tee out/bench-exporter.txt
echo "measuring the scaler"
go run ./hack/bench/scaler >out/bench-scaler.json
"${cluster[@]}" up
for image in "$(hack/images/build.sh slurmtide | tail -n 1)" "$(hack/images/build.sh "$version" | tail -n 1)"; do
	"${cluster[@]}" load-image "$image"
done
"${cluster[@]}" kubectl apply --server-side -f helm/slurmtide-crds/templates/
KUBECONFIG=$("${cluster[@]}" kubeconfig)
export KUBECONFIG
go run ./hack/bench/cluster -slurm "$version" -lives "${LIVES:-4}" -lives-without-gate "${SLOW_LIVES:-2}" -storms "${STORMS:-3}" \
	-kwok "$kwok" -fleets "${FLEETS:-1000,10000}" -idle-nodes "${IDLE_NODES:-100}" -idle-for "${IDLE_FOR:-2m}" -queued-jobs "${QUEUED_JOBS:-20000}" >out/bench-cluster.json
"${cluster[@]}" kubectl apply --server-side -f docs/examples/controller.yaml # the ClusterRole for bridges; the daemon itself runs beside the cluster
"${cluster[@]}" kubectl -n slurmtide-system scale deployment slurmtide-controller --replicas=0
go run ./hack/bench/controller -slurm "$version" -idle-for "${CONTROLLER_IDLE_FOR:-10m}" >out/bench-controller.json
go run ./hack/bench/report -controller out/bench-controller.json -resume out/bench-resume.json -cluster out/bench-cluster.json -engine out/bench-engine.txt -scaler out/bench-scaler.json \
	-demand out/bench-demand.txt -sim out/bench-sim.txt -exporter out/bench-exporter.txt -out out/bench.json -table out/bench.md || missed=1
(cd hack/bench/plot && go run . -in ../../../out/bench.json -out ../../../out)
[ -z "${missed:-}" ]
