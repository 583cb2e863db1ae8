//go:build integration

package daemons_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// does tells whether slurmctld does what a rule says that it does.
type does func(got read, log string) bool

func refuses(got read, _ string) bool { return got.refused }

func says(text string) does {
	return func(_ read, log string) bool { return strings.Contains(log, text) }
}

// node tells of a field of node n1, as slurmctld shows it.
func node(key, value string) does {
	return func(got read, _ string) bool { return got.nodes["n1"][key] == value }
}

// doctored are files for slurm.conf to name, and their modes.
var doctored = map[string]os.FileMode{"program": 0o755, "writable": 0o775, "plain": 0o644, "key": 0o600, "open.key": 0o644}

// What rules of slurmtide doctor say that slurmctld does, it does: it says so, or does not start; and nothing of the sort where they find nothing.
func TestDoctor(t *testing.T) {
	s := findSlurm(t)
	const nodes = "NodeName=n[1-9] State=CLOUD\nPartitionName=p Nodes=ALL Default=YES\n"
	const saving = "ResumeProgram=DIR/program\nSuspendProgram=DIR/program\nSuspendTime=60\nResumeRate=0\nSuspendRate=0\n" + nodes
	change := func(from, to string) string {
		require.Contains(t, saving, from)
		return strings.Replace(saving, from, to, 1)
	}
	off := says("automatic power save mode disabled")
	if s.version.Major < 26 {
		off = says("power_save module disabled")
	}
	tests := map[string]struct {
		rule      string
		bad, good string
		does      does
	}{
		"no resume program":   {"power-saving-programs", change("ResumeProgram=DIR/program\n", ""), saving, off},
		"no suspend program":  {"power-saving-programs", change("SuspendProgram=DIR/program\n", ""), saving, off},
		"no time":             {"suspend-time", change("SuspendTime=60\n", ""), change("SuspendTime=60\n", "") + "PartitionName=q Nodes=n1 SuspendTime=60\n", off},
		"never":               {"suspend-time", change("SuspendTime=60", "SuspendTime=INFINITE"), saving, off},
		"relative":            {"program-path", change("=DIR/program", "=program"), saving, says("not absolute pathname")},
		"absent":              {"program-file", change("=DIR/program", "=DIR/absent"), saving, says("/absent not")},
		"writable":            {"program-file", change("=DIR/program", "=DIR/writable"), saving, says("write permission")},
		"not to be executed":  {"program-file", change("=DIR/program", "=DIR/plain"), saving, says("executable")},
		"rate":                {"rates-too-high", change("ResumeRate=0", "ResumeRate=60001"), change("ResumeRate=0", "ResumeRate=60000"), says("rate exceeds maximum")},
		"interval":            {"power-save-interval-too-long", "SlurmctldParameters=power_save_interval=61\n" + change("ResumeRate=0", "ResumeRate=1"), "SlurmctldParameters=power_save_interval=61\n" + saving, says("can not work effectively")},
		"dead word":           {"dead-parameter", "SlurmctldParameters=cloud_reg_addrs\n" + saving, "SlurmctldParameters=enable_configless\n" + saving, says("is defunct")},
		"state":               {"exc-states-unknown", "SuspendExcStates=IDLE\n" + saving, "SuspendExcStates=DRAIN,DYNAMIC_NORM\n" + saving, says("Invalid SuspendExcState IDLE")},
		"comma":               {"exc-nodes-cut", "SuspendExcNodes=n[1,5]:1\n" + saving, "SuspendExcNodes=n[1-5]:1,n6\n" + saving, says("hostlist_create() error for n[1")},
		"unknown nodes":       {"exc-unknown", "SuspendExcNodes=m1\n" + saving, "SuspendExcNodes=n1\n" + saving, says("Invalid SuspendExcNodes")},
		"unknown partition":   {"exc-unknown", "SuspendExcParts=q\n" + saving, "SuspendExcParts=p\n" + saving, says("Invalid SuspendExcPart q")},
		"select":              {"dynamic-select", "MaxNodeCount=20\nSelectType=select/linear\n" + saving, "MaxNodeCount=20\n" + saving, says("MaxNodeCount only compatible with cons_tres")},
		"no memory":           {"cloud-memory", "SelectTypeParameters=CR_CPU_Memory\n" + saving, "SelectTypeParameters=CR_CPU_Memory\n" + change("State=CLOUD", "State=CLOUD RealMemory=900"), node("RealMemory", "1")},
		"address":             {"cloud-address", change("State=CLOUD", "State=CLOUD NodeAddr=10.0.0.[1-9]"), saving, node("NodeAddr", "10.0.0.1")},
		"no type":             {"gres-types", change("State=CLOUD", "State=CLOUD Gres=gpu:2"), "GresTypes=gpu\n" + change("State=CLOUD", "State=CLOUD Gres=gpu:2"), node("Gres", "(null)")},
		"too few":             {"max-node-count", "MaxNodeCount=5\n" + saving, "MaxNodeCount=20\n" + saving, refuses},
		"X11":                 {"prolog-flags", "PrologFlags=X11\n" + saving, "PrologFlags=Alloc,Serial\n" + saving, refuses},
		"no such flag":        {"prolog-flags", "PrologFlags=Allocate\n" + saving, "PrologFlags=Alloc\n" + saving, refuses},
		"NoHold and Contain":  {"prolog-flags", "PrologFlags=NoHold,Contain\n" + saving, "PrologFlags=NoHold\n" + saving, refuses},
		"stepmgr":             {"prolog-flags", "SlurmctldParameters=enable_stepmgr\n" + saving, "SlurmctldParameters=enable_stepmgr\nPrologFlags=Contain\n" + saving, refuses},
		"key that others see": {"key-file", "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=DIR/open.key\n" + saving, "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=DIR/key\n" + saving, refuses},
		"no key":              {"key-file", "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=DIR/absent\n" + saving, "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=DIR/key\n" + saving, refuses},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for which, text := range map[string]string{"bad": test.bad, "good": test.good} {
				rules, got, log := s.doctored(t, text)
				assert.Equal(t, which == "bad", rules[test.rule], "doctor finds something in the %s one", which)
				assert.Equal(t, which == "bad", test.does(got, log), "slurmctld does it with the %s one: %s\n%v", which, log, got.nodes["n1"])
			}
		})
	}
}

