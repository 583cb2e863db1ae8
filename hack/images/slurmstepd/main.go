// Command slurmstepd stands in for Slurm's in our images: it gives up CAP_DAC_OVERRIDE and runs the real one.
//
// Figures of jobs (jobacct_gather/linux) come from /proc. Without CAP_SYS_PTRACE, which no Pod Security Standard but "privileged" allows, the kernel lets
// slurmstepd open /proc/<pid>/io of a user's process, thanks to CAP_DAC_OVERRIDE, but not read it; and then slurmstepd drops all figures of that process,
// MaxRSS too (common_jag.c, _handle_stats). If it cannot even open the file it only goes without I/O.
//
// It is a binary because slurmstepd 24.11 starts task prologs through itself by a file descriptor that closes at exec (run_command.c), which no script
// survives: its interpreter would find nothing to read. It uses the standard library alone, since the Dockerfile builds it without the module.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const slurmstepd = "/usr/libexec/slurm/slurmstepd" // finish.sh puts it there

// capabilities(7), prctl(2), capget(2)
const (
	capDacOverride = 1
	capSysPtrace   = 19
	prCapbsetDrop  = 24
	capVersion3    = 0x20080522
)

func main() {
	runtime.LockOSThread() // capabilities are of a thread, and those of the one that calls exec count
	if lacks(capSysPtrace) {
		// Who may not, be it a job's user, has nothing to give up.
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetDrop, capDacOverride, 0)
	}
	err := syscall.Exec(slurmstepd, os.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "slurmstepd: %s cannot be run: %v; is this image complete?\n", slurmstepd, err)
	os.Exit(127)
}

// lacks says that this thread does not have the capability, one of the first 32.
func lacks(capability uint) bool {
	header := struct {
		version uint32
		pid     int32
	}{version: capVersion3}
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return true
	}
	return sets[0].effective>>capability&1 == 0
}
