//go:build integration && scale

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// limit is one of a user's association, account or QOS. What it lets through counts, and what it does not let through, does not.
type limit struct {
	user     string   // a user of the image, whose account is called the same
	account  string   // sacctmgr's options of the account
	own      string   // of the user
	qos      string   // of a QOS of the user's own
	runs     []string // sbatch's options of a job that the limit lets through, nil: none
	nodes    int      // that it gets
	waits    []string // of one that it does not let through
	reason   string   // Slurm's word for that
	more     string   // sacctmgr's words that lift the limit
	moreRuns int      // nodes that the one which waits gets then
}

func limits() []limit {
	one, two := []string{"-N1", "--exclusive"}, []string{"-N2", "--exclusive"}
	return []limit{
		{user: "games", account: "GrpTRES=node=2", runs: two, nodes: 2, waits: one, reason: "AssocGrpNodeLimit", more: "account games set GrpTRES=node=-1", moreRuns: 1},
		{user: "news", account: "GrpTRES=cpu=4", runs: one, nodes: 1, waits: one, reason: "AssocGrpCpuLimit", more: "account news set GrpTRES=cpu=8", moreRuns: 1},
		{user: "mail", own: "MaxJobs=1", runs: two, nodes: 2, waits: two, reason: "AssocMaxJobsLimit", more: "user mail set MaxJobs=-1", moreRuns: 2},
		{user: "uucp", account: "GrpTRESMins=cpu=10", waits: []string{"-N1", "--exclusive", "--time=60"}, reason: "AssocGrpCPUMinutesLimit", more: "account uucp set GrpTRESMins=cpu=-1", moreRuns: 1},
		{user: "proxy", qos: "MaxTRESPerUser=cpu=4", runs: one, nodes: 1, waits: one, reason: "QOSMaxCpuPerUserLimit", more: "qos proxy set MaxTRESPerUser=cpu=-1", moreRuns: 1},
		{user: "backup", qos: "MaxJobsPerUser=1", runs: one, nodes: 1, waits: two, reason: "QOSMaxJobsPerUserLimit", more: "qos backup set MaxJobsPerUser=-1", moreRuns: 2},
		{user: "list", qos: "GrpJobs=1", runs: two, nodes: 2, waits: one, reason: "QOSGrpJobsLimit", more: "qos list set GrpJobs=-1", moreRuns: 1},
		{user: "irc", qos: "GrpTRES=node=1", runs: one, nodes: 1, waits: one, reason: "QOSGrpNodeLimit", more: "qos irc set GrpTRES=node=-1", moreRuns: 1},
		// The tasks of an array: as many as the limit lets through.
		{user: "lp", own: "MaxJobs=1", runs: []string{"-N1", "--exclusive", "--array=0-2"}, nodes: 1, reason: "AssocMaxJobsLimit", more: "user lp set MaxJobs=-1", moreRuns: 2},
	}
}

