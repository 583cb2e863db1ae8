package pods

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// defaultSSHPort is the CRD's default.
const defaultSSHPort = 22

// The files of sshd stand on the pod as annotations, and the kubelet puts them into it: so they belong to its revision, and nobody has to make a ConfigMap.
const (
	annotationSSHConfig   = "slurmtide.io/ssh-config"
	annotationSSHExtra    = "slurmtide.io/ssh-extra-config"
	annotationSSHPAM      = "slurmtide.io/ssh-pam"
	annotationSSHRootKeys = "slurmtide.io/ssh-root-keys"
)

// sshVolume has these files.
const sshVolume = "slurmtide-sshd"

// pamFile is the PAM stack among them.
const pamFile = "pam"

// runSSHD is the script of slurmd's postStart hook. sshd runs in slurmd's own container, so that who comes finds the job's processes, devices and files. It
// is started again when it ends, and says why in slurmd's log; slurmd and its jobs do not depend on it. Without the PAM stack, which keeps out who has no
// job, it does not run.
//
// OpenSSH from 9.8 on locks an address out for the mistakes of one user. Nodes see those of login pods, which many users share: so it does not, unless the
// user has said what it is to do. sshd is asked whether it knows the word, since an older one would end for it.
const runSSHD = `keys=
for key in "$1"/ssh_host_*_key; do keys="$keys -h $key"; done
{
  mkdir -p /run/sshd && cat "$0/pam" >/etc/pam.d/sshd && while :; do
    options="-f $0/sshd_config $keys"
    if ! grep -qi PerSourcePenalties "$0/extra.conf" && /usr/sbin/sshd -t -o PerSourcePenalties=no $options 2>/dev/null; then
      options="$options -o PerSourcePenalties=no"
    fi
    /usr/sbin/sshd -D -e $options
    sleep 10
  done
} </dev/null >/proc/1/fd/2 2>&1 &`

// SSHEnabled says whether users come to the nodes by ssh.
func SSHEnabled(spec *v1alpha1.NodeSetSpec) bool { return spec.SSH != nil && spec.SSH.Enabled }

// HostKeysName is the Secret with the host keys of a NodeSet's nodes, which all have the same: pods come and go under their names.
func HostKeysName(ns *v1alpha1.NodeSet) string {
	if ns.Spec.SSH != nil && ns.Spec.SSH.HostKeysRef != nil {
		return ns.Spec.SSH.HostKeysRef.Name
	}
	return ns.Name + "-ssh-host-keys"
}

// addUsers has slurmd's container know the users of the NodeSet. sssd is there before slurmd starts, and as long as it runs.
func addUsers(pod *corev1.Pod, spec *v1alpha1.NodeSetSpec) {
	users, slurmd := &spec.UserOptions, slurmdContainer(&pod.Spec)
	pod.Spec.Volumes = append(pod.Spec.Volumes, sshd.UserVolumes(users)...)
	slurmd.VolumeMounts = append(slurmd.VolumeMounts, sshd.UserMounts(users)...)
	if users.SssdConfRef == nil {
		return
	}
	sssd := sshd.SSSD(corev1.Container{
		Image: slurmd.Image, ImagePullPolicy: slurmd.ImagePullPolicy, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}},
	}, users)
	sssd.StartupProbe = &corev1.Probe{ProbeHandler: sssd.ReadinessProbe.ProbeHandler, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 60}
	pod.Spec.InitContainers = append([]corev1.Container{sssd}, pod.Spec.InitContainers...)
}

