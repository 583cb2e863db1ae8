#!/usr/bin/env bash
# golangci-lint for Go, shellcheck for shell. Both are installed when they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}
version=v2.15.0
tool=$cache/tools/golangci-lint-$version/golangci-lint
if [ ! -x "$tool" ]; then
	echo "building golangci-lint $version (once; some minutes)"
	GOBIN=$(dirname "$tool") go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi
"$tool" run --allow-parallel-runners ./...
hack/need.sh shellcheck shellcheck
git ls-files '*.sh' .ci/run | xargs shellcheck -x
echo "lint passed"
