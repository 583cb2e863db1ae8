package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/render"
)

// renderCommand is `slurmtide render`.
func renderCommand() *urfave.Command {
	const files = "FILE..."
	const reads = "Reads manifests (YAML or JSON, Lists too; - is standard input), and asks nobody: neither Kubernetes nor Slurm.\n\n"
	cluster := &urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "Slurm's ClusterName (default: that of the files, if they have one alone)"}
	namespace := &urfave.StringFlag{Name: "namespace", EnvVars: []string{"SLURMTIDE_NAMESPACE"}, Value: "slurm", Usage: "of objects that name none"}
	domain := &urfave.StringFlag{Name: "cluster-domain", Value: "cluster.local", Usage: "Kubernetes' DNS domain"}
	output := func() urfave.Flag { return cli.OutputFlag("yaml", "json") }
	return &urfave.Command{
		Name:  "render",
		Usage: "print slurm.conf and Kubernetes objects, for files that you manage yourself",
		Subcommands: []*urfave.Command{
			{
				Name: "slurm.conf", ArgsUsage: files,
				Usage: "print slurm.conf of a Controller; of NodeSets alone the lines that your own slurm.conf needs",
				Description: reads + "The lines are those of power saving, nodes, node sets and partitions. Each key may stand once in slurm.conf: SlurmctldParameters of both belong into one line.\n" +
					"slurmtide doctor --slurm-conf FILE says what is missing then.\n\nExample: slurmtide render slurm.conf nodesets.yaml >> slurm.conf",
				Flags: []urfave.Flag{cluster, namespace, domain},
				Action: func(c *urfave.Context) error {
					in, err := readInput(c, true)
					if err != nil {
						return err
					}
					text, err := in.SlurmConf(settings(c))
					return printed(c.App.Writer, text, err)
				},
			},
			{
				Name: "kube", ArgsUsage: "[FILE...]",
				Usage: "print the objects of a Controller, its Accounting, RestApis and LoginSets; without one, the account and rights of a bridge",
				Description: reads + "What a Controller gets, without the controller: StatefulSet with slurmctld, bridge and slurmrestd, Services, ConfigMaps, account and rights;\n" +
					"slurmdbd, slurmrestd and login pods. The Secrets with keys, host keys and tokens are yours to make: standard error says which, and how. Nobody renews tokens then.\n" +
					"slurmdbd.conf has the password of the database: the Secret with it has to be among the files, and what is printed is secret, too.\n\nExample: slurmtide render kube --namespace slurm | kubectl apply -f -",
				Flags: []urfave.Flag{
					cluster, namespace, domain, output(),
					&urfave.StringFlag{Name: "image", EnvVars: []string{"SLURMTIDE_IMAGE"}, Usage: "image of slurmtide, for bridges (required with a Controller)"},
					&urfave.StringFlag{Name: "bridge-role", Value: "slurmtide-bridge", Usage: "ClusterRole that bridges get for their namespace"},
				},
				Action: renderKube,
			},
			{
				Name: "scaledobject", ArgsUsage: files,
				Usage:       "print a KEDA ScaledObject for each NodeSet",
				Description: reads + "KEDA powers nodes up and down by spec.replicas then, as slurmtide scaler says: docs/scaler.md.\n\nExample: slurmtide render scaledobject --push nodesets.yaml | kubectl apply -f -",
				Flags: []urfave.Flag{
					cluster, namespace, output(),
					&urfave.StringFlag{Name: "scaler", DefaultText: "slurmtide-scaler.NAMESPACE:9442", Usage: "host:port where the scaler answers KEDA"},
					&urfave.BoolFlag{Name: "push", Usage: "have the scaler tell KEDA that nodes are needed (trigger external-push), and not KEDA ask alone"},
				},
				Action: renderScaledObjects,
			},
		},
	}
}

func settings(c *urfave.Context) controlplane.Settings {
	return controlplane.Settings{Image: c.String("image"), ClusterDomain: c.String("cluster-domain"), BridgeRole: c.String("bridge-role")}
}

// readInput reads the files that the arguments name.
func readInput(c *urfave.Context, needed bool) (*render.Input, error) {
	if needed && c.NArg() == 0 {
		return nil, cli.UsageError("name files with NodeSets or a Controller; see `%s --help`", c.Command.HelpName)
	}
	in := &render.Input{}
	for _, name := range c.Args().Slice() {
		if len(name) > 1 && strings.HasPrefix(name, "-") {
			return nil, cli.UsageError("argument %q looks like a flag: flags come before the files; see `%s --help`", name, c.Command.HelpName)
		}
		if err := readFile(in, name, c); err != nil {
			return nil, err
		}
	}
	if c.NArg() > 0 && in.Empty() {
		return nil, fmt.Errorf("nothing of Slurmtide's stands in %s: name files with NodeSets or a Controller", strings.Join(c.Args().Slice(), ", "))
	}
	return in, in.Select(c.String("cluster"))
}

func readFile(in *render.Input, name string, c *urfave.Context) error {
	if name == "-" {
		return in.Read("standard input", c.App.Reader, c.String("namespace"))
	}
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	defer file.Close()
	return in.Read(name, file, c.String("namespace"))
}

func printed(w io.Writer, text string, err error) error {
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

func renderKube(c *urfave.Context) error {
	in, err := readInput(c, false)
	if err != nil {
		return err
	}
	if len(in.Controllers) > 0 {
		if err := cli.Require(c, "image"); err != nil {
			return err
		}
	}
	objects, secrets, err := in.Kube(c.String("namespace"), settings(c))
	if err != nil {
		return err
	}
	write := controlplane.YAML
	if c.String("output") == "json" {
		write = controlplane.JSON
	}
	text, err := write(objects)
	if err := printed(c.App.Writer, text, err); err != nil {
		return err
	}
	for _, secret := range secrets {
		fmt.Fprintf(c.App.ErrWriter, "slurmtide: %s\n", secret)
	}
	return nil
}

func renderScaledObjects(c *urfave.Context) error {
	in, err := readInput(c, true)
	if err != nil {
		return err
	}
	if len(in.NodeSets) == 0 {
		return fmt.Errorf("the files have no NodeSet")
	}
	var objects []render.ScaledObject
	var texts []string
	for _, set := range in.NodeSets {
		o, err := render.NewScaledObject(set, c.String("scaler"), c.Bool("push"))
		if err != nil {
			return fmt.Errorf("NodeSet %s: %w", set.Name, err)
		}
		text, err := o.YAML()
		if err != nil {
			return fmt.Errorf("NodeSet %s: %w", set.Name, err)
		}
		objects, texts = append(objects, o), append(texts, text)
	}
	text := strings.Join(texts, "---\n")
	if c.String("output") == "json" {
		list, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, "", "  ")
		return printed(c.App.Writer, string(list)+"\n", err)
	}
	return printed(c.App.Writer, text, nil)
}
