#!/usr/bin/env bash
# Runs go test through gotestsum, which ends with a summary of all packages.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/need.sh "${CC:-gcc}" gcc libc6-dev # for the race detector
CGO_ENABLED=1 exec go run gotest.tools/gotestsum@v1.13.0 --format "${GOTEST_FORMAT:-pkgname-and-test-fails}" --hide-summary=skipped -- "$@"
