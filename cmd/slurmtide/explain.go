package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const explainStatus = "\n\nExit status: 0 it is said; 1 nobody knows of it, or may be asked; 2 wrong usage."

func explainCommand() *urfave.Command {
	flags := []urfave.Flag{
		cli.SpoolFlag(),
		cli.OutputFlag("text", "json", "yaml"),
		&urfave.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "how long to wait for the bridge, and for the scaler"},
	}
	named := func(name, what string, subject func(string) history.Subject) *urfave.Command {
		return &urfave.Command{
			Name: name, ArgsUsage: "NAME", Usage: what,
			Description: "Asks the bridge over the socket in its spool directory; run it where the bridge runs, as the same user or root. Without a bridge\n" +
				"it tells what the history in the spool directory knows." + explainStatus,
			Flags: flags,
			Action: func(c *urfave.Context) error {
				if err := flagsFirst(c, "name"); err != nil {
					return err
				}
				if c.NArg() != 1 || c.Args().First() == "" {
					return cli.UsageError("explain %s wants one name, got %d arguments; see `%s --help`", name, c.NArg(), c.Command.HelpName)
				}
				if names, err := slurmconf.ParseHostlist(c.Args().First()); name == "node" && err == nil && names.Len() > 1 {
					return cli.UsageError("%s are %d nodes: name one", c.Args().First(), names.Len())
				}
				return explanation{subject: subject(c.Args().First())}.of(c)
			},
		}
	}
	return &urfave.Command{
		Name:  "explain",
		Usage: "tell what has become of a job, a node or a NodeSet, why, and what can be done",
		Subcommands: []*urfave.Command{
			{
				Name: "job", ArgsUsage: "ID",
				Usage: "from its submission until it runs, or why it does not; of a pending one, whether it counts as demand",
				Description: "Asks the bridge over the socket in its spool directory; run it where the bridge runs, as the same user or root. Without a bridge\n" +
					"it tells what the history in the spool directory knows. What a pending job counts for the scaler is asked, where it serves its metrics." + explainStatus,
				Flags: append(scalerFlags("all"), flags...),
				Action: func(c *urfave.Context) error {
					if err := flagsFirst(c, "number"); err != nil {
						return err
					}
					if c.NArg() != 1 {
						return cli.UsageError("explain job wants the number of one job, got %d arguments; see `%s --help`", c.NArg(), c.Command.HelpName)
					}
					id, err := strconv.ParseUint(c.Args().First(), 10, 32)
					if partOfJob.MatchString(c.Args().First()) {
						return cli.UsageError("%s is a part of a job: give its own number, the JobId of `scontrol show job %s`", c.Args().First(), c.Args().First())
					}
					if err != nil || id == 0 {
						return cli.UsageError("%q is not the number of a job", c.Args().First())
					}
					e := explanation{subject: history.Subject{Job: uint32(id)}, insist: c.IsSet("scaler")}
					scaler, err := cli.Scaler(c)
					if err != nil {
						return err
					}
					e.demand = func(ctx context.Context, asJSON bool) ([]byte, error) {
						return explainDemand(ctx, scaler, c.String("cluster"), e.subject.Job, asJSON)
					}
					return e.of(c)
				},
			},
			named("node", "its boots and power-downs, by Slurm, Kubernetes and the bridge", func(name string) history.Subject { return history.Subject{Node: name} }),
			named("nodeset", "its boots, what is not tried at present, and why", func(name string) history.Subject { return history.Subject{NodeSet: name} }),
		},
	}
}

// partOfJob is how Slurm's commands name a task of an array, or a component of a heterogeneous job.
var partOfJob = regexp.MustCompile(`^[0-9]+[_+][0-9]+$`)

// flagsFirst says it where a flag stands behind what is asked for: it is an argument then.
func flagsFirst(c *urfave.Context, what string) error {
	for _, arg := range c.Args().Slice() {
		if strings.HasPrefix(arg, "-") {
			return cli.UsageError("argument %q looks like a flag: flags come before the %s; see `%s --help`", arg, what, c.Command.HelpName)
		}
	}
	return nil
}

