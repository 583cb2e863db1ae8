package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/controlplane"
)

// Daemons that work in different namespaces must not keep each other from it.
func TestLease(t *testing.T) {
	tests := map[string]struct{ only, home, want, fails string }{
		"all namespaces":     {home: "system", want: "system/slurmtide-controller"},
		"one":                {only: "a", want: "a/" + controlplane.NamespaceLease},
		"said twice":         {only: "a", home: "a", want: "a/" + controlplane.NamespaceLease},
		"where nobody looks": {only: "a", home: "system", fails: "--lease-namespace system: with --namespace the Lease is in a"},
		"outside a pod":      {fails: "missing --lease-namespace"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			lease, err := leaseOf(test.only, test.home)
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, lease.String())
		})
	}
	assert.NotEqual(t, "slurmtide-controller", controlplane.NamespaceLease, "both may lie in one namespace")
}
