//go:build integration && controlplane

package integration

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// versionWithSSSD is that of the image with sssd, see hack/images/build.sh.
const versionWithSSSD = "24.11"

const startLDAP = `mkdir /tmp/db && slapadd -f /site/slapd.conf -l /site/users.ldif && exec slapd -d none -f /site/slapd.conf -h ldaps://:1636`

// slapdConf has OpenSSH's schema for keys, which Debian does not bring.
const slapdConf = `include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MUST sshPublicKey )
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile /tls/tls.crt
TLSCertificateKeyFile /tls/tls.key
database mdb
suffix "dc=example"
directory /tmp/db
`

// usersLDIF lacks carol's public key at its end.
const usersLDIF = `dn: dc=example
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: cn=carol,dc=example
objectClass: posixGroup
cn: carol
gidNumber: 2003

dn: cn=survey,dc=example
objectClass: posixGroup
cn: survey
gidNumber: 3003
memberUid: carol

dn: uid=carol,dc=example
objectClass: account
objectClass: posixAccount
objectClass: ldapPublicKey
uid: carol
cn: Carol
uidNumber: 2003
gidNumber: 2003
homeDirectory: /home/carol
loginShell: /bin/bash
userPassword: tide and time
sshPublicKey: `

const sssdConf = `[sssd]
services = nss, pam, ssh
domains = site
[domain/site]
id_provider = ldap
ldap_uri = ldaps://ldap
ldap_search_base = dc=example
ldap_tls_cacert = /etc/slurmtide/sssd/ca.crt
`

// createLDAP makes a directory with carol in it, whose Service is called ldap.
func (p *plane) createLDAP() {
	p.t.Helper()
	certFile, keyFile, ca := selfSigned(p.t, "ldap", x509.ExtKeyUsageServerAuth)
	cert, err := os.ReadFile(certFile)
	require.NoError(p.t, err)
	key, err := os.ReadFile(keyFile)
	require.NoError(p.t, err)
	p.createSecret("ldap-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	p.createSecret("sssd", map[string][]byte{"sssd.conf": []byte(sssdConf), "ca.crt": ca})
	p.slurm("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol", "-f", "/tmp/carol")
	p.createConfigMap("ldap", map[string]string{"slapd.conf": slapdConf, "users.ldif": usersLDIF + p.slurm("cat", "/tmp/carol.pub") + "\n"})
	labels := map[string]string{"app": "ldap"}
	_, err = p.kube.CoreV1().Services(p.ns).Create(p.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "ldap"}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: 636, TargetPort: intstr.FromInt32(1636)}},
	}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	_, err = p.kube.CoreV1().Pods(p.ns).Create(p.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ldap", Labels: labels}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(1000))},
		Containers: []corev1.Container{{
			Name: "slapd", Image: "slurmtide/ldap:test", ImagePullPolicy: corev1.PullNever, Command: []string{"/bin/sh", "-euc", startLDAP},
			VolumeMounts:   []corev1.VolumeMount{{Name: "site", MountPath: "/site"}, {Name: "tls", MountPath: "/tls"}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1636)}}, PeriodSeconds: 1},
		}},
		Volumes: []corev1.Volume{
			volume("site", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "ldap"}}}),
			volume("tls", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ldap-tls"}}),
		},
	}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.eventually("slapd to listen", func() (bool, string) {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "ldap", metav1.GetOptions{})
		require.NoError(p.t, err)
		states := pod.Status.ContainerStatuses
		return len(states) == 1 && states[0].Ready, fmt.Sprintf("%+v", states)
	})
}

// site is the login pods that ask the directory.
func (p *plane) site(key, command string) (stdout string, err error) {
	return p.sshTo("carol", key, "site-login", command, "-o", "StrictHostKeyChecking=accept-new")
}

// byPassword has carol come without a key.
func (p *plane) byPassword(password, command string) error {
	_, stderr, err := p.run(nil, "slurmctld", "sh", "-c", `printf '#!/bin/sh\necho "$PASSWORD"\n' >/tmp/askpass && chmod 0700 /tmp/askpass
export PASSWORD="$0" SSH_ASKPASS=/tmp/askpass SSH_ASKPASS_REQUIRE=force
exec timeout 60 ssh -F none -T -o PubkeyAuthentication=no -o NumberOfPasswordPrompts=1 -o UserKnownHostsFile=/tmp/known_hosts -o StrictHostKeyChecking=yes carol@site-login "$1"`,
		password, command)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr)
	}
	return err
}

