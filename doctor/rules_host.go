package doctor

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// hostRules are about files on slurmctld's host.
func hostRules() []Rule {
	return []Rule{
		{
			Name: "program-file", Severity: Error, Wants: Host,
			Why: "slurmctld runs no program that is missing, or that SlurmUser cannot read and execute, and none of power saving's that group or others may write: power saving is off, or no node ever boots. " +
				"It does not start when PrologSlurmctld is one that it cannot execute",
			Remedy: "slurmtide install-programs DIRECTORY, or chmod 0755",
			Source: "src/slurmctld/power_save.c _valid_prog (24.11), src/common/power_action.c power_action_valid_prog (26.05); src/common/run_command.c; src/plugins/prep/script/prep_script.c init",
			check:  programFiles,
		},
		{
			Name: "program-owner", Severity: Warning, Wants: Host,
			Why:    "slurmctld runs the program as SlurmUser: who owns it can be SlurmUser",
			Remedy: "chown root PROGRAM",
			Source: "slurm.conf(5) ResumeProgram (\"The program executes as SlurmUser\")",
			check:  programOwners,
		},
		{
			Name: "spool", Severity: Error, Wants: Host,
			Why:    "the programs cannot hand over requests without a spool directory; and who else may write to it can power nodes up and down",
			Remedy: "install -d -o SlurmUser -m 0700 SPOOL",
			Source: "docs/slurm-conf.md#slurmtideconf",
			check:  spoolDirectory,
		},
		{
			Name: "key-file", Severity: Error, Wants: Host,
			Why:    "auth/slurm and auth/jwt end slurmctld if others may read the key, or there is none",
			Remedy: "chmod 0600 KEY",
			Source: "src/plugins/auth/slurm/internal.c, src/plugins/auth/jwt/auth_jwt.c _check_key_permissions",
			check:  keyFiles,
		},
		{
			Name: "node-name", Severity: Hint, Wants: Host,
			Why: "slurmctld looks up the nodes of a job that ends while they boot. Debian's packages try a name that has no address five times, with pauses, " +
				"and slurmctld answers nobody for 10 to 20 s",
			Remedy: "give the names of nodes an address on slurmctld's host where no slurmd answers, in /etc/hosts for instance (docs/slurm-conf.md#network)",
			Source: "debian/patches of slurm-wlm; src/common/read_config.c slurm_conf_get_addr, src/slurmctld/node_mgr.c set_node_comm_name",
			check:  nodeNames,
		},
	}
}

// file is what is known of a file on the host.
func (f *Facts) file(name string) (FileFacts, bool) {
	if f.Host == nil {
		return FileFacts{}, false
	}
	file, ok := f.Host.Files[name]
	return file, ok
}

// programFiles does what slurmctld does before it runs a program: power_save.c _valid_prog.
func programFiles(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.named() {
		file, ok := f.file(s.Value)
		if !ok {
			continue
		}
		power := s.Key != "PrologSlurmctld"
		run, read := uint32(0o011), uint32(0o044) // as group or other; the owner may do more
		if file.Owner == f.Host.SlurmUser {
			run, read = 0o100, 0o400
		}
		if f.Host.SlurmUser == 0 {
			run, read = 0o111, 0
		}
		switch {
		case !file.Exists:
			out = append(out, found(s.Position, "install it, or correct the path", nil, "%s %s is not there", s.Key, s.Value))
		case file.Directory:
			out = append(out, found(s.Position, "name the program in it", nil, "%s %s is a directory", s.Key, s.Value))
		case power && file.Mode&0o022 != 0:
			out = append(out, found(s.Position, "chmod 0755 "+s.Value, nil, "%s %s has mode %04o: group or others may write it", s.Key, s.Value, file.Mode))
		case file.Mode&run == 0:
			out = append(out, found(s.Position, "chmod 0755 "+s.Value, nil, "%s %s has mode %04o: SlurmUser cannot execute it", s.Key, s.Value, file.Mode))
		case power && read != 0 && file.Mode&read == 0: // run_command.c asks for both
			out = append(out, found(s.Position, "chmod 0755 "+s.Value, nil, "%s %s has mode %04o: SlurmUser cannot read it", s.Key, s.Value, file.Mode))
		}
	}
	return out
}

