package inplace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// askForNodes is when slurmctld is made to send its files once more, if nodes that answer have not read them: it does so once, when it has
	// read them itself (node_mgr.c, push_reconfig_to_slurmd). A slurmd ends what it is asked at that moment first, for up to MessageTimeout (slurmd.c).
	askForNodes = 30 * time.Second
	// lateAfter is when it is told as a trouble that nodes have not read them.
	lateAfter = time.Minute
	// Nodes are looked at again after a fourth of the time that has passed, within these bounds.
	nodesOften, nodesRarely = time.Second, 30 * time.Second
	// maxNodes is how many are named.
	maxNodes = 100
)

const (
	// nodesFile of Kept has what is in force, and since when. Its name begins with a dot: nobody takes it for a part of that.
	nodesFile = ".nodes"
	// allNodes is its last line when no node is to be looked at any more.
	allNodes = "all"
)

// Node is a node as slurmctld knows it.
type Node struct {
	Name  string
	State string // words with + between them
	// Boot and Start are when its slurmd was started first and last: one that reads its files starts itself anew (slurmd.c, _try_to_reconfig). Both are zero until it
	// has registered with a slurmctld that has started anew, as that does when it reads its own.
	Boot, Start time.Time
}

func (n Node) is(words ...string) bool {
	return slices.ContainsFunc(strings.Split(n.State, "+"), func(one string) bool { return slices.Contains(words, one) })
}

// off says that no slurmd runs there, or one that begins.
func (n Node) off() bool {
	return n.is("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE", "EXTERNAL")
}

// spread is how a configuration comes to the nodes.
type spread struct {
	hash  string
	since time.Time // when slurmctld read it first
	all   bool      // no node is to be looked at any more
	// up had registered before slurmctld was asked to read it; nil if that is not known. Who had not may have fetched the former one just before, and registered after it.
	up    map[string]bool
	began time.Time // when it was waited for first
	asked time.Time // when slurmctld was made to send it once more
	next  time.Time // when nodes are to be looked at again
}

// unread are the nodes that have not read it, and those of them that do not answer. open says that others are to be looked at later: who comes back
// after a time without answer, or is about to register, may have an older one.
func (s spread) unread(now time.Time, nodes []Node) (behind, silent []string, open bool) {
	young := now.Sub(s.began) < lateAfter
	for _, n := range nodes {
		mute := n.Start.IsZero() || n.is("NOT_RESPONDING")
		switch {
		case n.off():
			open = open || n.is("POWERING_UP") && s.up != nil && young
		case n.is("DOWN") && mute: // no job comes there
			open = true
		case !s.has(n):
			behind = append(behind, n.Name)
			if mute {
				silent = append(silent, n.Name)
			}
		}
	}
	return behind, silent, open
}

// has says that a node that is up has read it.
func (s spread) has(n Node) bool {
	if s.up != nil && !s.up[n.Name] && !n.Boot.After(s.since.Add(time.Second)) {
		// Its first start is not enough. The next one may be told by a clock that is behind ours, but not by that much.
		return !s.asked.IsZero() && !n.Start.Before(s.asked.Add(-askForNodes/2))
	}
	return !n.Start.IsZero() && !n.Start.Before(s.since)
}

// lookAtNodes sees which nodes have read what is in force, and has it sent to them once more if need be.
func (a *Agent) lookAtNodes(ctx context.Context) error {
	s, now := &a.spread, a.Now()
	if now.Before(s.next) {
		return nil
	}
	if s.hash != a.installed {
		if err := a.beginSpread(ctx); err != nil {
			a.report.NodesError, s.next = err.Error(), now.Add(errorPause)
			return nil //nolint:nilerr // the report says so; what else there is to do does not wait for it
		}
	}
	if s.all {
		return nil
	}
	waited := now.Sub(s.began)
	s.next = now.Add(min(max(waited/4, nodesOften), nodesRarely))
	nodes, err := a.Slurm.Nodes(ctx)
	if err != nil {
		a.report.NodesError, a.report.Late = err.Error(), waited >= lateAfter
		return nil //nolint:nilerr // likewise
	}
	behind, silent, open := s.unread(now, nodes)
	a.report.NodesError, a.report.Behind, a.report.Silent = "", names(behind), names(silent)
	a.report.Late = len(behind) > 0 && waited >= lateAfter
	switch {
	case len(behind) == 0 && !open:
		s.all = true
		return a.writeSpread(*s)
	case len(behind) > len(silent) && s.asked.IsZero() && waited >= askForNodes:
		s.asked = now
		a.Log.Info("slurmctld is asked to send its configuration once more", "nodes", a.report.Behind)
		if err := a.Slurm.Reconfigure(ctx); err != nil {
			s.asked, s.next = time.Time{}, now.Add(askAgain)
			return fmt.Errorf("asking slurmctld to send its configuration to %s once more: %w", a.report.Behind, err)
		}
	}
	return nil
}