// addSSH has sshd run beside slurmd.
func addSSH(pod *corev1.Pod, ns *v1alpha1.NodeSet, node string) {
	if !SSHEnabled(&ns.Spec) {
		return
	}
	o, slurmd := ns.Spec.SSH, slurmdContainer(&pod.Spec)
	files := sshd.Files("NodeSet", "spec.ssh", cmp.Or(o.Port, defaultSSHPort), nil, &o.SSHOptions, &ns.Spec.UserOptions)
	pod.Annotations[annotationSSHConfig] = files[sshd.ConfigFile]
	pod.Annotations[annotationSSHExtra] = files[sshd.ExtraFile]
	pod.Annotations[annotationSSHPAM] = pamStack(node, ns.Spec.SssdConfRef != nil)
	pod.Annotations[annotationSSHRootKeys] = o.RootSSHAuthorizedKeys
	pod.Spec.Volumes = append(append(pod.Spec.Volumes, corev1.Volume{Name: sshVolume, VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: new(int32(0o444)), Items: []corev1.DownwardAPIVolumeFile{
			annotationFile(sshd.ConfigFile, annotationSSHConfig), annotationFile(sshd.ExtraFile, annotationSSHExtra), annotationFile(pamFile, annotationSSHPAM),
		}},
	}}), sshd.KeyVolumes(HostKeysName(ns), &o.SSHOptions, corev1.VolumeProjection{
		DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{annotationFile(sshd.RootKeys, annotationSSHRootKeys)}},
	})...)
	slurmd.VolumeMounts = append(append(slurmd.VolumeMounts, corev1.VolumeMount{Name: sshVolume, MountPath: sshd.ConfigDir, ReadOnly: true}), sshd.KeyMounts()...)
	slurmd.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", runSSHD, sshd.ConfigDir, sshd.HostKeysDir}}}
}

func annotationFile(path, annotation string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']"}}
}

// pamStack lets in who has a job on the node, and root. A failure of pam_slurm_adopt would let all in by its defaults, which are made for trying it out. It leaves
// root to others, who all have nothing to say: hence pam_permit. The node is named, since Slurm knows pods by no other name than their node's.
//
// Until 24.11 it finds the newest of several jobs by cgroups, and without them (CgroupPlugin=disabled) ends with session_err (pam_slurm_adopt.c,
// _indeterminate_multiple). Then it is asked again, and lets in who has some job there, as a session of none.
func pamStack(node string, sss bool) string {
	auth, account, session := "", "", ""
	if sss {
		auth = "-auth [success=1 default=ignore] pam_sss.so\n"
		account = "-account [success=ok user_unknown=ignore default=bad] pam_sss.so\n"
		session = "-session optional pam_sss.so\n"
	}
	return "# Made by Slurmtide.\n" +
		auth + "auth requisite pam_deny.so\nauth required pam_permit.so\n" +
		"account required pam_nologin.so\n" + account +
		fmt.Sprintf("account [success=1 ignore=1 session_err=ignore default=die] pam_slurm_adopt.so nodename=%s action_generic_failure=deny action_adopt_failure=deny\n", node) +
		fmt.Sprintf("account [success=ok ignore=ignore default=die] pam_slurm_adopt.so nodename=%s action_generic_failure=deny action_adopt_failure=deny action_unknown=allow\n", node) +
		"account required pam_permit.so\n" +
		"password required pam_deny.so\n" +
		"session optional pam_loginuid.so\nsession required pam_limits.so\nsession required pam_env.so\nsession optional pam_mkhomedir.so umask=0077\n" + session
}

// checkSSH reports what does not go together with ssh.
func checkSSH(spec *v1alpha1.NodeSetSpec) error {
	if !SSHEnabled(spec) {
		return nil
	}
	var problems []error
	pod := &spec.Template.Spec
	if pod.SecurityContext != nil && pod.SecurityContext.FSGroup != nil {
		problems = append(problems, errors.New("spec.ssh: remove fsGroup from spec.template.spec.securityContext: sshd refuses host keys that a group may read"))
	}
	if pod.HostPID || pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace {
		problems = append(problems, errors.New("spec.ssh: remove hostPID and shareProcessNamespace from spec.template.spec: what a user leaves behind is looked for among all processes that slurmd sees"))
	}
	if slurmd := slurmdContainer(pod); slurmd != nil && slurmd.Lifecycle != nil && slurmd.Lifecycle.PostStart != nil {
		problems = append(problems, errors.New("spec.ssh: remove lifecycle.postStart from container slurmd of spec.template: sshd is started there"))
	}
	for _, v := range pod.Volumes {
		if strings.HasPrefix(v.Name, "slurmtide-") {
			problems = append(problems, fmt.Errorf("spec.ssh: give volume %s of spec.template another name: those that begin with slurmtide- are Slurmtide's", v.Name))
		}
	}
	return errors.Join(problems...)
}