// doctored gives the rules that find something in a slurm.conf, and what slurmctld does with it.
func (s slurm) doctored(t *testing.T, text string) (rules map[string]bool, got read, log string) {
	dir, inside := s.write(t, map[string]string{"slurm.conf": "SlurmctldDebug=debug\n" + base + text})
	defer os.RemoveAll(dir)
	f := doctor.Facts{Version: s.version, Host: &doctor.HostFacts{Files: map[string]doctor.FileFacts{
		inside + "/absent": {}, inside + "/slurm.key": {Exists: true, Mode: 0o600},
	}}}
	for name, mode := range doctored {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n# as long as a key has to be, so that it may be one\n"), mode))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
		f.Host.Files[inside+"/"+name] = doctor.FileFacts{Exists: true, Mode: uint32(mode)}
	}
	f.SetSlurmConf(slurmconf.ReadConfig(filepath.Join(dir, "slurm.conf"), nil))
	if f.Cluster != nil {
		f.Host.Keys = f.KeyFiles()
	}
	rules = map[string]bool{}
	for _, finding := range doctor.Check(f) {
		rules[finding.Rule] = true
	}
	got = s.start(t, dir)
	said, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	return rules, got, string(said)
}

// A PowerAction for slurmd does not resume, which slurmctld says only when it is to.
func TestDoctorResumeOnSlurmd(t *testing.T) {
	s := findSlurm(t)
	for where, bad := range map[string]bool{"slurmctld": false, "slurmd": true} {
		dir, _ := s.write(t, map[string]string{"slurm.conf": base + "ResumeProgram=UP\nSuspendProgram=/usr/bin/true\nSuspendTime=60\nPowerAction=up Program=/usr/bin/true Location=" + where +
			"\nNodeName=n1 State=CLOUD\nPartitionName=p Nodes=ALL\n"})
		defer os.RemoveAll(dir)
		f := doctor.Facts{Version: s.version}
		f.SetSlurmConf(slurmconf.ReadConfig(filepath.Join(dir, "slurm.conf"), nil))
		rules := map[string]bool{}
		for _, finding := range doctor.Check(f) {
			rules[finding.Rule] = true
		}
		if s.version.Major < 26 {
			assert.True(t, rules["refused"], "there is no PowerAction yet")
			continue
		}
		out := s.run(t, dir, `slurmctld -D -i >"$0/log" 2>&1 & until scontrol ping | grep -q UP; do sleep 0.1; done; scontrol update nodename=n1 state=power_up && echo RESUMED`)
		assert.Equal(t, bad, rules["resume-on-slurmd"], where)
		assert.NotEqual(t, bad, strings.Contains(out, "RESUMED\n"), "%s: %s", where, out)
	}
}
