// Command localcluster runs a real Kubernetes cluster of one node, built from
// source, in namespaces of its own. See README.md beside it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"
)

// Exit codes of `status`, and 1 for every other failure.
const (
	exitBroken = 1
	exitUsage  = 2
	exitDown   = 3
)

const usage = `localcluster [--name NAME] [--cache DIR] COMMAND

  up [--gpus N]        start the cluster, or check that it runs; N pretended nvidia.com/gpu
  down                 end it and remove all it made, except the built tools
  status [-o json]     show it; exit status 0 healthy, 1 broken, 3 down
  stop COMPONENT       kill one of the components that status shows, until the next up
  list                 show all clusters
  kubeconfig           print the path of the administrator's kubeconfig
  kubectl ARG...       run kubectl as the administrator
  load-image FILE...   give image archives (docker or OCI) to the node; - is standard input
  ns COMMAND ARG...    run a command of the host in the cluster's network, with its DNS
  build                build the tools and do nothing else
`

// exitError carries an exit status that says all there is to say.
type exitError int

func (e exitError) Error() string { return "exit status " + strconv.Itoa(int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A root shell got by su may lack the system directories, where runc and iptables are.
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	err := run(ctx, os.Args[1:], os.Stdout)
	var code exitError
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(exitBroken)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("localcluster", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	name := flags.String("name", "slurmtide", "")
	cache := flags.String("cache", "", "")
	if err := flags.Parse(args); err != nil {
		return exitError(exitUsage)
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return exitError(exitUsage)
	}
	command, rest := flags.Arg(0), flags.Args()[1:]
	if command == "init" && len(rest) == 2 && os.Getpid() == 1 {
		return runInit(rest[0], rest[1], os.NewFile(3, "start"))
	}
	dir, err := cacheDir(*cache)
	if err != nil {
		return err
	}
	c, err := openCluster(dir, sourceDir(), *name, newProgress(stdout))
	if err != nil {
		return err
	}
	switch command {
	case "up":
		up := flag.NewFlagSet("up", flag.ContinueOnError)
		gpus := up.Int("gpus", -1, "how many nvidia.com/gpu to pretend (default: 0 for a new cluster, no change for a running one)")
		if up.Parse(rest) != nil || up.NArg() > 0 {
			return exitError(exitUsage)
		}
		return c.up(ctx, *gpus)
	case "down":
		return c.down(ctx)
	case "stop":
		if len(rest) != 1 {
			return errors.New("stop: name one component; status shows them")
		}
		return c.stopComponent(ctx, rest[0])
	case "status":
		return c.status(ctx, stdout, len(rest) == 2 && rest[0] == "-o" && rest[1] == "json")
	case "list":
		return list(ctx, dir, stdout)
	case "kubeconfig":
		fmt.Fprintln(stdout, c.kubeconfig())
		return nil
	case "kubectl":
		return c.execKubectl(ctx, rest)
	case "load-image":
		return c.loadImages(ctx, rest)
	case "ns":
		return c.execInNetwork(rest)
	case "build":
		return c.tools.build(ctx)
	case "version":
		fmt.Fprintln(stdout, "Kubernetes", kubernetesVersion)
		return nil
	}
	return fmt.Errorf("unknown command %q; run localcluster without arguments to see them all", command)
}

// cacheDir is an absolute path, as it is handed to processes with another working directory.
func cacheDir(flagged string) (string, error) {
	dir := flagged
	if dir == "" {
		dir = os.Getenv("SLURMTIDE_CACHE")
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory: set SLURMTIDE_CACHE or --cache: %w", err)
		}
		dir = filepath.Join(home, ".cache", "slurmtide")
	}
	return filepath.Abs(dir)
}

// sourceDir is where this program's sources and those in kube/ are.
// localcluster.sh names it; `go run .` is started in it.
func sourceDir() string {
	if dir := os.Getenv("LOCALCLUSTER_SOURCE"); dir != "" {
		return dir
	}
	return "."
}

func (c *cluster) status(ctx context.Context, w io.Writer, asJSON bool) error {
	h := c.health(ctx)
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(struct {
			Name       string  `json:"name"`
			Healthy    bool    `json:"healthy"`
			Kubeconfig string  `json:"kubeconfig"`
			Record     *record `json:"record"`
			Health     health  `json:"health"`
		}{c.name, h.ok(), c.kubeconfig(), c.rec, h}); err != nil {
			return err
		}
		return statusCode(h)
	}
	if !h.Running {
		fmt.Fprintf(w, "cluster %s is down\n", c.name)
		return statusCode(h)
	}
	fmt.Fprintf(w, "cluster %s: node %s, age %s, %d GPUs\n", c.name, h.Node, time.Since(c.rec.Started).Round(time.Second), h.GPUs)
	p := c.rec.Plan
	fmt.Fprintf(w, "apiserver %s  node %s  pods %s  services %s  dns %s\n", p.Server(), p.NodeAddr(), p.PodCIDR(), p.ServiceCIDR(), p.DNSAddr())
	fmt.Fprintf(w, "kubeconfig %s\nlogs %s\n\n", c.kubeconfig(), c.logs())
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "COMPONENT\tPID\n%s\t%d\n", "init", c.rec.Init.PID)
	for _, comp := range components(p, func(string) string { return "" }) {
		pid := "down"
		if n, ok := h.PIDs[comp.Name]; ok {
			pid = strconv.Itoa(n)
		}
		fmt.Fprintf(t, "%s\t%s\n", comp.Name, pid)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !h.ok() {
		fmt.Fprintf(w, "\nbroken: %s\n", h.problem())
	}
	return statusCode(h)
}

func statusCode(h health) error {
	switch {
	case !h.Running:
		return exitError(exitDown)
	case !h.ok():
		return exitError(exitBroken)
	}
	return nil
}

func list(ctx context.Context, cache string, w io.Writer) error {
	names, err := clusterNames(cache)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tAPISERVER\tAGE")
	for _, name := range names {
		c, err := openCluster(cache, sourceDir(), name, newProgress(w))
		if err != nil {
			return err
		}
		h := c.health(ctx)
		switch {
		case !h.Running:
			fmt.Fprintf(t, "%s\tdown\t\t\n", name)
		default:
			state := "healthy"
			if !h.ok() {
				state = "broken: " + h.problem()
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, state, c.rec.Plan.Server(), time.Since(c.rec.Started).Round(time.Second))
		}
	}
	return t.Flush()
}

// execKubectl turns this process into kubectl, so that signals and the terminal are its own.
func (c *cluster) execKubectl(ctx context.Context, args []string) error {
	if err := c.mustRun(); err != nil {
		return err
	}
	return execute(c.kubectl(ctx, args...))
}

// execInNetwork turns this process into a command in the cluster's network
// namespace. Files and processes stay the host's, only resolv.conf is the cluster's.
// Without --no-mtab mount makes a directory /run/mount, on the host.
func (c *cluster) execInNetwork(args []string) error {
	if err := c.mustRun(); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("ns: name a command")
	}
	return execute(exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(c.rec.Init.PID), "--net",
		"unshare", "--mount", "--propagation", "slave",
		"sh", "-c", `mount --no-mtab --bind "$0" /etc/resolv.conf && exec "$@"`, c.sub("conf", "ns-resolv.conf"),
	}, args...)...))
}

func execute(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	env := cmd.Env
	if env == nil {
		env = os.Environ()
	}
	return fmt.Errorf("starting %s: %w", cmd.Path, syscall.Exec(cmd.Path, cmd.Args, env))
}
