package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

func TestNoBridge(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"no right":     {syscall.EACCES, "run this as SlurmUser or root"},
		"never began":  {syscall.ENOENT, "and it is no spool: name the one"},
		"was killed":   {syscall.ECONNREFUSED, "was killed: start it again"},
		"hangs":        {context.DeadlineExceeded, "did not answer within 5s"},
		"hangs in I/O": {os.ErrDeadlineExceeded, "did not answer within 5s"},
		"anything":     {syscall.EMFILE, "asking bridge: too many open files"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, noBridge(t.TempDir(), 5*time.Second, fmt.Errorf("asking bridge: %w", tt.err)), tt.want)
		})
	}
}

func TestStatusSaysWhatCannotBeRead(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	read := powersave.Status{Time: now, KubernetesRead: true, SlurmRead: now.Add(-90 * time.Second)}
	away := read
	away.SlurmError = "no answer"
	for name, tt := range map[string]struct {
		st   bridge.Status
		want string
	}{
		"both read":  {bridge.Status{Engine: read}, "Slurm       read completely 1m30s ago\nKubernetes  in sync, 0 pods\nLease "},
		"Slurm away": {bridge.Status{Engine: away}, "Slurm       NOT READABLE: no answer\nKubernetes  in sync, 0 pods\n            nothing is taken down until both can be read; Slurm was last read completely 1m30s ago\nLease "},
		"Kubernetes away": {bridge.Status{Engine: read, KubernetesError: "refused"},
			"Kubernetes  NOT READABLE: refused\n            nothing is taken down until both can be read; Slurm was last read completely 1m30s ago\nLease "},
		"never read": {bridge.Status{Engine: powersave.Status{Time: now, SlurmError: "no answer"}},
			"            nothing is taken down until both can be read\nLease "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, printStatus(&out, tt.st, false))
			assert.Contains(t, out.String(), tt.want)
		})
	}
}

func TestStatusFoldsRepeatedProblems(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	note := func(age time.Duration, node, text string) powersave.Note {
		return powersave.Note{Time: now.Add(-age), Node: node, Text: text}
	}
	var out strings.Builder
	require.NoError(t, printStatus(&out, bridge.Status{Engine: powersave.Status{Time: now, Notes: []powersave.Note{
		note(9*time.Second, "", "no answer"), note(8*time.Second, "cpu-0", "no answer"), note(4*time.Second, "", "no answer"), note(time.Second, "", "no answer"),
	}}}, false))
	_, table, _ := strings.Cut(out.String(), "RECENT PROBLEM\n")
	assert.Equal(t, "8s   cpu-0  no answer\n1s   -      no answer (3 times)\n", table)
}

func TestStatusShowsBreakers(t *testing.T) {
	until := time.Date(2026, 1, 1, 12, 3, 0, 0, time.UTC)
	breaker := func(offering string, state powersave.BreakerState, until time.Time) powersave.BreakerRecord {
		return powersave.BreakerRecord{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: offering}, State: state, Class: powersave.TroubleCapacity, Reason: "no room", Until: until}
	}
	var out strings.Builder
	require.NoError(t, printStatus(&out, bridge.Status{Engine: powersave.Status{NodeSets: []powersave.NodeSetCounts{{Name: "cpu", Breakers: []powersave.BreakerRecord{
		breaker("", powersave.BreakerOpen, time.Time{}), breaker("demand", powersave.BreakerHalfOpen, until), breaker("fine", powersave.BreakerClosed, until), breaker("spot", powersave.BreakerOpen, until),
	}}}}}, false))
	_, table, _ := strings.Cut(out.String(), "WHY\n")
	assert.Equal(t, `cpu      -         its spec changes      capacity: no room
cpu      demand    one pod has tried     capacity: no room
cpu      spot      2026-01-01T12:03:00Z  capacity: no room
`, table)
}

func TestStatusShowsFloors(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printStatus(&out, bridge.Status{Engine: powersave.Status{NodeSets: []powersave.NodeSetCounts{
		{Name: "cpu", Floor: &powersave.FloorCounts{Wanted: 5, Held: 3, Why: powersave.FloorRefused, Text: "slurmctld: no"}},
		{Name: "fine", Floor: &powersave.FloorCounts{Wanted: 2, Held: 2}}, {Name: "none"},
		{Name: "gpu", Floor: &powersave.FloorCounts{Wanted: 1, Why: powersave.FloorBooting}},
	}}}, false))
	_, table, _ := strings.Cut(out.String(), "WHY\n")
	assert.Equal(t, "cpu      5      3     PowerUpFailed  slurmctld: no\ngpu      1      0     Booting        -\n", table)
}

func TestStatusShowsUpdates(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printStatus(&out, bridge.Status{Engine: powersave.Status{NodeSets: []powersave.NodeSetCounts{
		{Name: "cpu", Update: &powersave.UpdateCounts{Revision: "r2", Current: "r1", Updated: 4, Outdated: 3, Replacing: 1, Why: powersave.UpdateReplacing, Text: "1 of at most 1 nodes are out for it", Refused: "no"}},
		{Name: "fine", Update: &powersave.UpdateCounts{Revision: "r1", Current: "r1", Updated: 2}}, {Name: "none"},
	}}}, false))
	_, table, _ := strings.Cut(out.String(), "REPLACING  REASON     WHY\n")
	assert.Equal(t, "cpu      r2        4        3         1          Replacing  1 of at most 1 nodes are out for it; not reserved in Slurm: no\n", table)
}

func TestStatusSaysWhoReconciles(t *testing.T) {
	for name, tt := range map[string]struct {
		lease bridge.Lease
		want  string
	}{
		"this one": {bridge.Lease{Leading: true, Holder: "me", Identity: "me"}, "held by this bridge: it reconciles"},
		"another":  {bridge.Lease{Holder: "ctl2_abc", Identity: "me"}, "held by ctl2_abc: only requests of this spool are carried out"},
		"nobody":   {bridge.Lease{Identity: "me"}, "not held yet: only requests of this spool are carried out"},
		"no right": {bridge.Lease{Holder: "ctl2_abc", Error: "reading the lease of the bridges: no"},
			"NOT HELD: only requests of this spool are carried out: reading the lease of the bridges: no"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.lease.Name = "slurmtide-bridge-tide"
			for _, wide := range []bool{false, true} {
				var out strings.Builder
				require.NoError(t, printStatus(&out, bridge.Status{Lease: tt.lease}, wide))
				assert.Regexp(t, `(?m)^Lease +`+tt.want+`$`, out.String())
				assert.Equal(t, wide, strings.Contains(out.String(), "slurmtide-bridge-tide, this bridge is "))
			}
		})
	}
}
