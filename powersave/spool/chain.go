package spool

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"
)

// exitNotRun is the status for a program that cannot be run, as in slurmctld and shells.
const exitNotRun = 127

// chain is a program that runs beside a start gate. It stays in our process group,
// which slurmctld kills as a whole.
type chain struct {
	process *os.Process
	ended   chan exit // nil when nothing is chained
}

// exit is how a chained program ended; the zero value stands for success.
type exit struct{ status syscall.WaitStatus }

func (e exit) failed() bool { return e.status != 0 }

// String is for the log.
func (e exit) String() string {
	if e.status.Signaled() {
		return "signal: " + e.status.Signal().String()
	}
	return fmt.Sprint(e.status.ExitStatus())
}

// startChained starts argv with our standard files and environment.
func startChained(argv []string) (*chain, error) {
	if len(argv) == 0 {
		return &chain{}, nil
	}
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, fmt.Errorf("starting chained program: %w", err)
	}
	c := &chain{process: p, ended: make(chan exit, 1)}
	go func() {
		state, err := p.Wait()
		if err != nil {
			c.ended <- exit{status: exitNotRun << 8}
			return
		}
		c.ended <- exit{status: state.Sys().(syscall.WaitStatus)}
	}()
	return c, nil
}

// signal passes s on. The chained program gets it twice when s was sent to the group.
func (c *chain) signal(s os.Signal) {
	if c.process != nil {
		_ = c.process.Signal(s) // it may have ended
	}
}

// leave returns the exit status to end with. After death by a signal it ends us by the
// same one, since slurmctld tells the two apart (prep_prolog_slurmctld_callback).
func (e exit) leave() int {
	if !e.status.Signaled() {
		return e.status.ExitStatus()
	}
	sig := e.status.Signal()
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) // the core is the program's, not ours
	signal.Reset(sig)
	// signal.Reset leaves the runtime's own handlers for SIGSEGV and its like.
	var dflt [4]uint64 // struct sigaction of the kernel: all zero is SIG_DFL
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dflt)), 0, 8, 0, 0)
	runtime.LockOSThread() // sent to this thread, the signal takes effect before the call returns
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), sig)
	return 128 + int(sig)
}
