//go:build integration

package images_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pod with hostUsers: false has users of its own, and its files are shown to it as theirs.
const firstUser, users = 100000, 65536

// userNamespace starts one, and returns a process in it.
func userNamespace(t *testing.T) (pid int) {
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstUser, Size: users}}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapping, GidMappings: mapping, GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// idMapped shows a directory as the processes of a user namespace are to see it, as container runtimes do for their root file systems: open_tree(2),
// mount_setattr(2), move_mount(2). The numbers are those of every architecture.
func idMapped(t *testing.T, dir string, pid int) string {
	const (
		sysOpenTree, sysMoveMount, sysMountSetattr = 428, 429, 442
		atFDCWD, atEmptyPath, openTreeClone        = -100, 0x1000, 1
		mountAttrIDMap, moveMountEmptyPath         = 0x100000, 4
	)
	var kept []any // until the calls are over
	call := func(name string, number uintptr, args ...uintptr) uintptr {
		var a [5]uintptr
		copy(a[:], args)
		r, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], 0)
		require.Zero(t, errno, "%s: %v", name, errno)
		return r
	}
	text := func(s string) uintptr {
		p, err := syscall.BytePtrFromString(s)
		require.NoError(t, err)
		kept = append(kept, p)
		return uintptr(unsafe.Pointer(p))
	}
	namespace, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	require.NoError(t, err)
	defer namespace.Close()
	here := atFDCWD
	tree := call("open_tree", sysOpenTree, uintptr(here), text(dir), openTreeClone|syscall.O_CLOEXEC)
	defer syscall.Close(int(tree))
	attributes := &struct{ set, clear, propagation, namespace uint64 }{set: mountAttrIDMap, namespace: uint64(namespace.Fd())}
	kept = append(kept, attributes)
	call("mount_setattr", sysMountSetattr, tree, text(""), atEmptyPath, uintptr(unsafe.Pointer(attributes)), unsafe.Sizeof(*attributes))
	target := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(target), 0o711)) // root in there has no right to others' directories
	call("move_mount", sysMoveMount, tree, text(""), uintptr(here), text(target), moveMountEmptyPath)
	runtime.KeepAlive(kept)
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(target, syscall.MNT_DETACH)) })
	return target
}

// Root of such a pod is nobody on its host, and slurmd runs jobs as others all the same.
func TestUserNamespace(t *testing.T) {
	pid := userNamespace(t)
	environment := []string{"NODE_USERS=" + strconv.Itoa(pid), "NODE_ROOT=" + idMapped(t, image(t), pid)}
	said, left := run(t, environment, `for user in root slurm; do setpriv --reuid $user --regid $user --init-groups srun --quiet sh -c 'id -u; cat /proc/self/uid_map | xargs; stat -c %u /etc/passwd'; done`, "tini", "-s", "--")
	mapped := fmt.Sprintf("0 %d %d\n0", firstUser, users)
	assert.Equal(t, "0\n"+mapped+"\n64030\n"+mapped, said, "with the image's files being root's")
	assert.Empty(t, left)
}
