package stack

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/slurmconf"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test -update once")
	assert.Equal(t, string(want), string(got), "%s; go test -update rewrites it", path)
}

// goldenOptions are the stacks whose files are compared whole.
func goldenOptions(t *testing.T) map[string]Options {
	gpus, err := FakeGPUs("gpu-[0-3]", "h100", 2)
	require.NoError(t, err)
	return map[string]Options{
		"full": {
			Namespace: "demo", SlurmVersion: "26.05", Gate: true,
			NodeLines: []string{
				"NodeName=cpu-[0-9] CPUs=2 RealMemory=1000 State=CLOUD",
				"NodeName=gpu-[0-3] CPUs=4 RealMemory=1000 Gres=gpu:h100:2 State=CLOUD",
			},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-9] Default=YES", "PartitionName=gpu Nodes=gpu-[0-3]"},
			GresLines:      []string{gpus},
			ExtraConf:      []string{"KillWait=5", "suspendtime=7"},
			SlurmtideConf:  "GateTimeout=60\n",
			BridgeArgs:     []string{"--log-level=debug"},
		},
		"scripts": {
			Namespace: "test-1", ClusterName: "c1", ClusterDomain: "k8s.example", SlurmVersion: "24.11",
			NodeLines:     []string{"NodeName=n[0-1] CPUs=1 State=CLOUD"},
			StateInMemory: true,
			Scripts:       map[string]string{"resume": "#!/bin/sh\necho \"$@\" >> /tmp/resume\n"},
		},
	}
}

func TestRenderGolden(t *testing.T) {
	for name, o := range goldenOptions(t) {
		t.Run(name, func(t *testing.T) {
			conf, err := Render(o)
			require.NoError(t, err)
			golden(t, name+".slurm.conf", []byte(conf["slurm.conf"]))
			var found []string
			for _, finding := range doctor.Check(doctor.FromTexts(slurmconf.Version{Major: 26, Minor: 5}, conf)) {
				found = append(found, finding.Rule)
			}
			// What scripts leaves out: partitions and the gate.
			assert.Equal(t, map[string][]string{"scripts": {"cloud-without-partition", "start-gate"}}[name], found, "slurmtide doctor")
			delete(conf, "slurm.conf")

			o = o.withDefaults()
			var all bytes.Buffer
			for _, obj := range objects(o, conf, keys{slurm: []byte("s"), jwt: []byte("j")}) {
				y, err := yaml.Marshal(obj)
				require.NoError(t, err)
				all.WriteString("---\n")
				all.Write(y)
			}
			template, err := yaml.Marshal(PodTemplate(o))
			require.NoError(t, err)
			all.WriteString("--- # template for slurmd pods\n")
			all.Write(template)
			golden(t, name+".yaml", all.Bytes())
		})
	}
}

// Every setting of the recommended slurm.conf says why it is there: a comment above it, or above the settings it stands with.
func TestEverySettingHasAReason(t *testing.T) {
	explained := false
	for i, line := range strings.Split(slurmConfTemplate, "\n") {
		switch {
		case strings.HasPrefix(line, "# ---"), line == "":
			explained = strings.HasPrefix(line, "# ---")
		case strings.HasPrefix(line, "#"):
			explained = true
		case strings.HasPrefix(line, "{{"):
		default:
			assert.True(t, explained, "line %d: %s", i+1, line)
		}
	}
}

func TestOverride(t *testing.T) {
	conf := "# SuspendTime=1\nSuspendTime=2\nNodeName=a\nPrologSlurmctld=/x\n"
	for name, tc := range map[string]struct {
		extra []string
		want  string
	}{
		"nothing":                    {nil, conf},
		"replaced, comments are not": {[]string{"suspendtime = 3"}, "# SuspendTime=1\nsuspendtime = 3\nNodeName=a\nPrologSlurmctld=/x\n"},
		"new":                        {[]string{"KillWait=5"}, conf + "KillWait=5\n"},
		"nodes add up":               {[]string{"NodeName=b"}, conf + "NodeName=b\n"},
		"prologs add up":             {[]string{"PrologSlurmctld=/y"}, conf + "PrologSlurmctld=/y\n"},
		"comment":                    {[]string{"# SuspendTime=9"}, conf + "# SuspendTime=9\n"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, override(conf, tc.extra)) })
	}
}