// beginSpread goes on with what is noted of it.
func (a *Agent) beginSpread(ctx context.Context) error {
	known, err := a.readSpread()
	if err != nil {
		return err
	}
	if known.hash != a.installed {
		boot, err := a.Slurm.BootTime(ctx)
		if err != nil {
			return fmt.Errorf("asking since when slurmctld has its configuration: %w", err)
		}
		known = spread{hash: a.installed, since: boot, up: a.up}
	}
	known.began = a.Now()
	if err := a.writeSpread(known); err != nil {
		return err
	}
	a.spread, a.up = known, nil
	return nil
}

// forgetSpread is for files that take the place of others.
func (a *Agent) forgetSpread(hash string) error {
	known, err := a.readSpread()
	if err == nil && known.hash != "" && known.hash != hash {
		err = os.Remove(filepath.Join(a.Kept, nodesFile))
	}
	a.leaveNodes()
	return err
}

// leaveNodes says nothing of nodes any more.
func (a *Agent) leaveNodes() {
	a.spread = spread{}
	a.report.Behind, a.report.Silent, a.report.NodesError, a.report.Late = "", "", "", false
}

// remember notes who is registered, before slurmctld reads its files.
func (a *Agent) remember(ctx context.Context) {
	nodes, err := a.Slurm.Nodes(ctx)
	if err != nil {
		a.up = nil
		return
	}
	a.up = map[string]bool{}
	for _, n := range nodes {
		a.up[n.Name] = !n.Start.IsZero() && !n.off()
	}
}

func (a *Agent) readSpread() (spread, error) {
	text, err := os.ReadFile(filepath.Join(a.Kept, nodesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return spread{}, nil
	}
	if err != nil {
		return spread{}, fmt.Errorf("reading which nodes have the configuration: %w", err)
	}
	lines := append(strings.Split(string(text), "\n"), "", "")
	since, err := time.Parse(time.RFC3339, lines[1])
	if err != nil {
		return spread{}, nil //nolint:nilerr // all nodes are looked at then
	}
	return spread{hash: lines[0], since: since, all: lines[2] == allNodes}, nil
}

func (a *Agent) writeSpread(s spread) error {
	text := s.hash + "\n" + s.since.UTC().Format(time.RFC3339)
	if s.all {
		text += "\n" + allNodes
	}
	if err := writeFile(filepath.Join(a.Kept, nodesFile), text, 0o644); err != nil {
		return fmt.Errorf("noting which nodes have the configuration: %w", err)
	}
	return nil
}

// names is a hostlist that is not too long.
func names(nodes []string) string {
	if more := len(nodes) - maxNodes; more > 0 {
		return fmt.Sprintf("%s and %d more", slurmconf.CompressHostlist(nodes[:maxNodes]), more)
	}
	return slurmconf.CompressHostlist(nodes)
}

// Nodes implements Slurm.
func (l Local) Nodes(ctx context.Context) ([]Node, error) {
	out, err := l.scontrol(ctx, "show", "node", "--oneliner")
	if err != nil {
		return nil, err
	}
	return nodesIn(out)
}

// nodesIn reads scontrol's lines. What users write, comments for example, comes behind all that is read here.
func nodesIn(out string) (nodes []Node, err error) {
	for line := range strings.Lines(out) {
		name, ok := strings.CutPrefix(line, "NodeName=")
		if !ok {
			continue // there is none
		}
		n := Node{State: value(line, "State")}
		n.Name, _, _ = strings.Cut(name, " ")
		var errs [2]error
		n.Boot, errs[0] = timeOf(value(line, "BootTime"))
		n.Start, errs[1] = timeOf(value(line, "SlurmdStartTime"))
		if err := errors.Join(errs[:]...); err != nil || n.State == "" {
			return nil, fmt.Errorf("reading what scontrol tells of node %s: %w", n.Name, cmp.Or(err, errors.New("it has no State")))
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// value is a word's, in a line of scontrol.
func value(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	v, _, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(v)
}

func timeOf(text string) (time.Time, error) {
	if text == "None" {
		return time.Time{}, nil
	}
	return time.ParseInLocation(slurmTime, text, time.UTC)
}
