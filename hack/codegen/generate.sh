#!/usr/bin/env bash
# Makes everything in the repository that is generated:
#   from kube/api: kube/api/*/zz_generated.deepcopy.go, kube/generated/ (clientset, listers, informers),
#     helm/slurmtide-crds/templates/ (CRDs)
#   from helm/*/values.in.yaml and the CRDs: values.yaml, values.schema.json and the table in README.md beside it
#   from scaler/external/externalscaler/*.proto: *.pb.go beside it
#   from the command lines of cmd/slurmtide*: man/
#   from the metrics that daemons register, and the golden pages of their tests: docs/metrics.md
#
#   generate.sh          write the files
#   generate.sh verify   write nothing, fail with a diff when a file is not up to date
#
# Both generate into a copy of the module, so a failing generator leaves the tree as it was.
set -euo pipefail

mode=${1:-write}
shopt -s nullglob
case $mode in write|verify) ;; *) echo "usage: $0 [verify]" >&2; exit 2 ;; esac

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
module=github.com/slurmtide/slurmtide
apis=kube/api
generated=kube/generated
crds=helm/slurmtide-crds/templates
proto=scaler/external/externalscaler

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bin=$tmp/bin
work=$tmp/module
out=$tmp/out
mkdir -p "$bin" "$work/kube" "$out/$crds" "$out/$generated"

go build -C "$here" -o "$bin/" tool ./trimcrd ./protogen ./chartvalues
: >"$tmp/header"
cp "$root/go.mod" "$root/go.sum" "$work/"
cp -r "$root/$apis" "$work/$apis"
rm -f "$work/$apis"/*/zz_generated.*
cd "$work"

inputs=() client_inputs=()
for dir in "$apis"/*/; do
	inputs+=("$module/${dir%/}")
	client_inputs+=(--input "$(basename "$apis")/$(basename "$dir")")
done

"$bin/deepcopy-gen" --go-header-file "$tmp/header" --output-file zz_generated.deepcopy.go "${inputs[@]}"
for dir in "$apis"/*/; do
	mkdir -p "$out/$dir"
	cp "$dir/zz_generated.deepcopy.go" "$out/$dir"
done
"$bin/client-gen" --go-header-file "$tmp/header" --clientset-name versioned --input-base "$module/$(dirname "$apis")" "${client_inputs[@]}" \
	--output-pkg "$module/$generated/clientset" --output-dir "$out/$generated/clientset"
"$bin/lister-gen" --go-header-file "$tmp/header" \
	--output-pkg "$module/$generated/listers" --output-dir "$out/$generated/listers" "${inputs[@]}"
"$bin/informer-gen" --go-header-file "$tmp/header" \
	--versioned-clientset-package "$module/$generated/clientset/versioned" --listers-package "$module/$generated/listers" \
	--output-pkg "$module/$generated/informers" --output-dir "$out/$generated/informers" "${inputs[@]}"

"$bin/controller-gen" crd:generateEmbeddedObjectMeta=true paths="./$apis/..." output:crd:dir="$tmp/crd"
for file in "$tmp"/crd/slurmtide.io_*.yaml; do
	name=$(basename "$file")
	"$bin/trimcrd" <"$file" >"$out/$crds/${name#slurmtide.io_}"
done

charts=()
for file in "$root"/helm/*/values.in.yaml; do
	chart=helm/$(basename "$(dirname "$file")")
	mkdir -p "$out/$chart"
	"$bin/chartvalues" "$root/$chart" "$out/$crds" "$out/$chart"
	charts+=("$chart/values.yaml" "$chart/values.schema.json" "$chart/README.md")
done

"$bin/protogen" "$root/$proto" "$out/$proto" "$bin/protoc-gen-go" "$bin/protoc-gen-go-grpc"

# Everything below these paths is ours to replace; what the generators no longer make goes away.
targets=("$generated" "$crds" "${charts[@]}")
for dir in "$apis"/*/; do
	targets+=("${dir}zz_generated.deepcopy.go")
done
for file in "$root/$proto"/*.pb.go "$out/$proto"/*.pb.go; do
	targets+=("$proto/$(basename "$file")")
done
mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)

cd "$root"
# Programs write their pages themselves: after all else, since it is compiled into them.
pages() {
	mkdir -p "$out/man" "$out/docs"
	go run ./test/monitoring/catalogue/metricsdoc >"$out/docs/metrics.md"
	for program in slurmtide slurmtide-bridge slurmtide-controller slurmtide-exporter slurmtide-scaler; do
		env -u SLURM_CONF go run "./cmd/$program" __man "$out/man"
	done
}
if [ "$mode" = write ]; then
	for target in "${targets[@]}"; do
		rm -rf "$target"
		[ -e "$out/$target" ] || continue
		mkdir -p "$(dirname "$target")"
		cp -r "$out/$target" "$target"
	done
	pages
	rm -rf man
	cp -r "$out/man" man
	cp "$out/docs/metrics.md" docs/metrics.md
	exit 0
fi
pages
targets+=(man docs/metrics.md)
stale=0
for target in "${targets[@]}"; do
	diff -ruN "$target" "$out/$target" || stale=1
done
if [ $stale = 1 ]; then
	echo "generated files are not up to date: run make generate and commit the result" >&2
	exit 1
fi
