package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunWithoutACluster(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		code exitError // 0: an error with a message
		want string
	}{
		"no command":         {nil, exitUsage, ""},
		"unknown flag":       {[]string{"--label", "x", "up"}, exitUsage, ""},
		"unknown command":    {[]string{"start"}, 0, `unknown command "start"`},
		"bad name":           {[]string{"--name", "../x", "up"}, 0, `cluster name "../x"`},
		"status":             {[]string{"status"}, exitDown, ""},
		"kubectl":            {[]string{"kubectl", "get", "nodes"}, 0, "cluster slurmtide is down: start it with `localcluster --name slurmtide up`"},
		"load-image":         {[]string{"load-image", "x.tar"}, 0, "is down"},
		"ns":                 {[]string{"ns", "true"}, 0, "is down"},
		"up with an operand": {[]string{"up", "now"}, exitUsage, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), append([]string{"--cache", t.TempDir()}, c.args...), &out)
			if c.code != 0 {
				assert.Equal(t, c.code, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestStatusCode(t *testing.T) {
	t.Parallel()
	healthy := health{Running: true, APIServer: true, Node: "Ready", DNS: true, Accounts: true}
	require.NoError(t, statusCode(healthy))
	assert.Equal(t, exitError(exitDown), statusCode(health{}))
	broken := healthy
	broken.Missing = []string{"kubelet"}
	assert.Equal(t, exitError(exitBroken), statusCode(broken))
	assert.Equal(t, "not running: kubelet", broken.problem())
}
