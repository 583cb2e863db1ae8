package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Daemons that work in different namespaces must not keep each other from it.
func TestLeaseName(t *testing.T) {
	assert.Equal(t, "slurmtide-controller", leaseName(""))
	assert.Equal(t, "slurmtide-controller-a", leaseName("a"))
	assert.NotEqual(t, leaseName("a"), leaseName("b"))
}
