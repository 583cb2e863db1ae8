package printed

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Suspend is a suspend request as the bridge's log has it. Its status shows power-downs only while they last, and one may last less
// than the time between two looks.
type Suspend struct {
	Requested time.Time // slurmctld started SuspendProgram
	Accepted  time.Time // the bridge read the request
	Nodes     slurmconf.Hostlist
}

// ParseSuspends picks the suspend requests from the bridge's log in the format "text".
func ParseSuspends(log string) ([]Suspend, error) {
	var list []Suspend
	for line := range strings.Lines(log) {
		fields := map[string]string{}
		for _, f := range strings.Fields(line) { // the values wanted have no spaces
			if key, value, ok := strings.Cut(f, "="); ok {
				fields[key] = strings.Trim(value, `"`)
			}
		}
		if fields["msg"] != "request" || fields["kind"] != "suspend" {
			continue
		}
		accepted, err := time.Parse(time.RFC3339Nano, fields["time"])
		if err != nil {
			return nil, fmt.Errorf("bridge's log: %w in %q", err, line)
		}
		age, err := time.ParseDuration(fields["age"])
		if err != nil {
			return nil, fmt.Errorf("bridge's log: %w in %q", err, line)
		}
		nodes, err := slurmconf.ParseHostlist(fields["nodes"])
		if err != nil {
			return nil, fmt.Errorf("bridge's log: %w in %q", err, line)
		}
		list = append(list, Suspend{Requested: accepted.Add(-age), Accepted: accepted, Nodes: nodes})
	}
	return list, nil
}