// testSSSD has users come whom only a directory knows: to login pods, into jobs, and to nodes.
func (p *plane) testSSSD(t *testing.T, home corev1.Volume) {
	p.createLDAP()
	ref := v1alpha1.UserOptions{SssdConfRef: &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"}}
	_, err := p.tide.SlurmtideV1alpha1().LoginSets(p.ns).Create(p.ctx, &v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: v1alpha1.LoginSetSpec{
		ControllerRef: v1alpha1.ObjectRef{Name: "tide"}, UserOptions: ref, SSHOptions: v1alpha1.SSHOptions{ExtraSshdConfig: "PasswordAuthentication yes\n"},
		Login:    &v1alpha1.DaemonOptions{VolumeMounts: []corev1.VolumeMount{{Name: "home", MountPath: "/home"}}},
		Template: v1alpha1.PodOptions{Spec: v1alpha1.PodSpecOptions{Volumes: []corev1.Volume{home}}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.createHomeSet("people", "people-[0-1]", home, func(set *v1alpha1.NodeSet) {
		set.Spec.Partition = nil
		set.Spec.UserOptions = ref
		set.Spec.SSH = &v1alpha1.NodeSetSSH{Enabled: true}
	})

	p.eventually("carol to come in", func() (bool, string) { // with the key that the directory has
		out, err := p.site("carol", "id -un; id -Gn; pwd")
		return err == nil && out == "carol\ncarol survey\n/home/carol", fmt.Sprint(out, err)
	})
	_, err = p.site("alice", "true")
	require.ErrorContains(t, err, "Permission denied (publickey,password)")
	require.NoError(t, p.byPassword("tide and time", "true"))
	require.ErrorContains(t, p.byPassword("time and tide", "true"), "Permission denied (publickey,password)")

	p.waitInForce()
	out, err := p.site("carol", "srun -p people --nodelist=people-0 sh -c 'id -un; id -Gn; ls -ld ~ | cut -d \" \" -f 3,4'")
	require.NoError(t, err)
	assert.Equal(t, "carol\ncarol survey\ncarol carol", out, "the node knows names, too")

	out, err = p.site("carol", "sbatch --parsable -p people --nodelist=people-0 --output=/dev/null --wrap='sleep 600'")
	require.NoError(t, err)
	id := submitted.FindString(out)
	p.waitJob(id, "RUNNING")
	p.eventually("carol to come to her node", func() (bool, string) { // sshd may still be starting
		out, err := p.sshTo("carol", "carol", "people-0.tide-nodes", "id -un; echo $SLURM_JOB_ID", "-o", "HostKeyAlias=people", "-o", "StrictHostKeyChecking=accept-new")
		return err == nil && out == "carol\n"+id, fmt.Sprint(out, err)
	})
	others := p.sbatch("sleep 600", "-p", "people", "--nodelist=people-1")
	p.waitJob(others, "RUNNING")
	p.eventually("carol to be sent away from another", func() (bool, string) {
		_, err := p.sshTo("carol", "carol", "people-1.tide-nodes", "true", "-o", "HostKeyAlias=people", "-o", "StrictHostKeyChecking=yes")
		return err != nil && strings.Contains(err.Error(), "you have no active jobs on this node"), fmt.Sprint(err)
	})
	p.slurm("scancel", id, others)
	p.testSSSDChange(t)
	for _, kind := range []string{"loginset/site", "nodeset/people", "pod/ldap", "service/ldap"} {
		runKubectl(t, "-n", p.ns, "delete", "--wait=false", kind)
	}
}

// testSSSDChange keeps carol out by another sssd.conf. The session that she has goes on, and so does the pod.
func (p *plane) testSSSDChange(t *testing.T) {
	const who = `jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[?(@.name=="login")].restartCount}{end}`
	pods := func() string {
		return runKubectl(t, "-n", p.ns, "get", "pods", "-l", "slurmtide.io/loginset=site", "-o", who)
	}
	before := pods()
	s, err := p.kube.CoreV1().Secrets(p.ns).Get(p.ctx, "sssd", metav1.GetOptions{})
	require.NoError(t, err)
	s.Data["sssd.conf"] = []byte(sssdConf + "access_provider = simple\nsimple_deny_users = carol\n")
	_, err = p.kube.CoreV1().Secrets(p.ns).Update(p.ctx, s, metav1.UpdateOptions{})
	require.NoError(t, err)
	began := time.Now()
	p.within(4*time.Minute, time.Second, "carol to be kept out", func() (bool, string) {
		_, err := p.site("carol", "true")
		return err != nil && strings.Contains(err.Error(), "Connection closed"), fmt.Sprint(err)
	})
	t.Logf("kept out after %v", time.Since(began).Round(time.Second))
	assert.Equal(t, before, pods(), "sessions live")
}
