package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	urfave "github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// Exit codes of `slurmtide status`.
const (
	exitNoBridge = 1 // the bridge does not answer
	exitDegraded = 3 // it answers, but cannot read Slurm, Kubernetes or the lease
)

func statusCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "status",
		Usage: "show boots in flight, nodes, pods, spool and recent problems",
		Description: "Asks the bridge over the socket in its spool directory; run it where the bridge runs, as the same user or root.\n\n" +
			"Exit status: 0 all is well; 1 the bridge does not answer; 2 wrong usage; 3 the bridge cannot read Slurm, Kubernetes or the lease.",
		Flags: []urfave.Flag{
			cli.SpoolFlag(),
			cli.OutputFlag("table", "wide", "json", "yaml"),
			&urfave.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "how long to wait for the bridge"},
		},
		Action: func(c *urfave.Context) error {
			if err := cli.NoArguments(c, ""); err != nil {
				return err
			}
			return status(c.Context, c.String("spool"), c.String("output"), c.Duration("timeout"), c.App.Writer, cli.Waits(c.App.ErrWriter))
		},
	}
}

func status(ctx context.Context, dir, format string, timeout time.Duration, w io.Writer, waits func(string) func()) error {
	if timeout <= 0 {
		return cli.UsageError("--timeout is %v: give a time to wait, such as 5s", timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	over := waits("the bridge on spool " + dir)
	raw, err := spool.AskStatus(ctx, dir)
	over()
	if err != nil {
		return urfave.Exit(noBridge(dir, timeout, err), exitNoBridge)
	}
	var st bridge.Status
	if err := json.Unmarshal(raw, &st); err != nil {
		return urfave.Exit(fmt.Sprintf("reading the bridge's answer (is it of another version?): %v", err), exitNoBridge)
	}
	switch format {
	case "json":
		_, err = fmt.Fprintln(w, string(raw))
	case "yaml":
		raw, err = yaml.JSONToYAML(raw)
		if err == nil {
			_, err = w.Write(raw)
		}
	default:
		err = printStatus(w, st, format == "wide")
	}
	if err != nil {
		return err
	}
	if st.Engine.SlurmError != "" || st.KubernetesError != "" || !st.Engine.KubernetesRead || st.Lease.Error != "" && !st.Lease.Leading {
		return urfave.Exit("", exitDegraded)
	}
	return nil
}

// noBridge says why the bridge did not answer, and what to do.
func noBridge(dir string, timeout time.Duration, err error) string {
	var late net.Error
	switch info, statErr := os.Stat(dir); {
	case statErr == nil && !info.IsDir():
		return fmt.Sprintf("spool %s is no directory: name the one that slurmctld's programs use (Spool= in slurmtide.conf) with --spool", dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("this user may not ask the bridge of spool %s: run this as SlurmUser or root", dir)
	case errors.Is(statErr, fs.ErrNotExist):
		return fmt.Sprintf("there is no spool directory %s: name the one that slurmctld's programs use (Spool= in slurmtide.conf) with --spool", dir)
	case errors.Is(err, fs.ErrNotExist) && !spool.Used(dir):
		return fmt.Sprintf("no bridge runs on %s, and it is no spool: name the one that slurmctld's programs use (Spool= in slurmtide.conf) with --spool, or start the bridge", dir)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("no bridge runs on spool %s: start it; requests wait in the spool until then", dir)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("the bridge of spool %s was killed: start it again; requests wait in the spool until then", dir)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return fmt.Sprintf("the bridge of spool %s did not answer within %v: give it longer with --timeout, or look into its log", dir, timeout)
	}
	return err.Error()
}

func printStatus(out io.Writer, st bridge.Status, wide bool) error {
	e := st.Engine
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	age := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return e.Time.Sub(t).Round(100 * time.Millisecond).String()
	}
	fmt.Fprintf(w, "Bridge\t%s\n", st.Version)
	switch {
	case e.SlurmError != "":
		fmt.Fprintf(w, "Slurm\tNOT READABLE: %s\n", e.SlurmError)
	case e.SlurmRead.IsZero():
		fmt.Fprintf(w, "Slurm\tnot read yet\n")
	default:
		fmt.Fprintf(w, "Slurm\tread completely %s ago\n", age(e.SlurmRead))
	}
	if st.KubernetesError != "" {
		fmt.Fprintf(w, "Kubernetes\tNOT READABLE: %s\n", st.KubernetesError)
	} else if e.KubernetesRead {
		fmt.Fprintf(w, "Kubernetes\tin sync, %d pods\n", e.Pods)
	} else {
		fmt.Fprintf(w, "Kubernetes\tNOT READ YET: pods and NodeSets have not been listed\n")
	}
	if e.SlurmError != "" || st.KubernetesError != "" {
		fmt.Fprintf(w, "\tnothing is taken down until both can be read")
		if !e.SlurmRead.IsZero() {
			fmt.Fprintf(w, "; Slurm was last read completely %s ago", age(e.SlurmRead))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Lease\t%s\n", st.Lease.Text())
	if wide {
		fmt.Fprintf(w, "\t%s, this bridge is %s\n", cmp.Or(st.Lease.Name, "-"), cmp.Or(st.Lease.Identity, "-"))
	}
	fmt.Fprintf(w, "Spool\t%d requests waiting, %d set aside", st.Spool.Depth, st.Spool.Bad)
	if st.Spool.Depth > 0 {
		fmt.Fprintf(w, ", oldest %s", age(st.Spool.Oldest))
	}
	fmt.Fprintf(w, "\nGates\t%d waiting\n\n", e.Gates)

	fmt.Fprintln(w, "NODESET\tNODES\tPOWERED UP\tBOOTING\tREADY\tFAILED\tUNKNOWN\tPROBLEM")
	for _, s := range e.NodeSets {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.Name, s.Nodes, s.PoweredUp, s.Booting, s.Ready, s.Failed, s.Unknown, s.Problem)
	}
	printBreakers(w, e.NodeSets)
	printFloors(w, e.NodeSets)
	printUpdates(w, e.NodeSets)
	if len(e.Boots)+len(e.Offs) > 0 {
		fmt.Fprint(w, "\nNODE\tPHASE\tAGE\tJOBS\tPROBLEM")
		if wide {
			fmt.Fprint(w, "\tREQUEST\tHOST\tPOD UID")
		}
		fmt.Fprintln(w)
	}
	for _, list := range [][]powersave.Boot{e.Boots, e.Offs} {
		for _, b := range list {
			jobs := strings.Trim(strings.ReplaceAll(fmt.Sprint(b.Jobs), " ", ","), "[]")
			began := b.Times.Requested
			if began.IsZero() {
				began = b.Times.Accepted
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", b.Node, b.Phase, age(began), cmp.Or(jobs, "-"), b.Problem)
			if wide {
				fmt.Fprintf(w, "\t%s\t%s\t%s", b.Request, cmp.Or(b.Host, "-"), cmp.Or(b.UID, "-"))
			}
			fmt.Fprintln(w)
		}
	}
	if len(e.Notes) > 0 {
		fmt.Fprintln(w, "\nAGE\tNODE\tRECENT PROBLEM")
	}
	for i, n := range e.Notes {
		same := func(o powersave.Note) bool { return o.Node == n.Node && o.Text == n.Text }
		if slices.ContainsFunc(e.Notes[i+1:], same) {
			continue // only the newest of equal ones
		}
		times := ""
		if count := len(slices.DeleteFunc(slices.Clone(e.Notes), func(o powersave.Note) bool { return !same(o) })); count > 1 {
			times = fmt.Sprintf(" (%d times)", count)
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", age(n.Time), cmp.Or(n.Node, "-"), n.Text, times)
	}
	return w.Flush()
}

// printBreakers says what is not tried at present, and why.
func printBreakers(w io.Writer, sets []powersave.NodeSetCounts) {
	head := "\nNODESET\tOFFERING\tNOT TRIED UNTIL\tWHY\n"
	for _, s := range sets {
		for _, b := range s.Breakers {
			if b.State == powersave.BreakerClosed {
				continue
			}
			until := "its spec changes"
			switch {
			case b.State == powersave.BreakerHalfOpen:
				until = "one pod has tried"
			case !b.Until.IsZero():
				until = b.Until.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s: %s\n", head, s.Name, cmp.Or(b.Key.Offering, "-"), until, b.Class, b.Reason)
			head = ""
		}
	}
}

// printFloors says which nodes are missing that are to be up without jobs, and why.
func printFloors(w io.Writer, sets []powersave.NodeSetCounts) {
	head := "\nNODESET\tFLOOR\tHELD\tREASON\tWHY\n"
	for _, s := range sets {
		if f := s.Floor; f != nil && f.Held < f.Wanted {
			fmt.Fprintf(w, "%s%s\t%d\t%d\t%s\t%s\n", head, s.Name, f.Wanted, f.Held, f.Why, cmp.Or(f.Text, "-"))
			head = ""
		}
	}
}

// printUpdates says which NodeSets have outdated pods, and why.
func printUpdates(w io.Writer, sets []powersave.NodeSetCounts) {
	head := "\nNODESET\tREVISION\tUPDATED\tOUTDATED\tREPLACING\tREASON\tWHY\n"
	for _, s := range sets {
		if u := s.Update; u != nil && u.Outdated > 0 {
			text := u.Text
			if u.Refused != "" {
				text += "; not reserved in Slurm: " + u.Refused
			}
			fmt.Fprintf(w, "%s%s\t%s\t%d\t%d\t%d\t%s\t%s\n", head, s.Name, u.Revision, u.Updated, u.Outdated, u.Replacing, u.Why, text)
			head = ""
		}
	}
}
