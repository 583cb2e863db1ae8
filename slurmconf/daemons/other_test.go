//go:build integration

package daemons_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// The files beside slurm.conf that slurmctld reads itself.
func TestSlurmctldRefusesOtherFiles(t *testing.T) {
	s := findSlurm(t)
	old := s.version == slurmconf.Version{Major: 24, Minor: 11}
	tree := base + "TopologyPlugin=topology/tree\nNodeName=n[1-4] State=CLOUD\nPartitionName=p Nodes=ALL\n"
	plain := base + "GresTypes=gpu\nNodeName=n State=CLOUD Gres=gpu:2\nPartitionName=p Nodes=n\n"
	tests := map[string]struct {
		kind    slurmconf.Kind
		conf    string
		text    string
		refused bool
	}{
		"switches":       {slurmconf.TopologyConf, tree, "# ours\nswitchname = s0 Nodes=n[1-2]\nSwitchName=s1 \\\n Nodes=\"n[3-4]\" LinkSpeed=10k\nSwitchName=s2 Switches=s[0-1]", false},
		"link speed":     {slurmconf.TopologyConf, tree, "SwitchName=s0 Nodes=n[1-4] LinkSpeed=x\n", true},
		"unknown":        {slurmconf.TopologyConf, tree, "SwitchName=s0 Nodes=n[1-4] Node=n1\n", true},
		"unknown line":   {slurmconf.TopologyConf, tree, "Switch=s0 Nodes=n[1-4]\n", true},
		"nodes":          {slurmconf.TopologyConf, tree, "SwitchName=s0 Nodes=n[4-1]\n", true},
		"cgroup":         {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nconstraincores=Yes # c\nAllowedRAMSpace=99.5\n", false},
		"cgroup unknown": {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nConstrainCPUs=yes\n", true},
		"cgroup float":   {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nMaxRAMPercent=lots\n", true},
		"cgroup yes":     {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nConstrainCores=perhaps\n", true},
		"cgroup young":   {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nCgroupSlice=x.slice\n", old},
		"cgroup gone":    {slurmconf.CgroupConf, plain, "CgroupPlugin=disabled\nCgroupReleaseAgentDir=/x\n", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, _ := s.write(t, map[string]string{"slurm.conf": test.conf, test.kind.String(): test.text})
			defer os.RemoveAll(dir)
			config, err := slurmconf.ReadConfig(dir+"/"+test.kind.String(), nil)
			require.NoError(t, err)
			require.Equal(t, test.refused, config.Check(test.kind, s.version).Err() != nil, "slurmconf")
			got := s.start(t, dir)
			require.Equal(t, test.refused, got.refused, "slurmctld: %s", got.output)
		})
	}
}

// slurmd -G reads gres.conf for a node, and ends.
func TestSlurmdRefusesGresConf(t *testing.T) {
	s := findSlurm(t)
	const conf = base + "GresTypes=nic\nNodeName=n State=CLOUD Gres=nic:2\nNodeName=m State=CLOUD\nPartitionName=p Nodes=n\n"
	tests := map[string]struct {
		text    string
		refused bool
		says    string
	}{
		"fine":          {"# ours\nnodename=n NAME=nic \\\n Count=2 Flags=CountOnly # c\n", false, "Count=2"},
		"last counts":   {"Name=nic Count=7 count=\"2\"\nAutoDetect=off", false, "Count=2"},
		"unknown field": {"NodeName=m Name=nic CPU=3\n", true, "unrecognized key: CPU"},
		"unknown":       {"Gres=nic\n", true, "unrecognized key: Gres"},
		"no value":      {"Name=nic Count=\n", true, "Parse error"},
		"words":         {"Name=nic Count=2 two\n", true, "Parse error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, _ := s.write(t, map[string]string{"slurm.conf": conf, "cgroup.conf": "CgroupPlugin=disabled\n", "gres.conf": test.text})
			defer os.RemoveAll(dir)
			config, err := slurmconf.ReadConfig(dir+"/gres.conf", nil)
			if err == nil {
				err = config.Check(slurmconf.GresConf, s.version).Err()
			}
			require.Equal(t, test.refused, err != nil, "slurmconf: %v", err)
			out := s.run(t, dir, "slurmd -G -N n")
			require.Equal(t, test.refused, strings.Contains(out, "ENDED with 1\n"), "slurmd: %s", out)
			require.Contains(t, out, test.says)
		})
	}
}
