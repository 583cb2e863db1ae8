package inplace

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Program is cmd/reconfigure: reconfigure init, before slurmctld starts, and reconfigure run, beside it. As a probe of slurmctld's container it is
// reconfigure ready and reconfigure live.
func Program(args []string, getenv func(string) string, stderr io.Writer) int {
	flags := flag.NewFlagSet("reconfigure", flag.ContinueOnError)
	flags.SetOutput(stderr)
	wanted := flags.String("wanted", "/etc/slurmtide/config", "directory of the configuration that is wanted")
	keys := flags.String("keys", "/etc/slurmtide/keys", "directory of the keys")
	etc := flags.String("etc", "/etc/slurm", "directory that slurmctld reads")
	kept := flags.String("kept", "/var/spool/slurmtide-config", "directory for what was last in force")
	state := flags.String("state", "/var/spool/slurmctld", "directory of slurmctld's state")
	jwtKey := flags.String("jwt-key", "jwt_hs256.key", "name of the key of auth/jwt in --keys")
	standby := flags.Bool("standby", false, "ready: a backup that stands by is")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	pod := Pod{
		Namespace: getenv("POD_NAMESPACE"), Name: getenv("POD_NAME"), Container: "slurmctld",
		Host: getenv("KUBERNETES_SERVICE_HOST"), Port: getenv("KUBERNETES_SERVICE_PORT"), Dir: ServiceAccountDir,
	}
	host, err := os.Hostname()
	if err != nil {
		log.Error("reconfigure ends", "error", err)
		return 1
	}
	agent := &Agent{
		Host: host, Wanted: *wanted, Keys: *keys, Etc: *etc, Kept: *kept, State: *state, Dial: dial, Log: log, Now: time.Now,
		Slurm: Local{Slurmctld: "slurmctld", Scontrol: "scontrol", Etc: *etc, Keys: *keys, JWTKey: *jwtKey, Host: host},
		Tell:  pod.Tell, Ended: pod.Ended,
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch flags.Arg(0) {
	case "init", "run":
		if err := removeChecks(os.TempDir()); err != nil {
			log.Warn("removing what an earlier try of a configuration has left", "error", err)
		}
		act := agent.Run
		if flags.Arg(0) == "init" {
			act = agent.Init
		}
		err = act(ctx)
	case "ready", "live":
		probe := localProbe("scontrol", *etc, host, filepath.Join(os.TempDir(), "slurmtide-probe"), time.Now)
		if flags.Arg(0) == "ready" {
			err = probe.Ready(ctx, *standby)
		} else {
			err = probe.Live(ctx)
		}
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	default:
		fmt.Fprintf(stderr, "reconfigure: want init, run, ready or live, got %q\n", flags.Arg(0))
		return 2
	}
	if err != nil {
		log.Error("reconfigure ends", "error", err)
		return 1
	}
	return 0
}
