package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StartGate is the body of start-gate, a PrologSlurmctld: it waits until the bridge says
// that the job's nodes are up and returns 0. slurmctld looks whether a CONFIGURING job
// can start when its PrologSlurmctld ends, and otherwise only every 30 s.
//
// slurmctld requeues a job whose PrologSlurmctld fails or runs into
// PrologEpilogTimeout (PrologTimeout since 26.05). So whatever goes wrong here ends the
// wait with 0: no bridge, a bridge that dies, hangs or restarts, a signal, the deadline.
// Not ours to catch is a limit on processes (TasksMax, a container's pids.max): the Go
// runtime ends with 2 when it gets no thread. A waiting gate has up to six, and a seventh
// in slurmscriptd.
//
// A site's own program is chained with `start-gate -- program args...` in a wrapper
// script, or with GateChain in slurmtide.conf; slurm.conf itself takes one path and no
// arguments (slurmscriptd_run_prepilog). It runs beside the wait and not after it: it
// starts when Slurm means it to, keeps all of PrologEpilogTimeout for itself, and its
// failure counts at once. Its exit status, or the signal that ended it, becomes ours.
func StartGate(args []string, env func(string) string) int {
	started := time.Now()
	runtime.GOMAXPROCS(1) // a thousand of these may wait: fewer threads each
	// SIGTERM comes 10 ms before SIGKILL when PrologEpilogTimeout has passed; ending well
	// within that time saves the job. SIGPIPE is caught so that it does not end us.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)

	settings, warnings := LoadSettings(env)
	log := programLog(settings.LogFile, "start-gate").With("job", env("SLURM_JOB_ID"))
	for _, w := range warnings {
		log.Warn("settings", "error", w)
	}
	chained, err := startChained(chainOf(args, settings, log))
	if err != nil {
		// What slurmctld reports for a prolog that it cannot run.
		log.Error("chained program not started", "error", err)
		fmt.Fprintf(os.Stderr, "start-gate: %v\n", err)
		return exitNotRun
	}
	ctx, cancel := context.WithDeadline(context.Background(), started.Add(gateTimeout(settings)))
	defer cancel()
	waited := make(chan string, 1)
	go func() { waited <- waitForNodes(ctx, settings, env) }()

	outcome, ended := "", chained.ended // a nil channel when nothing is chained
	var end exit
	for outcome == "" || ended != nil {
		select {
		case outcome = <-waited:
		case end = <-ended:
			ended = nil
			if end.failed() && outcome == "" {
				outcome = "the chained program failed"
			}
		case s := <-signals:
			if s == syscall.SIGPIPE {
				continue
			}
			chained.signal(s)
			if ended == nil || s == syscall.SIGTERM || s == syscall.SIGINT {
				outcome = "signal: " + s.String()
			}
		}
	}
	log.Info("gate opened", "nodes", shorten(env("SLURM_JOB_NODELIST")), "outcome", outcome, "exit", end.String(), "took", time.Since(started).Round(time.Millisecond))
	return end.leave()
}

// waitForNodes asks the bridge and says how that ended.
func waitForNodes(ctx context.Context, s Settings, env func(string) string) (outcome string) {
	defer func() {
		if p := recover(); p != nil {
			outcome = fmt.Sprint("panic: ", p)
		}
	}()
	r, err := gateRequest(env)
	if err != nil {
		return err.Error()
	}
	if r.Deadline, _ = ctx.Deadline(); time.Now().After(r.Deadline) {
		return "no time to wait: see GateTimeout and PrologEpilogTimeout"
	}
	reply, err := AskGate(ctx, s.Spool, r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline reached"
	case err != nil:
		return err.Error()
	case !reply.Ready:
		outcome = "the bridge gave up: " + reply.Reason
		if reply.Notify {
			outcome += "; " + notify(ctx, s, r.JobID, reply.Reason)
		}
		return outcome
	}
	return "nodes are ready"
}

// notify writes the reason to the terminal of the job's srun or salloc. slurmrestd cannot; slurmctld's host has scontrol.
func notify(ctx context.Context, s Settings, job uint32, reason string) (outcome string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Scontrol, "notify", strconv.FormatUint(uint64(job), 10), "slurmtide: "+reason)
	cmd.Env = []string{"SLURM_CONF=" + s.SlurmConf}
	if out, err := cmd.CombinedOutput(); err != nil {
		return shorten(fmt.Sprintf("notifying the user failed: %v: %s", err, bytes.TrimSpace(out)))
	}
	return "the user was notified"
}

// gateRequest takes the job from a PrologSlurmctld's environment (job_common_env_vars in
// slurmctld's job_mgr.c).
func gateRequest(env func(string) string) (GateRequest, error) {
	job := func(name string) uint32 {
		n, _ := strconv.ParseUint(env(name), 10, 32)
		return uint32(n)
	}
	r := GateRequest{
		JobID:        job("SLURM_JOB_ID"),
		Nodes:        env("SLURM_JOB_NODELIST"),
		Partition:    env("SLURM_JOB_PARTITION"),
		ArrayJobID:   job("SLURM_ARRAY_JOB_ID"),
		ArrayTaskID:  job("SLURM_ARRAY_TASK_ID"),
		HetJobID:     job("SLURM_HET_JOB_ID"),
		HetJobOffset: job("SLURM_HET_JOB_OFFSET"),
	}
	if n, err := strconv.Atoi(env("SLURM_JOB_RESTART_COUNT")); err == nil && n >= 0 {
		r.Attempt = n + 1
	}
	if r.JobID == 0 {
		return r, fmt.Errorf("SLURM_JOB_ID is %.40q: not called as PrologSlurmctld", env("SLURM_JOB_ID"))
	}
	if err := checkHostlist(r.Nodes); err != nil {
		return r, fmt.Errorf("SLURM_JOB_NODELIST: %w", err)
	}
	return r, nil
}

// gateTimeout is how long the gate may wait: GateTimeout, and no longer than leaves a
// tenth of slurmctld's own limit to end in.
func gateTimeout(s Settings) time.Duration {
	if limit := readSlurmTimes(s.SlurmConf).Prolog; limit > 0 {
		return min(s.GateTimeout, limit-max(limit/10, time.Second))
	}
	return s.GateTimeout
}

// chainOf returns the command to chain: what follows "--", else GateChain.
func chainOf(args []string, s Settings, log *slog.Logger) []string {
	if len(args) < 2 {
		return s.GateChain
	}
	if args[1] == "--" && len(args) > 2 {
		return args[2:]
	}
	log.Warn("arguments ignored; use: start-gate [-- program args...]", "args", shorten(strings.Join(args[1:], " ")))
	return s.GateChain
}
