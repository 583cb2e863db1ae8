//go:build integration && !load

package integration

// manyGates is 1,000 with the tag "load" (make test-load), which takes two cores over four minutes.
const manyGates = 100
