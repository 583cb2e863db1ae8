// Package sshd is what pods need to let users in by ssh, and to know them: configuration and host keys of sshd, authorized keys, users, sssd. Login pods
// (package controlplane) and nodes (package pods) have it in common.
package sshd

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Directories in the pods.
const (
	ConfigDir   = "/etc/slurmtide/sshd"
	HostKeysDir = "/etc/slurmtide/host-keys"
	keysDir     = "/etc/slurmtide/authorized-keys"
	sssdDir     = "/etc/slurmtide/sssd"
	usersDir    = "/var/lib/extrausers"
	pipesDir    = "/var/lib/sss/pipes"
)

// Files in ConfigDir.
const (
	ConfigFile = "sshd_config"
	ExtraFile  = "extra.conf"
)

// RootKeys is the file of root's keys among those of all users.
const RootKeys = "root"

// ContainerSSSD is the container of sssd.
const ContainerSSSD = "sssd"

// Volumes. Their names begin so that no user's has the same.
const (
	hostKeysVolume = "slurmtide-host-keys"
	keysVolume     = "slurmtide-authorized-keys"
	usersVolume    = "slurmtide-users"
	sssdVolume     = "slurmtide-sssd"
	pipesVolume    = "slurmtide-sss-pipes"
)

// Files are sshd_config and what it includes. sshd takes the first value that it meets of a keyword, so the user's come before ours, but for those
// that the rest relies on. In a file of their own their Match blocks end with it. kind is that of the object, field what is put before the names of
// its fields; hostKeys are the files that are named in it, and others may be named on sshd's command line.
func Files(kind, field string, port int32, hostKeys []string, o *v1alpha1.SSHOptions, u *v1alpha1.UserOptions) map[string]string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by Slurmtide. What stands in %s.extraSshdConfig of the %s takes the place of what follows the Include.", field, kind)
	line("Port %d", port)
	line("PidFile none")
	for _, name := range hostKeys {
		line("HostKey %s/%s", HostKeysDir, name)
	}
	line("Include %s/%s", ConfigDir, ExtraFile)
	line("UsePAM yes")
	root := "no"
	if strings.TrimSpace(o.RootSSHAuthorizedKeys) != "" {
		root = "prohibit-password"
	}
	line("PermitRootLogin %s", root)
	line("PasswordAuthentication no")
	line("KbdInteractiveAuthentication no")
	line("AuthorizedKeysFile .ssh/authorized_keys")
	// A command, since sshd wants the directories of such files to be writable for root alone, and those of ConfigMaps look writable for all.
	sss := ""
	if u.SssdConfRef != nil {
		sss = `sss_ssh_authorizedkeys -- "$1" 2>/dev/null; `
	}
	line(`AuthorizedKeysCommand /bin/sh -c 'cat -- "%s/$1" 2>/dev/null; %sexit 0' sh %%u`, keysDir, sss)
	line("AuthorizedKeysCommandUser nobody")
	line("AcceptEnv LANG LC_*")
	line("PrintMotd no")
	line("X11Forwarding no")
	line("Subsystem sftp internal-sftp")
	// Load balancers forget connections that are silent for minutes.
	line("ClientAliveInterval 60")
	line("ClientAliveCountMax 10")
	return map[string]string{ConfigFile: b.String(), ExtraFile: o.ExtraSshdConfig}
}

// KeyVolumes are the host keys, which are in a Secret, and the users' keys: those of ConfigMaps, with root's own in place of what they may have for it.
func KeyVolumes(hostKeys string, o *v1alpha1.SSHOptions, root corev1.VolumeProjection) []corev1.Volume {
	var sources []corev1.VolumeProjection
	for _, ref := range o.AuthorizedKeysRefs {
		sources = append(sources, configMap(ref.Name))
	}
	return []corev1.Volume{
		{Name: hostKeysVolume, VolumeSource: privately(hostKeys)},
		{Name: keysVolume, VolumeSource: projected(append(sources, root)...)},
	}
}

// KeyMounts are for the container with sshd.
func KeyMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: hostKeysVolume, MountPath: HostKeysDir, ReadOnly: true},
		{Name: keysVolume, MountPath: keysDir, ReadOnly: true},
	}
}

// UserVolumes are what users are looked up in.
func UserVolumes(u *v1alpha1.UserOptions) (volumes []corev1.Volume) {
	if u.UsersRef != nil {
		volumes = append(volumes, corev1.Volume{Name: usersVolume, VolumeSource: projected(configMap(u.UsersRef.Name))})
	}
	if u.SssdConfRef != nil {
		volumes = append(volumes,
			corev1.Volume{Name: sssdVolume, VolumeSource: privately(u.SssdConfRef.Name)},
			corev1.Volume{Name: pipesVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return volumes
}

// UserMounts are what the C library asks for users.
func UserMounts(u *v1alpha1.UserOptions) []corev1.VolumeMount { return userMounts(u, true) }

func userMounts(u *v1alpha1.UserOptions, ask bool) (mounts []corev1.VolumeMount) {
	if u.UsersRef != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: usersVolume, MountPath: usersDir, ReadOnly: true})
	}
	if u.SssdConfRef != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: pipesVolume, MountPath: pipesDir, ReadOnly: ask})
	}
	return mounts
}

// SSSD runs sssd with a copy of its file, of which it wants to be the owner. It writes that, its caches and its logs where its image has them: the root file system
// is not read-only. When the file changes, it is started again. c is the container without what makes
// it sssd's.
func SSSD(c corev1.Container, u *v1alpha1.UserOptions) corev1.Container {
	const ours = "/etc/sssd/sssd.conf"
	theirs := sssdDir + "/" + u.SssdConfRef.Key
	c.Name = ContainerSSSD
	c.Command = []string{
		"/bin/sh", "-euc", `(umask 077; cat "$1" >"$2"; mkdir -p "$3/private"); chmod 0755 "$3"; exec sssd -i --logger=stderr`, "sh", theirs, ours, pipesDir,
	}
	AsRoot(&c, "SETUID", "SETGID", "CHOWN", "FOWNER", "DAC_OVERRIDE", "KILL") // its helpers become users, and write files for them
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", `[ "$(cat "$1")" = "$(cat "$2")" ]`, "sh", theirs, ours}}},
		PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 2,
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-S", pipesDir + "/nss"}}},
		PeriodSeconds: 5, TimeoutSeconds: 5,
	}
	c.VolumeMounts = append([]corev1.VolumeMount{{Name: sssdVolume, MountPath: sssdDir, ReadOnly: true}}, userMounts(u, false)...)
	return c
}

// AsRoot has a container run as root, with no capabilities but these.
func AsRoot(c *corev1.Container, capabilities ...corev1.Capability) {
	c.SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), RunAsNonRoot: new(false), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
	}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
}

func configMap(name string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o444))}}
}

// privately is a Secret whose files only root may read.
func privately(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}}
}
