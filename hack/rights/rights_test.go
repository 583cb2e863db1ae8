package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/pods"
)

// line is an audit event as the API server writes it.
func line(verb, uri, ref, role, code string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"` + uri + `","verb":"` + verb +
		`","user":{"username":"system:serviceaccount:a:b"},"objectRef":{` + ref + `},"responseStatus":{"code":` + code +
		`},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"b/a\" of ` + role + ` to ServiceAccount \"b/a\""}}` + "\n"
}

const (
	pod    = `"resource":"pods","namespace":"a","name":"n","apiVersion":"v1"`
	config = `"resource":"configmaps","namespace":"a","name":"n","apiVersion":"v1"`
	status = `"resource":"nodesets","subresource":"status","apiGroup":"slurmtide.io","apiVersion":"v1alpha1"`
	bridge = `ClusterRole \"slurmtide-bridge\"`
)

func read(t *testing.T, text string) rights {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	used := rights{}
	require.NoError(t, used.readLog(file))
	return used
}

func TestReadLog(t *testing.T) {
	get := line("get", "/api/v1/x", pod, bridge, "200")
	for name, test := range map[string]struct {
		text string
		want rights
	}{
		"a request":          {get, rights{"slurmtide-bridge": {"get pods": true}}},
		"one that failed":    {line("get", "/x", pod, bridge, "404"), rights{"slurmtide-bridge": {"get pods": true}}},
		"a subresource":      {line("patch", "/x", status, bridge, "200"), rights{"slurmtide-bridge": {"patch nodesets.slurmtide.io/status": true}}},
		"a watch":            {line("watch", "/x?watch=true", pod, bridge, "200"), rights{"slurmtide-bridge": {"watch pods": true}}},
		"a list by watching": {line("watch", "/x?sendInitialEvents=true\\u0026watch=true", pod, bridge, "200"), rights{"slurmtide-bridge": {"watch pods": true, "list pods": true}}},
		"an apply":           {line("patch", "/x", config, bridge, "200"), rights{"slurmtide-bridge": {"patch configmaps": true}}},
		"one that makes":     {line("patch", "/x", config, bridge, "201"), rights{"slurmtide-bridge": {"patch configmaps": true, "create configmaps": true}}},
		"the stack's roles": {
			line("get", "/x", pod, `Role \"bridge\"`, "200") + line("watch", "/x", `"resource":"nodes"`, `ClusterRole \"slurmtide-bridge-slurm-1\"`, "200"),
			rights{"slurmtide-bridge": {"get pods": true, "watch nodes": true}},
		},
		"allowed by none":                   {`{"kind":"Event","verb":"get","objectRef":{"resource":"pods"},"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":""}}` + "\n", rights{}},
		"a line that is being written":      {get + `{"kind":"Event","ver`, rights{"slurmtide-bridge": {"get pods": true}}},
		"a line that was not written whole": {`{"kind":"Event","ver` + get, rights{"slurmtide-bridge": {"get pods": true}}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, read(t, test.text)) })
	}
	file := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(file, []byte(get+"E1125 trouble\n"), 0o600))
	require.ErrorContains(t, rights{}.readLog(file), "audit.log:2: no audit event")
}

func TestCompare(t *testing.T) {
	granted := rights{"slurmtide-bridge": {"get pods": true, "create configmaps": true, "patch configmaps": true}}
	get, apply := line("get", "/x", pod, bridge, "200"), line("patch", "/x", config, bridge, "200")
	const create = "slurmtide-bridge: create configmaps"
	for name, test := range map[string]struct {
		log     string
		allowed allowances
		want    []string
	}{
		"all is used":     {get + line("patch", "/x", config, bridge, "201"), nil, nil},
		"a verb too many": {get + apply, nil, []string{create + ": never used: remove it where the role is made, or say in hack/rights/allowed.txt who needs it"}},
		"it may stay":     {get + apply, allowances{create: "why"}, nil},
		"used after all": {
			get + line("patch", "/x", config, bridge, "201"), allowances{create: "why"},
			[]string{create + ": used after all: remove it from hack/rights/allowed.txt"},
		},
		"no longer given": {
			get + line("patch", "/x", config, bridge, "201"), allowances{"slurmtide-bridge: delete pods": "why"},
			[]string{"slurmtide-bridge: delete pods: not given: remove it from hack/rights/allowed.txt"},
		},
		"another log": {"", nil, []string{"slurmtide-bridge: nothing was done with it: is this the audit log of the whole suite?"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, compare(granted, read(t, test.log), test.allowed))
		})
	}
}

func TestParseAllowed(t *testing.T) {
	got, err := parseAllowed("# words\n\ncharts r: get pods # for it\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]allowances{"charts": {"r: get pods": "for it"}}, got)
	for text, want := range map[string]string{
		"some r: get pods # x":                             `allowed.txt:1: there is no suite "some"`,
		"charts r: get pods":                               "allowed.txt:1: r: get pods: say behind a # why it stays",
		"charts r: get pods # x\ncharts r: get pods # why": "allowed.txt:2: r: get pods is there twice",
	} {
		_, err := parseAllowed(text)
		require.ErrorContains(t, err, want)
	}
}

// Every right of the manifests, which other tests hold to the code and the charts, is one that a suite is to use, and what is on the list is one of those.
func TestSuites(t *testing.T) {
	given := map[string]bool{}
	for _, file := range []string{"controller.yaml", "rbac.yaml", "keda/scaler.yaml"} {
		text, err := os.ReadFile("../../docs/examples/" + file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role struct {
				Kind     string
				Metadata struct{ Name string }
				Rules    []rbacv1.PolicyRule
			}
			require.NoError(t, yaml.Unmarshal([]byte(document), &role), file)
			if role.Kind != "Role" && role.Kind != "ClusterRole" {
				continue
			}
			for _, rule := range role.Rules {
				resource, sub, _ := strings.Cut(rule.Resources[0], "/")
				for _, verb := range rule.Verbs {
					given[roleName(role.Metadata.Name)+": "+verb+" "+pods.Right{Group: rule.APIGroups[0], Resource: resource, Subresource: sub}.String()] = true
				}
			}
		}
	}
	delete(given, controllerRole+": bind clusterroles.rbac.authorization.k8s.io")
	allowed, err := parseAllowed(allowedText)
	require.NoError(t, err)
	seen := map[string]bool{}
	for suite, roles := range suites {
		for role, all := range roles {
			for right := range all {
				assert.False(t, seen[role+": "+right], "%s: %s is of two suites", role, right)
				seen[role+": "+right] = true
			}
		}
		for _, found := range compare(roles, roles, allowed[suite]) {
			assert.NotContains(t, found, ": not given", suite)
		}
	}
	assert.Equal(t, seen, given)
}
