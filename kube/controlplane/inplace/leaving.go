package inplace

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// leavingFor is how long a configuration waits for jobs on nodes that it takes away. Their boots are given back within seconds, and Slurm sets nodes
// DOWN at ResumeTimeout; longer than that they are somebody's who wants it so.
const leavingFor = 10 * time.Minute

// leaving is a wait for jobs on nodes that are taken away.
type leaving struct {
	want  string
	since time.Time
	next  time.Time // when nodes are to be looked at again
}

// keepsJobs sees whether files takes cloud nodes away that slurmctld has jobs on: it would end these (read_config.c, _reset_job_bitmaps). Nodes
// with pods stay in the configuration; these are about to get one, or have just lost it.
func (a *Agent) keepsJobs(ctx context.Context, installed, files map[string]string) (wait bool, err error) {
	gone := cloudNodes(installed).Minus(cloudNodes(files))
	if gone.Len() == 0 {
		return false, nil
	}
	l, now := &a.leaving, a.Now()
	if want := Hash(files); l.want != want {
		*l = leaving{want: want, since: now}
	}
	switch {
	case now.Sub(l.since) >= leavingFor:
		return false, nil
	case now.Before(l.next):
		return true, nil
	}
	l.next = now.Add(nodesOften)
	nodes, err := a.Slurm.Nodes(ctx)
	if err != nil {
		return true, fmt.Errorf("asking slurmctld for jobs on nodes that are to go: %w", err)
	}
	var busy []string
	for _, n := range nodes {
		if n.is("ALLOCATED", "MIXED") && gone.Contains(n.Name) {
			busy = append(busy, n.Name)
		}
	}
	if len(busy) == 0 {
		return false, nil
	}
	a.report.Rejected = "" // one before it was
	a.report.Error = fmt.Sprintf("it waits for the jobs on %s, which it takes away, until %s", names(busy), l.since.Add(leavingFor).UTC().Format(time.RFC3339))
	return true, nil
}

// cloudNodes are the nodes of slurm.conf that are powered up and down.
func cloudNodes(files map[string]string) (nodes slurmconf.Hostlist) {
	f, _ := slurmconf.ParseFile("slurm.conf", []byte(files["slurm.conf"])) // what is wrong slurmctld says
	if f == nil {
		return nodes
	}
	for _, s := range f.Settings() {
		if !strings.EqualFold(s.Key, "NodeName") {
			continue
		}
		state, _ := s.Field("State")
		if list, err := slurmconf.ParseHostlist(s.Value); err == nil && strings.HasPrefix(strings.ToUpper(state.Value), "CLOUD") {
			nodes = nodes.Append(list)
		}
	}
	return nodes
}
