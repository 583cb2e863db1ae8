#!/usr/bin/env bash
# Runs go test through gotestsum, which ends with a summary of all packages.
set -euo pipefail
exec go run gotest.tools/gotestsum@v1.13.0 --format "${GOTEST_FORMAT:-pkgname-and-test-fails}" --hide-summary=skipped -- "$@"
