package pods

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slurmtide/slurmtide/internal/manifest"
)

// The Role that the documentation tells people to apply has what CheckAccess asks for, and no more.
func TestRBACExample(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/rbac.yaml")
	require.NoError(t, err)
	var role rbacv1.Role
	var clusterRole rbacv1.ClusterRole
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		switch {
		case strings.Contains(document, "\nkind: Role\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &role))
		case strings.Contains(document, "\nkind: ClusterRole\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &clusterRole))
		}
	}
	assert.Equal(t, Rules(append(append(Rights(), RoomRights()...), ClaimRights()...)), role.Rules)
	assert.Equal(t, Rules(ClusterRights()), clusterRole.Rules)
}
