package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/internal/manifest"
)

// The example is one that an API server takes, its flags are there, and Service, probes and daemon agree on the port.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/exporter.yaml")
	require.NoError(t, err)
	documents := strings.Split(string(text), "\n---\n")
	require.Len(t, documents, 2)
	var service corev1.Service
	var deployment appsv1.Deployment
	require.NoError(t, manifest.Unmarshal([]byte(documents[0]), &service))
	require.NoError(t, manifest.Unmarshal([]byte(documents[1]), &deployment))
	pod := deployment.Spec.Template
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, pod.Labels)
	assert.Equal(t, service.Spec.Selector, pod.Labels)
	container := pod.Spec.Containers[0]

	c := exporterCommand()
	address := ""
	c.Action = func(c *urfave.Context) error {
		assert.Equal(t, "http://slurmrestd.slurm:6820", c.String("slurmrestd"))
		assert.Equal(t, container.VolumeMounts[0].MountPath+"/jwt_hs256.key", c.String("jwt-key"))
		address = c.String("metrics-address")
		return nil
	}
	app := &urfave.App{Commands: []*urfave.Command{c}}
	require.NoError(t, app.Run(append([]string{"slurmtide"}, container.Args...)))
	assert.Equal(t, ":9446", address)
	assert.EqualValues(t, 9446, container.Ports[0].ContainerPort)
	assert.EqualValues(t, 9446, service.Spec.Ports[0].Port)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
	}
}

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]+)`)? *\\|")

// The flags in the page's table are there, with these defaults.
func TestDocumentedFlags(t *testing.T) {
	page, err := os.ReadFile("../../docs/exporter.md")
	require.NoError(t, err)
	rows := flagRow.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, rows)
	help := map[string]string{}
	for _, f := range exporterCommand().Flags {
		switch f := f.(type) {
		case *urfave.DurationFlag:
			help[f.Name] = strings.Replace(f.Value.String(), "1m0s", "1m", 1)
		case *urfave.StringFlag:
			help[f.Name] = f.Value
		case *urfave.Float64Flag:
			help[f.Name] = strings.TrimSuffix(f.GetDefaultText(), ".0")
		case *urfave.IntFlag:
			help[f.Name] = strconv.Itoa(f.Value)
		case *urfave.BoolFlag:
			help[f.Name] = ""
		}
	}
	for _, row := range rows {
		value, ok := help[row[1]]
		assert.True(t, ok, "there is no --%s", row[1])
		assert.Equal(t, value, row[2], "--%s", row[1])
	}
}
