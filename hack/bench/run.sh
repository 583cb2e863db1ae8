#!/usr/bin/env bash
# Measures, into out/bench.json and a table, which is out/bench.md, too. Ratios compare figures of the same run. Brings up a
# cluster of its own and takes it down; KEEP=1 leaves it. The machine should have nothing else to do.
#
#   SLURM_VERSION=24.11   (default 26.05)
#   LIVES=2 SLOW_LIVES=1 SIZES=1,2,10,50,100 STORMS=2 STORM_JOBS=1000 FLEETS=1000,10000 IDLE_NODES=100 IDLE_FOR=2m QUEUED_JOBS=20000 CONTROLLER_IDLE_FOR=10m
#   PARTS="storm queue"   only these, into out/bench-part-*, with their tables; limits are looked at in whole runs alone. Without a cluster:
#                         resume engine sim demand exporter scaler. With one: gate no-gate (jobs from zero with the start gate and without),
#                         storm fleet idle hostlist gang kill queue, and controller.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${NAME:-slurmtide-bench}
version=${SLURM_VERSION:-26.05}
cluster=(hack/localcluster/localcluster.sh --name "$name")
alone="resume engine sim demand exporter scaler"
real="gate no-gate storm fleet idle hostlist gang kill queue"
for part in ${PARTS:-}; do
	case " $alone $real controller " in
	*" $part "*) ;;
	*)
		echo "bench: there is no part $part: $alone $real controller" >&2
		exit 2
		;;
	esac
done
out=out/bench${PARTS:+-part}
mkdir -p out
wanted() { [ -z "${PARTS:-}" ] || [[ " $PARTS " == *" $1 "* ]]; }
step() { echo "bench: $1, after $SECONDS s"; }

if wanted resume; then
	step "resume program"
	make -s build
	go run ./hack/bench/resume -program bin/resume >"$out-resume.json"
fi
if wanted engine; then
	step engine
	go test ./powersave -run '^$' -bench 'TenThousandNodes(Offerings)?$' -benchtime 10x | tee "$out-engine.txt"
	go test ./powersave -run '^$' -bench TenThousandNodesFail -benchtime 2x | tee -a "$out-engine.txt"
fi
if wanted sim; then
	step simulator
	go test ./powersave/sim -run '^$' -bench Schedules -benchtime 1x | tee "$out-sim.txt"
fi
if wanted demand; then
	step "demand model"
	go test ./scaler -run '^$' -bench Demand -benchtime 10x | tee "$out-demand.txt"
fi
if wanted exporter; then
	step exporter
	go test ./exporter/collect -run '^$' -bench Scrape -benchtime 10x | tee "$out-exporter.txt"
fi
if wanted scaler; then
	step scaler
	go run ./hack/bench/scaler >"$out-scaler.json"
fi
only=
for part in $real; do
	! wanted "$part" || only+=,$part
done
[ -n "$only" ] || wanted controller || exit 0

step cluster
cleanup() {
	[ -n "${KEEP:-}" ] || "${cluster[@]}" down
}
trap cleanup EXIT
make -s build
kwok=$(hack/kwok/build.sh | tail -n 1)
"${cluster[@]}" up
for image in "$(hack/images/build.sh slurmtide | tail -n 1)" "$(hack/images/build.sh "$version" | tail -n 1)"; do
	"${cluster[@]}" load-image "$image"
done
"${cluster[@]}" kubectl apply --server-side -f helm/slurmtide-crds/templates/
KUBECONFIG=$("${cluster[@]}" kubeconfig)
export KUBECONFIG
if [ -n "$only" ]; then
	go run ./hack/bench/cluster -slurm "$version" -only "$only" -lives "${LIVES:-2}" -lives-without-gate "${SLOW_LIVES:-1}" -sizes "${SIZES:-1,2,10,50,100}" \
		-storms "${STORMS:-2}" -storm-jobs "${STORM_JOBS:-1000}" \
		-kwok "$kwok" -fleets "${FLEETS:-1000,10000}" -idle-nodes "${IDLE_NODES:-100}" -idle-for "${IDLE_FOR:-2m}" -queued-jobs "${QUEUED_JOBS:-20000}" >"$out-cluster.json"
fi
if wanted controller; then
	step controller
	"${cluster[@]}" kubectl apply --server-side -f docs/examples/controller.yaml # the ClusterRole for bridges; the daemon itself runs beside the cluster
	"${cluster[@]}" kubectl -n slurmtide-system scale deployment slurmtide-controller --replicas=0
	go run ./hack/bench/controller -slurm "$version" -idle-for "${CONTROLLER_IDLE_FOR:-10m}" >"$out-controller.json"
fi
if [ -n "${PARTS:-}" ]; then
	[ -z "$only" ] || go run ./hack/bench/report -cluster "$out-cluster.json" -tables
	exit
fi
go run ./hack/bench/report -controller "$out-controller.json" -resume "$out-resume.json" -cluster "$out-cluster.json" -engine "$out-engine.txt" -scaler "$out-scaler.json" \
	-demand "$out-demand.txt" -sim "$out-sim.txt" -exporter "$out-exporter.txt" -out out/bench.json -table out/bench.md || missed=1
(cd hack/bench/plot && go run . -in ../../../out/bench.json -out ../../../out)
echo "bench: all took $SECONDS s"
[ -z "${missed:-}" ]