func programOwners(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.named() {
		if file, ok := f.file(s.Value); ok && file.Exists && file.Owner != 0 && file.Owner != f.Host.SlurmUser {
			out = append(out, found(s.Position, "chown root "+s.Value, nil, "%s %s belongs to uid %d, neither root nor SlurmUser", s.Key, s.Value, file.Owner))
		}
	}
	return out
}

func spoolDirectory(f *Facts) []Finding {
	if f.Host == nil {
		return nil
	}
	file, ok := f.file(f.Host.Spool)
	install := fmt.Sprintf("install -d -o %d -m 0700 %s", f.Host.SlurmUser, f.Host.Spool)
	at := slurmconf.Position{File: f.Host.Spool}
	switch {
	case !ok || !f.saves():
		return nil
	case !file.Exists:
		return []Finding{found(at, install+", or name the right one with Spool= in slurmtide.conf", nil, "there is no spool directory")}
	case !file.Directory:
		return []Finding{found(at, "name a directory with Spool= in slurmtide.conf", nil, "the spool is no directory")}
	case file.Owner != f.Host.SlurmUser:
		return []Finding{found(at, install, nil, "the spool belongs to uid %d, not to SlurmUser (%d)", file.Owner, f.Host.SlurmUser)}
	case file.Mode&0o022 != 0:
		return []Finding{found(at, "chmod 0700 "+f.Host.Spool, nil, "the spool has mode %04o: group or others may write to it", file.Mode)}
	}
	return nil
}

// keyFiles: auth_jwt.c and internal.c stop if others may do anything with a key.
func keyFiles(f *Facts) []Finding {
	if f.Host == nil {
		return nil
	}
	var out []Finding
	for _, key := range f.Host.Keys {
		file, ok := f.file(key)
		at := slurmconf.Position{File: key}
		switch {
		case !ok:
		case !file.Exists:
			out = append(out, found(at, "make it (docs/install.md), or correct the path", nil, "there is no such key"))
		case file.Mode&0o007 != 0:
			out = append(out, found(at, "chmod 0600 "+key, nil, "the key has mode %04o: others may use it", file.Mode))
		}
	}
	return out
}

// nodeNames: only one node of a line is looked up, since the others are like it.
func nodeNames(f *Facts) []Finding {
	if f.Host == nil {
		return nil
	}
	var out []Finding
	for _, n := range f.cloud() {
		if i := slices.IndexFunc(f.Host.Nameless, n.Names.Contains); i >= 0 {
			out = append(out, found(n.Setting.Position, "give "+n.Names.String()+" an address on this host where no slurmd answers, its own for instance", nil, "%s has no address", f.Host.Nameless[i]))
		}
	}
	return out
}

// OffNodes are names of nodes that may be off, one of each line.
func (f *Facts) OffNodes() []string {
	var names []string
	for _, n := range f.cloud() {
		if n.Names.Len() > 0 {
			names = append(names, n.Names.At(0))
		}
	}
	return names
}

// Programs are the files that slurmctld runs, as slurm.conf names them.
func (f *Facts) Programs() []string {
	var all []string
	for _, s := range f.named() {
		if path.IsAbs(s.Value) {
			all = append(all, s.Value)
		}
	}
	if f.saves() && !slices.Contains(all, f.gate()) {
		all = append(all, f.gate())
	}
	return all
}

// KeyFiles are the keys that slurmctld opens: that of auth/slurm beside slurm.conf (slurm.jwks takes its place if it is there), and that of auth/jwt, which lies in StateSaveLocation
// unless AuthAltParameters says otherwise. Source: internal.c init_internal, auth_jwt.c init_hs256.
func (f *Facts) KeyFiles() []string {
	var all []string
	if s, _ := f.Cluster.Get("AuthType"); s.Value == "auth/slurm" {
		all = append(all, path.Join(path.Dir(f.main()), "slurm.key"))
	}
	if _, ok := f.word("AuthAltTypes", "auth/jwt"); !ok {
		return all
	}
	key, ok := f.word("AuthAltParameters", "jwt_key")
	if _, jwks := f.word("AuthAltParameters", "jwks"); jwks && !ok {
		return all
	}
	if !ok {
		state, _ := f.Cluster.Get("StateSaveLocation")
		key = path.Join(cmp.Or(state.Value, "/var/spool"), "jwt_hs256.key")
	}
	return append(all, key)
}
