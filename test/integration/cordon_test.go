//go:build integration && (faults || controlplane)

package integration

import (
	"strconv"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cordon makes the host take no more pods, as kubectl cordon does, or takes that back, also when the test ends.
func (c *cluster) cordon(host string, yes bool) {
	c.t.Helper()
	patch := []byte(`{"spec":{"unschedulable":` + strconv.FormatBool(yes) + `}}`)
	_, err := c.kube.CoreV1().Nodes().Patch(c.ctx, host, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
	if yes {
		c.t.Cleanup(func() { c.cordon(host, false) })
	}
}
