//go:build integration && load

package integration

const manyGates = 1000
