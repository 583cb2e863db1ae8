package gather

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// write makes files in a new directory, with the mode of each.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	return dir
}

const conf = `ClusterName=tide
SlurmctldHost=someone-else
SlurmUser=root
AuthType=auth/slurm
AuthAltTypes=auth/jwt
NodeName=n State=CLOUD
ResumeProgram=`

func TestFiles(t *testing.T) {
	dir := write(t, map[string]string{"cgroup.conf": "CgroupPlugin=disabled\n", "slurmtide.conf": "Spool=/the/spool\n", "resume": "", "slurm.key": "k"})
	name := filepath.Join(dir, "slurm.conf")
	require.NoError(t, os.WriteFile(name, []byte(conf+dir+"/resume\nAuthAltParameters=jwt_key="+dir+"/no.key\nSuspendProgram=suspend\n"), 0o600))
	f, err := Files(name, Newest, HostAuto)
	require.NoError(t, err)
	require.NotNil(t, f.Cluster)
	require.NotNil(t, f.Cgroup)
	assert.Nil(t, f.Gres)
	require.NotNil(t, f.Host, "one of the programs is here")
	assert.Equal(t, "/the/spool", f.Host.Spool)
	assert.Equal(t, []string{dir + "/slurm.key", dir + "/no.key"}, f.Host.Keys)
	own := uint32(os.Getuid())
	assert.Equal(t, map[string]doctor.FileFacts{
		dir + "/resume":     {Exists: true, Mode: 0o640, Owner: own},
		dir + "/start-gate": {},
		dir + "/slurm.key":  {Exists: true, Mode: 0o640, Owner: own},
		dir + "/no.key":     {},
		"/the/spool":        {},
	}, f.Host.Files, "relative programs are not looked for")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurm.jwks"), nil, 0o600))
	f, err = Files(name, Newest, HostNo)
	require.NoError(t, err)
	assert.Nil(t, f.Host)
	f, err = Files(name, Newest, HostYes)
	require.NoError(t, err)
	assert.Contains(t, f.Host.Keys, dir+"/slurm.jwks", "slurmctld takes it rather than slurm.key")
}

// A file that cannot be looked at is said, and no rule speaks of it.
func TestUnread(t *testing.T) {
	dir := write(t, map[string]string{"file": ""})
	name := filepath.Join(dir, "slurm.conf")
	require.NoError(t, os.WriteFile(name, []byte(conf+dir+"/file/resume\n"), 0o600))
	f, err := Files(name, Newest, HostYes)
	require.NoError(t, err)
	assert.NotContains(t, f.Host.Files, dir+"/file/resume")
	assert.Contains(t, f.Unread, "stat "+dir+"/file/resume: not a directory")
}

// The host's own way to find names decides.
func TestNameless(t *testing.T) {
	dir := write(t, map[string]string{
		"getent":     "#!/bin/sh\n[ $1 = ahosts ] || exit 1\ncase $2 in on) ;; off) exit 2 ;; *) exit 1 ;; esac\n",
		"slurm.conf": "ClusterName=a\nSlurmctldHost=b\nNodeName=on State=CLOUD\nNodeName=off,other State=CLOUD\nNodeName=trouble State=CLOUD\nNodeName=metal\n",
	})
	require.NoError(t, os.Chmod(filepath.Join(dir, "getent"), 0o755))
	t.Setenv("PATH", dir)
	f, err := Files(filepath.Join(dir, "slurm.conf"), Newest, HostYes)
	require.NoError(t, err)
	assert.Equal(t, []string{"off"}, f.Host.Nameless)
	assert.Equal(t, []string{"the name trouble: getent: exit status 1"}, f.Unread)

	require.NoError(t, os.Remove(filepath.Join(dir, "getent")))
	f, err = Files(filepath.Join(dir, "slurm.conf"), Newest, HostYes)
	require.NoError(t, err)
	assert.Empty(t, f.Host.Nameless, "without getent nothing can be said")
	require.Len(t, f.Unread, 3, "that is said")
	assert.Equal(t, `the name on: getent: exec: "getent": executable file not found in $PATH`, f.Unread[0])
}

// A slurm.conf of another host is looked at alone.
func TestOtherHost(t *testing.T) {
	dir := write(t, map[string]string{"slurm.conf": conf + "/no/such/resume\n"})
	f, err := Files(filepath.Join(dir, "slurm.conf"), Newest, HostAuto)
	require.NoError(t, err)
	assert.Nil(t, f.Host)
	dir = write(t, map[string]string{"slurm.conf": "ClusterName=a\nSlurmctldHost=b\nSlurmUser=no-such-user-here\n"})
	f, err = Files(filepath.Join(dir, "slurm.conf"), Newest, HostAuto)
	require.NoError(t, err)
	assert.Nil(t, f.Host)
	_, err = Files(filepath.Join(dir, "slurm.conf"), Newest, HostYes)
	require.EqualError(t, err, "this host knows no user no-such-user-here, which is SlurmUser in slurm.conf; run on slurmctld's host, or with --host=no")
}

func TestIsController(t *testing.T) {
	c := &slurmconf.Cluster{Hosts: []slurmconf.Host{{Name: "Ctl-1"}, {Name: "ctl-2.example.com"}}}
	for name, want := range map[string]bool{"ctl-1": true, "ctl-2": true, "ctl-1.example.com": true, "ctl-3": false, "": false} {
		assert.Equal(t, want, isController(c, name), name)
	}
}

func TestVersion(t *testing.T) {
	dir := write(t, map[string]string{"scontrol": "#!/bin/sh\necho slurm 24.11.7\n"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "scontrol"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurmtide.conf"), []byte("Scontrol="+dir+"/scontrol\n"), 0o600))
	v, ok := Version(t.Context(), filepath.Join(dir, "slurm.conf"))
	assert.True(t, ok)
	assert.Equal(t, slurmconf.Version{Major: 24, Minor: 11}, v)
	require.NoError(t, os.Chmod(filepath.Join(dir, "slurmtide.conf"), 0o666))
	v, ok = Version(t.Context(), filepath.Join(dir, "slurm.conf"))
	assert.False(t, ok && v.Major == 24, "what anybody may have written is not run")
	require.NoError(t, os.Chmod(filepath.Join(dir, "slurmtide.conf"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "scontrol")))
	_, ok = Version(t.Context(), filepath.Join(dir, "slurm.conf"))
	assert.False(t, ok)
}
