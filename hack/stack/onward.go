package stack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Onward tells how a bridge went on after its newest start with what was in hand for some nodes.
type Onward struct {
	// InHand are the nodes that its requests name: those that it found in the spool, and those that came later.
	InHand []string
	// First is what it did first for each node.
	First map[string]Step
}

// Step is something that the bridge did for a node.
type Step struct {
	What string // the log's message
	// After is the time since the bridge's start, or since the node's request was written if that was later.
	After time.Duration
}

// Slowest is the longest of the nodes' times, and what was done then; zero if nothing was.
func (o Onward) Slowest() (s Step) {
	for _, first := range o.First {
		if first.After > s.After || s.What == "" {
			s = first
		}
	}
	return s
}

// Waiting names the nodes in hand for which nothing has been done.
func (o Onward) Waiting() []string {
	return slices.DeleteFunc(slices.Clone(o.InHand), func(node string) bool { return o.First[node].What != "" })
}

// Messages of the bridge's log that say that something was done, by the field that tells for which nodes.
var done = map[string]string{
	"pod created": "node", "pod deletion": "node", "node registered": "node", "boot failed": "node",
	"nodes updated": "update", "request finished": "request",
}

// GoesOn reads the log of a bridge.
func GoesOn(log string, nodes slurmconf.Hostlist) (Onward, error) {
	var started time.Time
	on := Onward{First: map[string]Step{}}
	since := map[string]time.Time{}   // by node
	requests := map[string][]string{} // nodes by request
	of := func(list string) (found []string, err error) {
		named, err := slurmconf.ParseHostlist(list)
		if err != nil {
			return nil, err
		}
		for node := range named.All() {
			if nodes.Contains(node) {
				found = append(found, node)
			}
		}
		return found, nil
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") {
			continue // what the Go runtime says, for instance
		}
		f, err := fields(line)
		if err != nil {
			return Onward{}, fmt.Errorf("%w in line %q", err, line)
		}
		field, progress := done[f["msg"]]
		if !progress && f["msg"] != "bridge starts" && f["msg"] != "request" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, f["time"])
		if err != nil {
			return Onward{}, fmt.Errorf("%w in line %q", err, line)
		}
		var about []string
		switch {
		case f["msg"] == "bridge starts":
			started, on = at, Onward{First: map[string]Step{}}
			clear(since)
			clear(requests)
			continue
		case f["msg"] == "request":
			age, err := time.ParseDuration(f["age"])
			if err != nil {
				return Onward{}, fmt.Errorf("%w in line %q", err, line)
			}
			if about, err = of(f["nodes"]); err != nil {
				return Onward{}, fmt.Errorf("%w in line %q", err, line)
			}
			requests[f["request"]] = about
			for _, node := range about {
				if written := at.Add(-age); written.After(started) && since[node].IsZero() {
					since[node] = written
				}
				if !slices.Contains(on.InHand, node) {
					on.InHand = append(on.InHand, node)
				}
			}
			continue
		case field == "request":
			about = requests[f["request"]]
		case field == "update": // power_down_force cpu-[0-1]
			about, err = of(f["update"][strings.LastIndexByte(f["update"], ' ')+1:])
		default:
			about, err = of(f["node"])
		}
		if err != nil {
			return Onward{}, fmt.Errorf("%w in line %q", err, line)
		}
		for _, node := range about {
			if on.First[node].What != "" {
				continue
			}
			from := started
			if t := since[node]; t.After(from) {
				from = t
			}
			on.First[node] = Step{f["msg"], at.Sub(from)}
		}
	}
	if started.IsZero() {
		return Onward{}, fmt.Errorf("the log does not say when the bridge started")
	}
	return on, nil
}

// fields takes a line of slog's text apart.
func fields(line string) (map[string]string, error) {
	f := map[string]string{}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, fmt.Errorf("no key=value: %q", rest)
		}
		if !strings.HasPrefix(value, `"`) {
			value, rest, _ = strings.Cut(value, " ")
			f[key] = value
			continue
		}
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			return nil, fmt.Errorf("a quote that does not end: %q", rest)
		}
		if f[key], err = strconv.Unquote(quoted); err != nil {
			return nil, fmt.Errorf("reading %s: %w", quoted, err)
		}
		rest = value[len(quoted):]
	}
	return f, nil
}
