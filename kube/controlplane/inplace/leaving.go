package inplace

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// A job whose node does not come up is requeued at ResumeTimeout. So long, within these bounds, a configuration waits for jobs on nodes that it takes away.
const leavingLeast, leavingMost = 5 * time.Minute, 30 * time.Minute

// leaving are waits for jobs on nodes that are taken away.
type leaving struct {
	since map[string]time.Time // of each node, since when it is to go
	next  time.Time            // when nodes are to be looked at again
}

// waits says that nothing is to be looked at yet.
func (l leaving) waits(now time.Time) bool { return now.Before(l.next) }

// keepsJobs sees whether files takes cloud nodes away that slurmctld has jobs on: it would end these (read_config.c, _reset_job_bitmaps). Nodes
// with pods stay in the configuration; these are about to get one, or have just lost it.
func (a *Agent) keepsJobs(ctx context.Context, installed, files map[string]string) (wait bool) {
	gone, l, now := goneNodes(installed, files), &a.leaving, a.Now()
	maps.DeleteFunc(l.since, func(name string, _ time.Time) bool { return !gone.Contains(name) })
	if gone.Len() == 0 {
		return false
	}
	if l.since == nil {
		l.since = map[string]time.Time{}
	}
	least, newest := leavingFor(installed), time.Time{}
	for name := range gone.All() {
		if _, known := l.since[name]; !known {
			l.since[name], l.next = now, now
		}
		if newest.Before(l.since[name]) {
			newest = l.since[name]
		}
	}
	switch {
	case !now.Before(newest.Add(least)): // whatever is on them
		return false
	case l.waits(now):
		return true
	}
	l.next = now.Add(nodesOften)
	nodes, err := a.Slurm.Nodes(ctx)
	if err != nil {
		a.report.Rejected, a.report.Error = "", "whether there are jobs on nodes that it takes away is not known: "+err.Error()
		return true
	}
	var busy []string
	var until time.Time
	for _, n := range nodes {
		if ends := l.since[n.Name].Add(least); n.is("ALLOCATED", "MIXED") && gone.Contains(n.Name) && now.Before(ends) {
			busy = append(busy, n.Name)
			if ends.After(until) {
				until = ends
			}
		}
	}
	if len(busy) == 0 {
		l.next = now
		return false
	}
	a.report.Rejected = "" // one before it was
	a.report.Error = fmt.Sprintf("it waits for the jobs on %s, which it takes away, until %s", names(busy), until.UTC().Format(time.RFC3339))
	return true
}

// leavingFor is how long a configuration waits.
func leavingFor(files map[string]string) time.Duration {
	timeout, _ := read(files).Get("ResumeTimeout")
	seconds, _ := strconv.Atoi(timeout.Value)
	return min(max(time.Duration(seconds)*time.Second+time.Minute, leavingLeast), leavingMost)
}

// goneNodes are cloud nodes of one configuration that another one does not have.
func goneNodes(files, next map[string]string) slurmconf.Hostlist {
	return cloudNodes(files).Minus(cloudNodes(next))
}

// cloudNodes are the nodes that are powered up and down.
func cloudNodes(files map[string]string) (nodes slurmconf.Hostlist) {
	byDefault := ""
	for _, s := range read(files).All("NodeName") {
		state := byDefault
		if given, ok := s.Field("State"); ok {
			state = given.Value
		}
		if strings.EqualFold(s.Value, "DEFAULT") {
			byDefault = state
		} else if list, err := slurmconf.ParseHostlist(s.Value); err == nil && slurmconf.IsCloud(state) {
			nodes = nodes.Append(list)
		}
	}
	return nodes
}

// read is slurm.conf with what it includes of the files. What is wrong with it slurmctld says.
func read(files map[string]string) *slurmconf.Config {
	c, _ := slurmconf.ReadConfig("slurm.conf", func(name string) ([]byte, error) {
		if text, ok := files[filepath.Base(name)]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	})
	return c
}