func TestGate(t *testing.T) {
	o := Options{Namespace: "a", SlurmVersion: "24.11", NodeLines: []string{"NodeName=a State=CLOUD"}}
	conf, err := Render(o)
	require.NoError(t, err)
	assert.NotContains(t, conf["slurm.conf"], "PrologSlurmctld")
	assert.NotContains(t, conf, "gres.conf")
	o.Gate = true
	conf, err = Render(o)
	require.NoError(t, err)
	assert.Contains(t, conf["slurm.conf"], "\nPrologSlurmctld=/opt/slurmtide/start-gate\n")
	o.Gate, o.Prolog = false, "#!/bin/sh\n"
	conf, err = Render(o)
	require.NoError(t, err)
	assert.NotContains(t, conf["slurm.conf"], "start-gate")
	assert.Contains(t, conf["slurm.conf"], "\nPrologSlurmctld=/opt/slurmtide/prolog\n")
	assert.Contains(t, directories(o).Env, corev1.EnvVar{Name: "PROLOG", Value: o.Prolog})
}

func TestSpoolOfItsOwn(t *testing.T) {
	o := Options{Namespace: "a", SlurmVersion: "24.11", NodeLines: []string{"NodeName=a State=CLOUD"}, SpoolSize: "8Mi"}
	spec := podSpec(o.withDefaults())
	for _, c := range spec.Containers {
		for _, m := range c.VolumeMounts {
			if m.MountPath == spoolDir {
				assert.Equal(t, "spool", m.Name, c.Name)
			}
		}
	}
	volume := spec.Volumes[slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "spool" })]
	assert.Equal(t, corev1.StorageMediumMemory, volume.EmptyDir.Medium)
	assert.Equal(t, "8Mi", volume.EmptyDir.SizeLimit.String())
}

func TestNoBridge(t *testing.T) {
	o := Options{Namespace: "a", SlurmVersion: "24.11", NodeLines: []string{"NodeName=a State=CLOUD"}, NoBridge: true}
	spec := podSpec(o.withDefaults())
	assert.Len(t, spec.Containers, 2)
	assert.Len(t, spec.InitContainers, 2, "the programs are there without the bridge")
	assert.Empty(t, spec.ServiceAccountName)
}

func TestOptionsRefused(t *testing.T) {
	good := Options{Namespace: "a", SlurmVersion: "26.05", NodeLines: []string{"NodeName=a State=CLOUD"}}
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"namespace":        {func(o *Options) { o.Namespace = "A_b" }, `namespace "A_b"`},
		"no namespace":     {func(o *Options) { o.Namespace = "" }, `namespace ""`},
		"version":          {func(o *Options) { o.SlurmVersion = "23.11" }, "24.11 and 26.05"},
		"no nodes":         {func(o *Options) { o.NodeLines = nil }, "NodeLines"},
		"spool size":       {func(o *Options) { o.SpoolSize = "small" }, `spool size "small"`},
		"unknown program":  {func(o *Options) { o.Scripts = map[string]string{"reboot": ""} }, `"reboot"`},
		"several problems": {func(o *Options) { o.Namespace, o.SlurmVersion = "", "" }, "unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := Render(o)
			require.ErrorContains(t, err, tc.want)
			_, err = Open(nil, o)
			assert.ErrorContains(t, err, tc.want, "the cluster is not asked")
		})
	}
}

func TestFakeGPUs(t *testing.T) {
	line, err := FakeGPUs("gpu-[0-1]", "a100", 1)
	require.NoError(t, err)
	assert.Equal(t, "NodeName=gpu-[0-1] Name=gpu Type=a100 File=/dev/null Flags=nvidia_gpu_env", line)
	_, err = FakeGPUs("g", "a100", 7)
	require.ErrorContains(t, err, "1 to 6")
	_, err = FakeGPUs("g", "a100", 0)
	assert.Error(t, err)
}
