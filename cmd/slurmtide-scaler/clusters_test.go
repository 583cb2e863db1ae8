package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

func TestParseClusters(t *testing.T) {
	got, err := parseClusters([]byte(`
clusters:
- name: one
  namespace: slurm
  slurmrestd: http://one:6820
  jwtKey: /keys/one
- name: two
  slurmrestd: unix:///run/two.sock
  jwtUser: operator
  selectTypeParameters: CR_CPU_Memory,CR_LLN
`))
	require.NoError(t, err)
	assert.Equal(t, []cluster{
		{Name: "one", Namespace: "slurm", Slurmrestd: "http://one:6820", JWTKey: "/keys/one", JWTUser: "slurm"},
		{Name: "two", Slurmrestd: "unix:///run/two.sock", JWTUser: "operator", SelectTypeParameters: "CR_CPU_Memory,CR_LLN", choose: scaler.Select{CPUs: true}},
	}, got)
	for text, want := range map[string]string{
		"":                            "there are no clusters in it",
		"clusters: [{name: a}]":       "clusters[0].slurmrestd is missing (cluster a)",
		"clusters: [{slurmrestd: x}]": "clusters[0].name is missing",
		"clusters: [{title: a}]":      `unknown field "title"`,
		"clusters: [{name: a, slurmrestd: x}, {name: a, slurmrestd: y}]":             "cluster a stands there twice",
		"clusters: [{name: a, slurmrestd: x, selectTypeParameters: CR_Chip_Memory}]": `clusters[0].selectTypeParameters: SelectTypeParameters "CR_Chip_Memory": "CR_Chip_Memory" is none that slurmctld knows`,
	} {
		_, err := parseClusters([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}
