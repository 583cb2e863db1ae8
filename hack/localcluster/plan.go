package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// slots is how many clusters fit side by side on one machine.
const slots = 64

// Paths inside the cluster's own mount namespace. They are the same for every
// cluster because each sees only its own state directory there.
const (
	inCache    = "/run/localcluster/cache"
	pauseImage = "slurmtide.local/pause:1"
)

// Plan is everything that follows from a cluster's name and slot: names,
// addresses and paths. Two clusters with different slots share none of them.
type Plan struct {
	Name string `json:"name"`
	Slot int    `json:"slot"`
}

// validName keeps names usable as a node name, in a path and in a cgroup.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("cluster name %q: use 1 to 32 of a-z, 0-9 and -, with a letter or digit at both ends", name)
	}
	return nil
}

// preferredSlot is where the search for a free slot starts, so that a name
// keeps its addresses from one run to the next when nothing is in the way.
func preferredSlot(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % slots)
}

// Link is the host's end of the cluster's veth pair.
func (p Plan) Link() string { return fmt.Sprintf("slurmtide%d", p.Slot) }

// HostAddr is the host's address on the veth; the range is the one RFC 2544
// keeps for tests, which no network routes.
func (p Plan) HostAddr() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(p.Slot), 1}) }

// NodeAddr is the node's address, where the host reaches the apiserver.
func (p Plan) NodeAddr() netip.Addr { return p.HostAddr().Next() }

// PodCIDR is where pods get their addresses.
func (p Plan) PodCIDR() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + p.Slot), 0, 0}), 16)
}

// ServiceCIDR is where services get their cluster addresses.
func (p Plan) ServiceCIDR() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + p.Slot), 0, 0}), 16)
}

// APIServiceAddr is the address of the service "kubernetes": the first of the range.
func (p Plan) APIServiceAddr() netip.Addr { return p.ServiceCIDR().Addr().Next() }

// DNSAddr is the cluster's name server.
func (p Plan) DNSAddr() netip.Addr {
	a := p.ServiceCIDR().Addr().As4()
	a[3] = 10
	return netip.AddrFrom4(a)
}

// Server is the apiserver's URL, good on the host and in the cluster.
func (p Plan) Server() string { return fmt.Sprintf("https://%s:6443", p.NodeAddr()) }

// CgroupParent is the cgroup, in every hierarchy, below which the kubelet puts its pods.
func (p Plan) CgroupParent() string { return fmt.Sprintf("/slurmtide/%d-%s", p.Slot, p.Name) }

// dirs are the places a cluster uses on the host.
type dirs struct{ cache, state string }

func newDirs(cache, name string) dirs {
	return dirs{cache: cache, state: filepath.Join(cache, "clusters", name)}
}

func (d dirs) kubeconfig() string { return filepath.Join(d.state, "kubeconfig") }
func (d dirs) nodeFile() string   { return filepath.Join(d.state, "node.json") }
func (d dirs) logs() string       { return filepath.Join(d.state, "logs") }
func (d dirs) sub(names ...string) string {
	return filepath.Join(append([]string{d.state}, names...)...)
}

// inState is a path of the state directory as the cluster's processes see it.
func (p Plan) inState(names ...string) string {
	return filepath.Join(append([]string{inCache, "clusters", p.Name}, names...)...)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'), 0o600)
}

// writeFile replaces path in one step, so that a reader never sees half of it.
func writeFile(path string, b []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
