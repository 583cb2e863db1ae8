#!/usr/bin/env bash
# install.sh NAME   puts mariadb-operator, and an image for its databases, into the local cluster NAME and waits until it serves.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1:?name the local cluster}
cluster=("$here/../localcluster/localcluster.sh" --name "$name")

operator=$("$here/build.sh" | tail -n 1)
"${cluster[@]}" load-image "$operator/image.tar"

# The database of other tests, with an entrypoint.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
database=$("$here/../images/build.sh" mariadb | tail -n 1)
tar -xOf "$database" "$(tar -tf "$database" | grep '\.tar$')" >"$scratch/root.tar"
(cd "$here/../.." && go run ./hack/images/archive -o "$scratch/image.tar" -tag slurmtide/mariadb:entrypoint -arch "$(go env GOARCH)" -layer "$scratch/root.tar" \
	-env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin -add "$here/entrypoint.sh=/entrypoint.sh" -entrypoint /entrypoint.sh)
"${cluster[@]}" load-image "$scratch/image.tar"

KUBECONFIG=$("${cluster[@]}" kubeconfig)
export KUBECONFIG
"$here/../helm.sh" upgrade --install mariadb-operator "$operator/chart" --namespace mariadb-operator --create-namespace --values "$here/values.yaml" --wait --timeout 5m
