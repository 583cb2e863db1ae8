#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each: a number of inputs, since go test -fuzz
# with a time fails now and then when that is up. A target that is found and does not run is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-5000x}
count=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
while read -r file; do
	package=./$(dirname "$file")
	while read -r target; do
		echo "fuzz $package $target"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5s >"$out" 2>&1 || {
			cat "$out"
			echo "fuzz target $target in $package failed" >&2
			exit 1
		}
		tail -n 1 "$out"
		count=$((count + 1))
	done < <(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$file")
done < <(git ls-files --cached --others --exclude-standard '*_test.go' | xargs grep -lE '^func Fuzz' --)
[ "$count" -gt 0 ] || { echo "no fuzz targets found: the search in $0 is broken" >&2; exit 1; }
echo "$count fuzz targets passed"
