//go:build integration

// Package daemons_test compares slurmconf with real slurmctlds. It needs root, an unpacked Slurm image in SLURMTIDE_SLURM_ROOT and
// its version in SLURMTIDE_SLURM_VERSION; see hack/integration.sh.
package daemons_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// base is what slurmctld needs to run here; DIR is replaced.
const base = `ClusterName=Test
SlurmctldHost=ctl(127.0.0.1)
AuthType=auth/slurm
CredType=auth/slurm
SlurmUser=root
StateSaveLocation=DIR/state
SlurmctldPidFile=DIR/pid
ProctrackType=proctrack/linuxproc
SlurmctldParameters=enable_configless
MailProg=/usr/bin/true
ReturnToService=2
`

// slurm is where the daemon is.
type slurm struct {
	root    string
	version slurmconf.Version
}

func findSlurm(t *testing.T) slurm {
	root := os.Getenv("SLURMTIDE_SLURM_ROOT")
	require.NotEmpty(t, root, "set SLURMTIDE_SLURM_ROOT to an unpacked Slurm image")
	version, err := slurmconf.ParseVersion(os.Getenv("SLURMTIDE_SLURM_VERSION"))
	require.NoError(t, err, "set SLURMTIDE_SLURM_VERSION to its version")
	return slurm{root, version}
}

// read is what a slurmctld says after its start.
type read struct {
	refused bool
	output  string
	config  map[string]string
	nodes   map[string]map[string]string
	parts   []part
}

// write puts files beside slurm.conf, with DIR replaced, and gives their directory as it is outside and inside of the image.
func (s slurm) write(t require.TestingT, files map[string]string) (outside, inside string) {
	outside, err := os.MkdirTemp(filepath.Join(s.root, "tmp"), "conf")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(outside, 0o755))
	inside = "/tmp/" + filepath.Base(outside)
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(outside, name), []byte(strings.ReplaceAll(text, "DIR", inside)), 0o644))
	}
	return outside, inside
}

// run runs a command in the image, with a network and processes of its own; none: slurmctld.
func (s slurm) run(t require.TestingT, dir, command string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child",
		"sh", "testdata/daemon.sh", s.root, dir, command).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// start runs slurmctld with the files in a directory.
func (s slurm) start(t require.TestingT, dir string) read {
	out := s.run(t, dir, "")
	r := read{output: out, refused: strings.Contains(out, "REFUSED\n"), config: map[string]string{}}
	config, rest, _ := strings.Cut(r.output, "== nodes\n")
	nodes, partitions, _ := strings.Cut(rest, "== partitions\n")
	for _, line := range strings.Split(config, "\n") {
		if key, value, ok := strings.Cut(line, " = "); ok {
			r.config[strings.TrimSpace(key)] = value
		} else if key, ok := strings.CutSuffix(line, " ="); ok {
			r.config[strings.TrimSpace(key)] = ""
		}
	}
	r.nodes = records(nodes)
	require.True(t, r.refused || r.config["ClusterName"] != "", "neither started nor refused: %s", out)
	if !r.refused {
		var answer struct{ Partitions []part }
		require.NoError(t, json.Unmarshal([]byte(partitions), &answer), "%s", partitions)
		r.parts = answer.Partitions
	}
	return r
}

// records reads lines of key=value, by their NodeName.
func records(text string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		fields := map[string]string{}
		for _, word := range strings.Fields(line) {
			k, v, _ := strings.Cut(word, "=")
			fields[k] = v
		}
		if name := fields["NodeName"]; name != "" {
			all[name] = fields
		}
	}
	return all
}

