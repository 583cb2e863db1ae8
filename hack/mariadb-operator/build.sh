#!/usr/bin/env bash
# Builds the real mariadb-operator of the version in go.mod, puts it into an image and prints the directory that holds:
#
#   image.tar   a docker archive, slurmtide/mariadb-operator:<version>
#   chart/      its own Helm chart, with that of its CRDs inside
#
# It is kept in ${SLURMTIDE_CACHE:-~/.cache/slurmtide}/tools under a key made of everything that shapes it.
#
#   MARIADB_OPERATOR_PARALLEL=2   how many packages to compile at once; the default, 1, leaves room for others
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
say() { echo "mariadb-operator: $*" >&2; }

module=github.com/mariadb-operator/mariadb-operator
export GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0
cd "$here"
command -v go >/dev/null || { say "the Go toolchain is missing: put go (the version in go.mod or newer) on PATH"; exit 1; }
version=$(go list -m -f '{{.Version}}' "$module")
arch=$(go env GOARCH)
key=$({ go env GOVERSION GOARCH; cat go.mod go.sum build.sh ../images/archive/archive.go; } | sha256sum | cut -c1-10)
out=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/mariadb-operator-$version-$key
mkdir -p "$(dirname "$out")"

# Two builds at once would do the work twice: the second waits and finds the result.
exec 9>"$(dirname "$out")/mariadb-operator.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ -d "$out" ]; then
	echo "$out"
	exit
fi
part=$out.partial
rm -rf "$part"
mkdir "$part"
say "building mariadb-operator $version (once; see README.md for how long it takes)"
go mod download "$module"
go build -p "${MARIADB_OPERATOR_PARALLEL:-1}" -trimpath -o "$part/operator" -ldflags '-s -w' "$module/cmd/controller"
# Path and user are those of its own image.
(cd "$here/../.." && go run ./hack/images/archive -o "$part/image.tar" -tag "slurmtide/mariadb-operator:$version" -arch "$arch" -user 65532:65532 \
	-entrypoint /bin/mariadb-operator -add "$part/operator=/bin/mariadb-operator")
rm "$part/operator"
charts=$(go list -m -f '{{.Dir}}' "$module")/deploy/charts
cp -r "$charts/mariadb-operator" "$part/chart"
chmod -R u+w "$part/chart"
mkdir "$part/chart/charts"
cp -r "$charts/mariadb-operator-crds" "$part/chart/charts/"
chmod -R u+w "$part/chart"
mv "$part" "$out"
say "built in $((SECONDS / 60)) min $((SECONDS % 60)) s, image of $(du -m "$out/image.tar" | cut -f1) MB"
echo "$out"
