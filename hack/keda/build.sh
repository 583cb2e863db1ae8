#!/usr/bin/env bash
# Builds the real KEDA (operator, metrics server, admission webhooks) of the version in go.mod, puts it into one image
# and prints the directory that holds:
#
#   image.tar   a docker archive, slurmtide/keda:<version>
#   config/     KEDA's own manifests: CRDs, RBAC, Deployments
#
# It is kept in ${SLURMTIDE_CACHE:-~/.cache/slurmtide}/tools under a key made of everything that shapes it.
#
#   KEDA_PARALLEL=2   how many packages to compile at once; the default, 1, leaves room for others
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
say() { echo "keda: $*" >&2; }

module=github.com/kedacore/keda/v2
export GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0
cd "$here"
command -v go >/dev/null || { say "the Go toolchain is missing: put go (the version in go.mod or newer) on PATH"; exit 1; }
version=$(go list -m -f '{{.Version}}' "$module")
arch=$(go env GOARCH)
key=$({ go env GOVERSION GOARCH; cat go.mod go.sum build.sh ../images/archive/archive.go; } | sha256sum | cut -c1-10)
out=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/keda-$version-$key
mkdir -p "$(dirname "$out")"

# Two builds at once would do the work twice: the second waits and finds the result.
exec 9>"$(dirname "$out")/keda.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ -d "$out" ]; then
	echo "$out"
	exit
fi
part=$out.partial
rm -rf "$part"
mkdir "$part"
say "building KEDA $version (once; see README.md for how long it takes)"
go mod download "$module"
go build -p "${KEDA_PARALLEL:-1}" -trimpath -o "$part/" \
	-ldflags "-s -w -X=$module/version.Version=${version#v}" "$module/cmd/operator" "$module/cmd/adapter" "$module/cmd/webhooks"
# The names that KEDA's manifests call the programs by. nonroot is what its images run as.
(cd "$here/../.." && go run ./hack/images/archive -o "$part/image.tar" -tag "slurmtide/keda:$version" -arch "$arch" -user 65532:65532 -entrypoint /keda \
	-add "$part/operator=/keda" -add "$part/adapter=/keda-adapter" -add "$part/webhooks=/keda-admission-webhooks")
rm "$part/operator" "$part/adapter" "$part/webhooks"
cp -r "$(go list -m -f '{{.Dir}}' "$module")/config" "$part/config"
chmod -R u+w "$part/config"
mv "$part" "$out"
say "built in $((SECONDS / 60)) min $((SECONDS % 60)) s, image of $(du -m "$out/image.tar" | cut -f1) MB"
echo "$out"
