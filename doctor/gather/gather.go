// Package gather reads the facts that package doctor looks at: files, and what the file system of slurmctld's host tells.
package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Newest is the newest Slurm whose manual the rules go by.
var Newest = slurmconf.Version{Major: 26, Minor: 5}

// Host says whether to look at the host's programs, spool and keys.
type Host string

// HostAuto looks if slurm.conf names this host as slurmctld's, or one of the programs is here.
const (
	HostAuto Host = "auto"
	HostYes  Host = "yes"
	HostNo   Host = "no"
)

// Files reads slurm.conf and what lies beside it. Of an absent slurm.conf, or one that may not be read, it is an error; what is wrong in it is
// in the facts.
func Files(slurmConf string, v slurmconf.Version, look Host) (doctor.Facts, error) {
	f := doctor.Facts{Version: v, Directory: filepath.Dir(slurmConf)}
	file, err := os.Open(slurmConf)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return f, fmt.Errorf("reading slurm.conf: %w; run this as SlurmUser or root", err)
	case err != nil:
		return f, fmt.Errorf("reading slurm.conf: %w; name it with --slurm-conf", err)
	}
	info, err := file.Stat()
	if err := errors.Join(err, file.Close()); err != nil {
		return f, fmt.Errorf("reading slurm.conf: %w", err)
	}
	if info.IsDir() {
		return f, fmt.Errorf("reading slurm.conf: %s is a directory; name a file with --slurm-conf", slurmConf)
	}
	f.SetSlurmConf(slurmconf.ReadConfig(slurmConf, nil))
	f.AddFiles(os.ReadFile, filepath.Join(f.Directory, "gres.conf"), filepath.Join(f.Directory, "cgroup.conf"))
	settings, warnings := spool.LoadSettings(func(key string) string {
		if key == "SLURM_CONF" {
			return slurmConf
		}
		return os.Getenv(key)
	})
	for _, w := range warnings {
		if errors.Is(w, fs.ErrPermission) { // the programs may, as SlurmUser
			f.Unread = append(f.Unread, w.Error())
		} else {
			f.Settings = append(f.Settings, w.Error())
		}
	}
	if f.Cluster == nil || look == HostNo {
		return f, nil
	}
	h, unread, err := host(&f, settings.Spool)
	if err != nil {
		if look == HostAuto {
			return f, nil // where there is no SlurmUser there is no slurmctld
		}
		return f, err
	}
	if name, _ := os.Hostname(); look == HostYes || isController(f.Cluster, name) || anyProgram(f, h) {
		f.Host = h
		var unasked []string
		h.Nameless, unasked = nameless(f.OffNodes())
		f.Unread = slices.Concat(f.Unread, unread, unasked)
	}
	return f, nil
}

// nameless asks getent, which finds names as slurmctld does, with all that is configured on the host. Without it, or without an answer in
// time, nothing can be said of a name.
func nameless(nodes []string) (none, unread []string) {
	const notFound = 2 // getent(1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, node := range nodes {
		err := exec.CommandContext(ctx, "getent", "ahosts", node).Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == notFound {
			none = append(none, node)
		} else if err != nil {
			unread = append(unread, fmt.Sprintf("the name %s: getent: %v", node, cmp.Or(ctx.Err(), err)))
		}
	}
	return none, unread
}

// isController tells whether a host is one of slurmctld's.
func isController(c *slurmconf.Cluster, name string) bool {
	name, _, _ = strings.Cut(name, ".")
	for _, h := range c.Hosts {
		if own, _, _ := strings.Cut(h.Name, "."); name != "" && strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

func anyProgram(f doctor.Facts, h *doctor.HostFacts) bool {
	for _, name := range f.Programs() {
		if h.Files[name].Exists {
			return true
		}
	}
	return false
}

// host looks at the files. SlurmUser is root unless slurm.conf says otherwise.
func host(f *doctor.Facts, spoolDir string) (_ *doctor.HostFacts, unread []string, _ error) {
	name := "root"
	if s, ok := f.Cluster.Get("SlurmUser"); ok {
		name, _, _ = strings.Cut(s.Value, "(")
	}
	id := name
	if u, err := user.Lookup(name); err == nil {
		id = u.Uid
	}
	uid, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return nil, nil, fmt.Errorf("this host knows no user %s, which is SlurmUser in slurm.conf; run on slurmctld's host, or with --host=no", name)
	}
	h := &doctor.HostFacts{SlurmUser: uint32(uid), Spool: spoolDir, Keys: f.KeyFiles(), Files: map[string]doctor.FileFacts{}}
	for i, key := range h.Keys {
		if jwks := filepath.Join(filepath.Dir(key), "slurm.jwks"); filepath.Base(key) == "slurm.key" {
			if file, err := stat(jwks); err == nil && file.Exists {
				h.Keys[i] = jwks
			}
		}
	}
	for _, name := range slices.Concat(f.Programs(), h.Keys, []string{spoolDir}) {
		if file, err := stat(name); err == nil {
			h.Files[name] = file
		} else {
			unread = append(unread, err.Error())
		}
	}
	return h, unread, nil
}

// stat tells of a file. An error means that nothing can be said, as of one in a directory that this user may not search.
func stat(name string) (doctor.FileFacts, error) {
	if !filepath.IsAbs(name) {
		return doctor.FileFacts{}, fmt.Errorf("%s: not an absolute path", name)
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return doctor.FileFacts{}, nil
	}
	if err != nil {
		return doctor.FileFacts{}, err
	}
	file := doctor.FileFacts{Exists: true, Directory: info.IsDir(), Mode: uint32(info.Mode().Perm())}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		file.Owner = sys.Uid
	}
	return file, nil
}

// Version asks scontrol on this host which Slurm it is of; ok is false without one. What Scontrol= of slurmtide.conf names is run only if nobody but root or
// who runs this can have written that: the files may be somebody else's, brought here to be looked at.
func Version(ctx context.Context, slurmConf string) (_ slurmconf.Version, ok bool) {
	settings, _ := spool.LoadSettings(func(key string) string {
		if key == "SLURM_CONF" {
			return slurmConf
		}
		return os.Getenv(key)
	})
	if file, err := stat(settings.File()); err != nil || file.Owner != 0 && int(file.Owner) != os.Geteuid() || file.Mode&0o022 != 0 {
		settings.Scontrol = spool.DefaultScontrol
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	said, err := exec.CommandContext(ctx, settings.Scontrol, "--version").Output()
	if err != nil {
		return slurmconf.Version{}, false
	}
	v, err := slurmconf.ParseVersion(string(said))
	return v, err == nil
}
