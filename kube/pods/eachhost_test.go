package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func TestNodeOn(t *testing.T) {
	for name, test := range map[string]struct{ domain, host, want string }{
		"no dots":              {"", "worker-7", "worker-7"},
		"dots":                 {"", "worker-7.example.com", ""},
		"its domain":           {"ec2.internal", "ip-10-0-0-7.ec2.internal", "ip-10-0-0-7"},
		"another domain":       {"ec2.internal", "ip-10-0-0-7.other.internal", ""},
		"a domain below it":    {"internal", "ip-10-0-0-7.ec2.internal", ""},
		"no dots, in a domain": {"ec2.internal", "worker-7", ""},
		"the domain itself":    {"ec2.internal", "ec2.internal", ""},
	} {
		t.Run(name, func(t *testing.T) {
			each := &v1alpha1.EachHost{Domain: test.domain}
			node, ok := NodeOn(each, test.host)
			assert.Equal(t, test.want != "", ok)
			if ok {
				assert.Equal(t, test.want, node)
				assert.Equal(t, test.host, HostOf(each, node))
			}
		})
	}
}

// That one host is full closes no other node.
func TestEachHostIsPinned(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	assert.False(t, engineNodeSet(ns).Pinned)
	ns.Spec.EachHost = &v1alpha1.EachHost{}
	assert.True(t, engineNodeSet(ns).Pinned)
}

// The engine finds the host of a node as pods do.
func TestEachHostSuffix(t *testing.T) {
	for _, domain := range []string{"", "ec2.internal"} {
		ns := newNodeSet("cpu", "cpu-[0-9]")
		ns.Spec.EachHost = &v1alpha1.EachHost{Domain: domain}
		assert.Equal(t, HostOf(ns.Spec.EachHost, "cpu-1"), "cpu-1"+engineNodeSet(ns).HostSuffix)
	}
}