// compare starts slurmctld with files and checks that it has read the same as we do.
func (s slurm) compare(t require.TestingT, files map[string]string) {
	dir, inside := s.write(t, files)
	defer os.RemoveAll(dir)
	config, err := slurmconf.ReadConfig(filepath.Join(dir, "slurm.conf"), nil)
	require.NoError(t, err, "%q", files)
	cluster, err := config.Cluster(s.version)
	require.NoError(t, err, "%q", files)
	got := s.start(t, dir)
	require.False(t, got.refused, "slurmctld refuses %q: %s", files, got.output)

	want := map[string]string{
		"ClusterName": cluster.Name.V, "StateSaveLocation": inside + "/state",
		"ResumeTimeout": secs(cluster.ResumeTimeout.V), "SuspendTimeout": secs(cluster.SuspendTimeout.V), "SlurmdTimeout": secs(cluster.SlurmdTimeout.V),
		"SuspendTime": secs(cluster.SuspendTime.V),
		"ResumeRate":  strconv.Itoa(cluster.ResumeRate.V) + " nodes/min", "SuspendRate": strconv.Itoa(cluster.SuspendRate.V) + " nodes/min",
		"ReturnToService": strconv.Itoa(cluster.ReturnToService.V), "ResumeProgram": orNull(cluster.ResumeProgram.V),
		"SelectType": cluster.SelectType.V, "SelectTypeParameters": strings.ToUpper(cluster.SelectTypeParameters.V),
		"SlurmctldParameters": orNull(strings.Join(cluster.SlurmctldParameters.V, ",")),
		"SchedulerParameters": orNull(strings.Join(cluster.SchedulerParameters.V, ",")),
		"GresTypes":           orNull(strings.Join(cluster.GresTypes.V, ",")),
	}
	if mail, ok := config.Get("MailDomain"); ok {
		want["MailDomain"] = mail.Value
	}
	for i, host := range cluster.Hosts {
		want["SlurmctldHost["+strconv.Itoa(i)+"]"] = host.Name + "(" + host.Address + ")"
	}
	for i, program := range cluster.PrologSlurmctld {
		want["PrologSlurmctld["+strconv.Itoa(i)+"]"] = program.V
	}
	have := map[string]string{}
	for key := range want {
		have[key] = got.config[key]
	}
	require.Equal(t, want, have, "%q", files)
	compareNodes(t, cluster, got, files)
	compareParts(t, cluster, got, files)
}

func compareNodes(t require.TestingT, cluster *slurmconf.Cluster, got read, files map[string]string) {
	n := 0
	for _, line := range cluster.Nodes {
		for i, name := range line.Names.Expand() {
			n++
			node := got.nodes[name]
			require.NotNil(t, node, "slurmctld has no %s: %q", name, files)
			want := map[string]string{
				"CPUTot": strconv.Itoa(line.CPUs.V), "Boards": strconv.Itoa(line.Boards.V), "Sockets": strconv.Itoa(line.Sockets.V),
				"CoresPerSocket": strconv.Itoa(line.CoresPerSocket.V), "ThreadsPerCore": strconv.Itoa(line.ThreadsPerCore.V),
				"RealMemory": strconv.Itoa(line.RealMemory.V), "TmpDisk": strconv.Itoa(line.TmpDisk.V), "Weight": strconv.Itoa(line.Weight.V),
				"Gres": orNull(line.Gres.V), "AvailableFeatures": orNull(strings.Join(line.Features.V, ",")),
				"NodeAddr": line.Address(i), "NodeHostName": line.HostName(i),
			}
			have := map[string]string{}
			for key := range want {
				have[key] = node[key]
			}
			require.Equal(t, want, have, "%s of %q", name, files)
		}
	}
	require.Len(t, got.nodes, n)
}

// timeNumber is how slurmctld's JSON writes a number that may be absent.
type timeNumber struct {
	Set, Infinite bool
	Number        int64
}

// part is a partition in slurmctld's JSON.
type part struct {
	Name     string
	Timeouts struct{ Resume, Suspend timeNumber }
	Time     timeNumber `json:"suspend_time"`
}

func compareParts(t require.TestingT, cluster *slurmconf.Cluster, got read, files map[string]string) {
	require.Len(t, got.parts, len(cluster.Partitions))
	for _, p := range cluster.Partitions {
		i := slices.IndexFunc(got.parts, func(have part) bool { return have.Name == p.Name })
		require.GreaterOrEqual(t, i, 0, "slurmctld has no partition %s: %q", p.Name, files)
		want := part{Name: p.Name, Time: number(p.SuspendTime)}
		want.Timeouts.Resume, want.Timeouts.Suspend = number(p.ResumeTimeout), number(p.SuspendTimeout)
		require.Equal(t, want, got.parts[i], "%q", files)
	}
}

func number(v slurmconf.Value[time.Duration]) timeNumber {
	switch {
	case !v.IsSet():
		return timeNumber{}
	case v.V == slurmconf.Infinite:
		return timeNumber{Infinite: true}
	}
	return timeNumber{Set: true, Number: int64(v.V / time.Second)}
}

func secs(d time.Duration) string {
	if d == slurmconf.Infinite {
		return "INFINITE"
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + " sec"
}

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}
