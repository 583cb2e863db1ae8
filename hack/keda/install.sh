#!/usr/bin/env bash
# install.sh NAME   puts KEDA into the local cluster NAME and waits until it serves.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1:?name the local cluster}
cluster=("$here/../localcluster/localcluster.sh" --name "$name")
kubectl() { "${cluster[@]}" kubectl "$@"; }

keda=$("$here/build.sh" | tail -n 1)
"${cluster[@]}" load-image "$keda/image.tar"

# KEDA's own manifests, with what kustomization.yaml changes in them.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$keda/config" "$here/kustomization.yaml" "$scratch"
kubectl kustomize "$scratch" >"$scratch/all.yaml"
# On the server's side: the CRD of ScaledJobs is too large for the annotation of a plain apply.
kubectl apply --server-side --force-conflicts -f "$scratch/all.yaml"

# The operator makes its certificates itself and writes them to a Secret; the kubelet would show that to running pods within
# a minute and a half only. New pods see it at once.
echo "keda: waiting for the operator's certificates"
for _ in $(seq 120); do
	made=$(kubectl -n keda get secret kedaorg-certs --ignore-not-found -o 'jsonpath={.data.tls\.crt}')
	[ -z "$made" ] || break
	sleep 1
done
[ -n "$made" ] || { echo "keda: no certificates after two minutes:" >&2; kubectl -n keda get pods >&2; kubectl -n keda logs deployment/keda-operator --tail 20 >&2; exit 1; }
deployments=(keda-operator keda-metrics-apiserver keda-admission)
kubectl -n keda delete pods --all --wait=false
for d in "${deployments[@]}"; do
	kubectl -n keda rollout status "deployment/$d" --timeout=3m
done
kubectl wait --for=condition=Available apiservice/v1beta1.external.metrics.k8s.io --timeout=2m
