package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is what is known of a cluster between two runs of this program.
type record struct {
	Plan    Plan      `json:"plan"`
	Init    identity  `json:"init"`
	Started time.Time `json:"started"`
	// Programs are the tools the cluster was started with, by name, relative
	// to the cache. It keeps them when newer ones are built.
	Programs map[string]string `json:"programs"`
}

// cluster is one cluster on this machine, up or not.
type cluster struct {
	dirs
	name  string
	tools toolbox
	out   *progress
	rec   *record // nil when nothing is recorded
}

func openCluster(cache, source, name string, out *progress) (*cluster, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	c := &cluster{
		dirs: newDirs(cache, name), name: name, out: out,
		tools: toolbox{cache: cache, source: source, out: out},
	}
	return c, c.reload()
}

// reload reads the record; another process may have changed it.
func (c *cluster) reload() error {
	var rec record
	switch err := readJSON(c.nodeFile(), &rec); {
	case err == nil:
		c.rec = &rec
	case errors.Is(err, os.ErrNotExist):
		c.rec = nil
	default:
		return err
	}
	return nil
}

// lock makes this the only process that starts or ends the cluster.
func (c *cluster) lock(ctx context.Context) (unlock func(), err error) {
	if unlock, err = lockFile(ctx, c.state+".lock"); err != nil {
		return nil, err
	}
	return unlock, c.reload()
}

func (c *cluster) running() bool { return c.rec != nil && c.rec.Init.alive("/proc") }

func (c *cluster) mustRun() error {
	if !c.running() {
		return fmt.Errorf("cluster %s is down: start it with `localcluster --name %s up`", c.name, c.name)
	}
	return nil
}

// enter makes a command that runs a tool in the cluster's namespaces.
func (c *cluster) enter(ctx context.Context, tool string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(c.rec.Init.PID), "--mount", "--net", "--pid", "--uts", "--ipc",
		filepath.Join(inCache, c.rec.Programs[tool]),
	}, args...)...)
}

// kubectl makes a kubectl command; it runs on the host and talks over the veth.
func (c *cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.cache, c.rec.Programs["kubectl"]), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.kubeconfig(),
		"KUBECACHEDIR="+c.sub("kubectl-cache"), // instead of one in the home directory, which `down` would leave
		"NO_PROXY="+strings.Trim(os.Getenv("NO_PROXY")+","+c.rec.Plan.NodeAddr().String(), ","),
	)
	return cmd
}

// client returns an HTTP client that is the cluster's administrator.
func (c *cluster) client() (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(c.sub("pki", "admin.crt"), c.sub("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.sub("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}},
	}, nil
}

// health is what `status` shows and `up` waits for.
type health struct {
	Running   bool           `json:"running"`
	APIServer bool           `json:"apiserver"`
	Node      string         `json:"node"` // Ready, or what is wrong
	GPUs      int            `json:"gpus"`
	DNS       bool           `json:"dns"`
	Accounts  bool           `json:"accounts"` // pods can be created: the default service account exists
	Missing   []string       `json:"missing,omitempty"`
	PIDs      map[string]int `json:"pids"` // components, as the host sees them
}

func (h health) ok() bool {
	return h.Running && h.APIServer && h.Node == "Ready" && h.DNS && h.Accounts && len(h.Missing) == 0
}

func (h health) problem() string {
	switch {
	case !h.Running:
		return "it is not running"
	case len(h.Missing) > 0:
		return "not running: " + strings.Join(h.Missing, ", ")
	case !h.APIServer:
		return "the apiserver is not ready"
	case h.Node != "Ready":
		return "the node is not ready: " + h.Node
	case !h.DNS:
		return "CoreDNS is not ready"
	case !h.Accounts:
		return "the default service account is missing"
	}
	return "none"
}

func (c *cluster) health(ctx context.Context) health {
	h := health{Running: c.running(), Node: "unknown", PIDs: map[string]int{}}
	if !h.Running {
		return h
	}
	h.PIDs = c.processes()
	for _, comp := range components(c.rec.Plan, func(string) string { return "" }) {
		if _, runs := h.PIDs[comp.Name]; !runs {
			h.Missing = append(h.Missing, comp.Name)
		}
	}
	client, err := c.client()
	if err != nil {
		h.Node = err.Error()
		return h
	}
	defer client.CloseIdleConnections()
	if h.APIServer = ready(ctx, client, c.rec.Plan.Server()+"/readyz"); !h.APIServer {
		return h
	}
	h.Node, h.GPUs = nodeState(ctx, client, c.rec.Plan)
	h.Accounts = ready(ctx, client, c.rec.Plan.Server()+"/api/v1/namespaces/default/serviceaccounts/default")
	h.DNS = c.dnsAnswers(ctx)
	return h
}

// dnsAnswers asks the cluster's name server for the apiserver's service.
func (c *cluster) dnsAnswers(ctx context.Context) bool {
	p := c.rec.Plan
	resolver := net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (conn net.Conn, err error) {
		err = inNetwork(c.rec.Init.PID, func() error {
			conn, err = net.DialTimeout(network, net.JoinHostPort(p.DNSAddr().String(), "53"), connectTimeout)
			return err
		})
		return conn, err
	}}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addrs, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	return err == nil && slices.Contains(addrs, p.APIServiceAddr().String())
}

// nodeState reads the node's condition Ready and how many GPUs pods can have.
func nodeState(ctx context.Context, client *http.Client, p Plan) (state string, gpus int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Server()+"/api/v1/nodes/"+p.Name, nil)
	if err != nil {
		return err.Error(), 0
	}
	res, err := client.Do(req)
	if err != nil {
		return err.Error(), 0
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "not registered", 0
	}
	var node struct {
		Status struct {
			Allocatable map[string]string
			Conditions  []struct{ Type, Status, Message string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&node); err != nil {
		return err.Error(), 0
	}
	gpus, _ = strconv.Atoi(node.Status.Allocatable["nvidia.com/gpu"]) // absent: 0
	for _, cond := range node.Status.Conditions {
		if cond.Type == "Ready" {
			if cond.Status == "True" {
				return "Ready", gpus
			}
			return cond.Message, gpus
		}
	}
	return "no condition yet", gpus
}

// clusterNames are the clusters that have a state directory.
func clusterNames(cache string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(cache, "clusters"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