// A real slurmdbd and the limits in it: jobs that a limit of an association, an account or a QOS keeps waiting do not count, people are told which, and they count when
// it is lifted. The scaler's own token may be of an operator; with PrivateData=jobs one of a user who is none is an error.
func TestDemandLimits(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "limits", version, stack.Options{
			NoBridge: true, Accounting: true, SuspendTime: 3600, ResumeTimeout: 3600,
			NodeLines:      []string{"NodeName=cpu-[0-39],staff-[0-1] CPUs=4 RealMemory=800 State=CLOUD"},
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-39] Default=YES", "PartitionName=staff Nodes=staff-[0-1] Hidden=YES AllowGroups=root"},
			ExtraConf: []string{
				"AccountingStorageEnforce=safe,qos", "PrivateData=jobs",
				"SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,default_queue_depth=1000,bf_max_job_test=1000",
			},
		})
		all := map[string]string{"partition": "cpu", "cpus": "4", "memory": "800", "maxNodes": "40"}
		d := startScaler(c, "--namespace=")
		stranger := startScaler(c, "--namespace=", "--jwt-user=games")
		d.within(all, 0)
		stranger.within(all, 0)
		stranger.within(map[string]string{"partition": "staff", "cpus": "4", "memory": "800", "maxNodes": "2"}, 0) // partitions are hidden from nobody

		list := limits()
		var script strings.Builder
		for _, l := range list {
			fmt.Fprintf(&script, "sacctmgr -i -Q add account %s %s\n", l.user, l.account)
			if l.qos != "" {
				fmt.Fprintf(&script, "sacctmgr -i -Q add qos %s\nsacctmgr -i -Q modify qos %[1]s set %s\n", l.user, l.qos)
				l.own += fmt.Sprintf(" QOS=%s DefaultQOS=%[1]s", l.user)
			}
			fmt.Fprintf(&script, "sacctmgr -i -Q add user %s account=%[1]s %s\n", l.user, l.own)
		}
		c.script(script.String())

		nodes := 0
		waits := make([]string, len(list))
		for i, l := range list {
			submit := func(options []string) string {
				return c.sbatchAs(l.user, "sleep 600", options...)
			}
			if l.runs != nil {
				id := submit(l.runs)
				waits[i] = id
				nodes += l.nodes
				if l.waits != nil {
					c.waitJob(id, "CONFIGURING", "RUNNING")
				}
			}
			if l.waits != nil {
				waits[i] = submit(l.waits)
			}
		}
		for i, l := range list {
			d.told(waits[i], "job "+waits[i]+" does not count: a limit of its association, account or QOS keeps it waiting ("+l.reason+")")
		}
		d.within(all, float64(nodes))
		assert.Contains(t, d.get("/metrics"), fmt.Sprintf("slurmtide_scaler_pending_jobs{cluster=%q,why=\"limit\"} %d\n", c.Options.ClusterName, len(list)))

		t.Run("a token of a user who may not see them", func(t *testing.T) {
			c.t = t
			c.eventually("an error", func() (bool, string) {
				v, err := stranger.value(all)
				return status.Code(err) == codes.Unavailable, fmt.Sprint(v, err)
			})
			_, err := stranger.value(all)
			require.ErrorContains(t, err, "Slurm's queue is not shown in full: job ")
			require.ErrorContains(t, err, " is kept from games, who is no operator (PrivateData=jobs in slurm.conf)")
			assert.Contains(t, stranger.get("/metrics"), `slurmtide_scaler_readable{cluster="`+c.Options.ClusterName+`"} 0`)
			c.slurm("sacctmgr", "-i", "-Q", "modify", "user", "games", "set", "adminlevel=operator")
			stranger.within(all, float64(nodes))
		})
		c.t = t

		// One after the other, since a limit that is lifted is not looked at before the next pass over the queue.
		script.Reset()
		for _, l := range list {
			fmt.Fprintf(&script, "sacctmgr -i -Q modify %s\n", l.more)
			nodes += l.moreRuns
		}
		c.script(script.String())
		d.within(all, float64(nodes))
		assert.NotContains(t, d.get("/metrics"), `why="limit"`)
	})
}

// script runs a shell script beside slurmctld.
func (c *cluster) script(text string) {
	c.t.Helper()
	out, stderr, err := c.run(strings.NewReader(text), stack.ContainerSlurmctld, "sh", "-ex")
	require.NoError(c.t, err, "%s%s", out, stderr)
}

// sbatchAs is sbatch of another user of the image.
func (c *cluster) sbatchAs(user, script string, options ...string) string {
	c.t.Helper()
	token := c.slurm("scontrol", "token", "username="+user, "lifespan=600")
	args := append([]string{"env", token, "sbatch", "--parsable", "--output=/dev/null"}, options...)
	out, stderr, err := c.run(strings.NewReader("#!/bin/bash\n"+script+"\n"), stack.ContainerSlurmctld, args...)
	require.NoError(c.t, err, "%s: %v: %s", user, options, stderr)
	id := submitted.FindString(out)
	require.NotEmpty(c.t, id, "sbatch printed %q", out)
	return id
}
