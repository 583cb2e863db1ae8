package main

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlansShareNothing(t *testing.T) {
	t.Parallel()
	var prefixes []netip.Prefix
	links, cgroups := map[string]bool{}, map[string]bool{}
	for slot := range slots {
		p := Plan{Name: "same", Slot: slot}
		node := netip.PrefixFrom(p.NodeAddr(), 24).Masked()
		assert.True(t, node.Contains(p.HostAddr()), "slot %d: both ends of the veth in one network", slot)
		assert.True(t, p.ServiceCIDR().Contains(p.DNSAddr()))
		assert.True(t, p.ServiceCIDR().Contains(p.APIServiceAddr()))
		assert.NotEqual(t, p.DNSAddr(), p.APIServiceAddr())
		assert.Less(t, len(p.Link()+"p"), 16, "the kernel's limit for interface names")
		for _, own := range []netip.Prefix{node, p.PodCIDR(), p.ServiceCIDR()} {
			for _, other := range prefixes {
				require.False(t, own.Overlaps(other), "slot %d: %s overlaps %s", slot, own, other)
			}
			prefixes = append(prefixes, own)
		}
		links[p.Link()], cgroups[p.CgroupParent()] = true, true
	}
	assert.Len(t, links, slots)
	assert.Len(t, cgroups, slots)
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"slurmtide": true, "a": true, "test-26": true, strings.Repeat("a", 32): true,
		"": false, "-a": false, "a-": false, "A": false, "a/b": false, "..": false, "a b": false, strings.Repeat("a", 33): false,
	} {
		if valid {
			assert.NoError(t, checkName(name), name)
		} else {
			assert.ErrorContains(t, checkName(name), "cluster name", "%q", name)
		}
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	p := Plan{Name: "x", Slot: 7}
	parse := func(cidr string) []net.Addr {
		ip, n, err := net.ParseCIDR(cidr)
		require.NoError(t, err)
		return []net.Addr{&net.IPNet{IP: ip, Mask: n.Mask}}
	}
	assert.True(t, overlaps(parse("198.18.7.1/24"), p), "another cluster's veth")
	assert.True(t, overlaps(parse("198.18.0.9/15"), p), "a network of the host that holds ours")
	assert.False(t, overlaps(parse("198.18.8.1/24"), p))
	assert.False(t, overlaps(parse("::1/128"), p))
}
