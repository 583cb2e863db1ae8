package spool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestMain makes this binary stand for the four programs and for helpers of the tests,
// each a process of its own when it is run under that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"resume":       func() { os.Exit(Program(KindResume, os.Args, os.Getenv, os.Stderr)) },
		"suspend":      func() { os.Exit(Program(KindSuspend, os.Args, os.Getenv, os.Stderr)) },
		"resume-fail":  func() { os.Exit(Program(KindResumeFail, os.Args, os.Getenv, os.Stderr)) },
		"start-gate":   func() { os.Exit(StartGate(os.Args, os.Getenv)) },
		"pending":      helper(printPending),
		"bridge":       helper(runBridge),
		"crash-submit": helper(crashSubmit),
		"small-disk":   helper(smallDisk),
		"site-prolog":  helper(siteProlog),
	})
}

func helper(f func(args []string) error) func() {
	return func() {
		if err := f(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// printPending prints the requests in a spool, one JSON object a line.
func printPending(args []string) error {
	s, err := Open(args[0])
	if err != nil {
		return err
	}
	reqs, corrupt, err := s.Pending(nil)
	if err != nil {
		return err
	}
	for _, r := range reqs {
		r.Started = time.Time{}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	for _, c := range corrupt {
		fmt.Println("corrupt:", c.Err)
	}
	return nil
}

// stubBridge answers gates the way its name says.
type stubBridge string

// Poked leaves a file in the working directory that scripts can wait for.
func (b stubBridge) Poked() { _ = os.WriteFile("poked", nil, 0o600) }
func (b stubBridge) Status(context.Context) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (b stubBridge) Explain(context.Context, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (b stubBridge) Gate(ctx context.Context, r GateRequest) GateReply {
	// A gate is announced only when it waits: scripts synchronise on that line.
	fmt.Printf("gate %d %s array=%d_%d het=%d+%d %s attempt=%d\n", r.JobID, r.Nodes, r.ArrayJobID, r.ArrayTaskID, r.HetJobID, r.HetJobOffset, r.Partition, r.Attempt)
	switch b {
	case "ready":
		return GateReply{Ready: true}
	case "give-up":
		return GateReply{Reason: "no capacity"}
	case "notify":
		return GateReply{Reason: "no capacity", Notify: true}
	case "panic":
		panic("on purpose")
	}
	<-ctx.Done()
	fmt.Println("gate gone")
	return GateReply{Reason: "gone"}
}

// runBridge serves a spool until it is told to end: bridge <dir> ready|give-up|notify|wait|panic.
func runBridge(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if _, err := Open(args[0]); err != nil {
		return err
	}
	l, err := Listen(args[0])
	if err != nil {
		return err
	}
	fmt.Println("listening")
	return Serve(ctx, l, stubBridge(args[1]), slog.New(slog.DiscardHandler))
}

// crashSubmit submits a request and is killed before the named step: crash-submit <dir> <step> <nodes>.
func crashSubmit(args []string) error {
	w := newWriter(args[0])
	w.step = func(name string) error {
		if name == args[1] {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {}
		}
		return nil
	}
	_, err := w.submit(&Request{Kind: KindResume, Nodes: args[2], ResumeFile: json.RawMessage(`{"jobs":[]}`)})
	return err
}

// siteProlog is a site's own PrologSlurmctld: it echoes its standard input and a variable,
// then does what its arguments say.
func siteProlog(args []string) error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	fmt.Printf("site prolog: args=%q stdin=%q job=%s\n", args[1:], in, os.Getenv("SLURM_JOB_ID"))
	fmt.Fprintln(os.Stderr, "site prolog: stderr")
	switch args[0] {
	case "exit3":
		os.Exit(3)
	case "die":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "wait-hup":
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGHUP, syscall.SIGTERM)
		fmt.Println("site prolog: waiting")
		s := <-ch
		fmt.Println("site prolog: got", s)
		os.Exit(9)
	}
	return nil
}

// raceAtOnce keeps the race detector from sleeping for a second at the end of each process.
const raceAtOnce = "GORACE=atexit_sleep_ms=0"

// command prepares one of TestMain's programs with nothing but the given environment,
// like slurmctld does.
func command(t *testing.T, name string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{"SLURM_CONF=" + filepath.Join(t.TempDir(), "slurm.conf"), raceAtOnce}, env...)
	return cmd
}