// explanation is what is asked, and whom.
type explanation struct {
	subject history.Subject
	demand  func(ctx context.Context, asJSON bool) ([]byte, error) // what the scaler makes of the job; nil: it is not asked
	insist  bool                                                   // somebody has named it: that it does not answer is worth a note
	stderr  io.Writer                                              // where it is said what is waited for, if it is a terminal
}

func (e explanation) of(c *urfave.Context) error {
	timeout := c.Duration("timeout")
	if timeout <= 0 {
		return cli.UsageError("--timeout is %v: give a time to wait, such as 5s", timeout)
	}
	e.stderr = c.App.ErrWriter
	return e.write(c.Context, c.String("spool"), c.String("output"), timeout, c.App.Writer)
}

// explained is the answer in JSON and YAML. One of the two is there.
type explained struct {
	*history.Story
	Demand json.RawMessage `json:"demand,omitempty"`
}

func (e explanation) write(ctx context.Context, dir, output string, timeout time.Duration, w io.Writer) error {
	var out explained
	waits := cli.Waits(e.stderr)
	over := waits("the bridge on spool " + dir)
	a, err := known(ctx, dir, e.subject, timeout)
	over()
	if err == nil {
		story := history.Tell(a)
		out.Story = &story
	}
	if e.demand != nil && (out.Story == nil || a.Waits()) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		over := waits("the scaler")
		text, scalerErr := e.demand(ctx, output != "text")
		over()
		switch {
		case scalerErr == nil:
			out.Demand = text
		case out.Story == nil && errors.Is(err, errUnknown):
			return scalerErr
		case out.Story == nil && !e.insist:
			return fmt.Errorf("%w; nor does a scaler tell: %w", err, scalerErr)
		case out.Story == nil:
			return fmt.Errorf("%w; and the bridge says nothing of it: %w", scalerErr, err)
		case e.insist:
			out.Notes = append(out.Notes, scalerErr.Error())
		}
	} else if err != nil {
		return err
	}
	if output == "text" {
		return out.text(w)
	}
	text, err := json.Marshal(out)
	if err == nil && output == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", bytes.TrimRight(text, "\n"))
	return err
}

func (e explained) text(w io.Writer) error {
	if e.Story == nil {
		_, err := w.Write(e.Demand)
		return err
	}
	if err := e.WriteText(w); err != nil || e.Demand == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nDemand:     %s\n", strings.ReplaceAll(strings.TrimSpace(string(e.Demand)), "\n", "\n            "))
	return err
}

// errUnknown says that nobody knows anything of the subject, though all could be asked.
var errUnknown = errors.New("nothing is known of it")

// mostTold bounds what is read of the history without a bridge.
const mostTold = 20_000

// known is what the bridge knows of the subject, or the history if there is no bridge.
func known(ctx context.Context, dir string, s history.Subject, timeout time.Duration) (history.Answer, error) {
	a := history.Answer{Subject: s, Time: time.Now()}
	question, err := json.Marshal(s)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := spool.AskExplain(ctx, dir, question)
	if err == nil {
		if err := json.Unmarshal(raw, &a); err != nil {
			return a, fmt.Errorf("reading the bridge's answer (is it of another version?): %w", err)
		}
	} else {
		a.BridgeError = noBridge(dir, timeout, err)
		if _, statErr := os.Stat(dir); errors.Is(err, fs.ErrPermission) || statErr != nil {
			return a, errors.New(a.BridgeError)
		}
		if a.Found, err = history.Read(dir, s, mostTold); err != nil {
			return a, fmt.Errorf("%s; %w", a.BridgeError, err)
		}
	}
	switch {
	case a.Known():
		return a, nil
	case a.BridgeError != "":
		return a, fmt.Errorf("%s; the history there does not know %s", a.BridgeError, s)
	case a.SlurmError != "":
		return a, fmt.Errorf("the bridge does not know %s, and Slurm cannot be asked: %s", s, a.SlurmError)
	}
	return a, fmt.Errorf("%s: %w: neither Slurm nor the bridge has such a one, and the history reaches back to a few thousand boots", s, errUnknown)
}
