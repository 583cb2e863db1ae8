#!/usr/bin/env bash
# Runs Helm, which is built when it is missing.
set -euo pipefail
version=v4.3.1
tool=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/tools/helm-$version/helm
if [ ! -x "$tool" ]; then
	echo "building helm $version (once; some minutes)" >&2
	# Under another name first, so that two at once do no harm.
	GOWORK=off CGO_ENABLED=0 GOBIN=$tool.$$ go install -trimpath -ldflags '-s -w' "helm.sh/helm/v4/cmd/helm@$version" >&2
	mv "$tool.$$/helm" "$tool"
	rmdir "$tool.$$"
fi
exec "$tool" "$@"
