//go:build integration && controlplane

package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// loginSelector finds the pods of LoginSet tide.
const loginSelector = "slurmtide.io/loginset=tide"

// filter is a cli_filter.lua.
const filter = `function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, component)
	if options["job-name"] == "forbidden" then
		slurm.log_error("no job is called so here")
		return slurm.ERROR
	end
	options["comment"] = "filtered"
	return slurm.SUCCESS
end
function slurm_cli_post_submit(component, job, step) return slurm.SUCCESS end
`

// TestControlPlaneLogin has users come by ssh, with the client of another pod, and use Slurm.
func TestControlPlaneLogin(t *testing.T) {
	withController(t)
	newestFirst(t, testLogin)
}

func testLogin(t *testing.T, version string) {
	p := newPlane(t, version, "login-")
	p.describeLogin()
	p.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n")
	home := p.hostDirectory("home")
	p.createHomeSet("cpu", "cpu-[0-2]", home)
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitInForce()
	for _, who := range []string{"alice", "admin", "stranger"} {
		p.slurm("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", "/tmp/"+who)
	}
	p.part("validation", p.testLoginValidation)
	began := time.Now()
	p.createLoginSet(home)
	p.waitLogin("Answers", "1 of 1 let users in")
	t.Logf("users are let in after %v", time.Since(began).Round(100*time.Millisecond))
	p.part("a user comes", p.testLoginUser)
	p.part("from outside", p.testLoginOutside)
	p.part("nobody else comes", p.testLoginRefused)
	p.part("jobs from zero", p.testLoginJobs)
	p.part("what the pod can do", p.testLoginRights)
	p.part("ssh into nodes", func(t *testing.T) { p.testNodeSSH(t, home) })
	p.part("what ssh leaves behind", p.testLeftBehind)
	p.part("interactive work", p.testInteractive)
	if version == versionWithSSSD {
		p.part("users from a directory", func(t *testing.T) { p.testSSSD(t, home) })
	}
	p.part("slurm.conf changes in place", p.testLoginConfig)
	p.part("a bad sshd_config", p.testLoginBadConfig)
	p.part("the host key stays", p.testLoginHostKey)
	p.part("scale", p.testLoginScale)
	p.part("scrontab", p.testScrontab)
	p.part("a key is taken away", p.testLoginKeyGoes)
	p.part("deleted", p.testLoginDeleted)
}

// describeLogin tells what became of login pods if the test fails.
func (p *plane) describeLogin() {
	p.t.Cleanup(func() {
		if !p.t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), time.Minute)
		defer cancel()
		asked := [][]string{{"-n", p.ns, "get", "loginsets", "-o", "yaml"}}
		asked = append(asked, []string{"-n", p.ns, "logs", "-l", "slurmtide.io/nodeset", "-c", "slurmd", "--prefix", "--tail=60"})
		for _, container := range []string{"login", "sackd", "sssd"} {
			asked = append(asked, []string{"-n", p.ns, "logs", "-l", "slurmtide.io/loginset", "-c", container, "--prefix", "--tail=60"})
		}
		for _, args := range asked {
			out, err := askKubectl(ctx, args...)
			p.t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	})
}

// hostDirectory makes a directory of this machine a volume that all pods can share.
func (p *plane) hostDirectory(name string) corev1.Volume {
	dir, err := os.MkdirTemp("/var/tmp", p.ns+"-"+name+"-")
	require.NoError(p.t, err)
	require.NoError(p.t, os.Chmod(dir, 0o755))
	p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}
}

// createHomeSet makes a NodeSet whose nodes have the users' home directories.
func (p *plane) createHomeSet(name, nodes string, home corev1.Volume, change ...func(*v1alpha1.NodeSet)) {
	p.t.Helper()
	set := p.build(nodeSet{name: name, nodes: nodes})
	spec := &set.Spec.Template.Spec
	spec.Containers[0].Env[0].ValueFrom.SecretKeyRef.Name = "tide-auth-slurm"
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: home.Name, MountPath: "/home"}}
	spec.Volumes = []corev1.Volume{home}
	set.Spec.Partition = &v1alpha1.NodeSetPartition{Config: "Default=YES"}
	for _, one := range change {
		one(set)
	}
	_, err := p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Create(p.ctx, set, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (p *plane) createConfigMap(name string, data map[string]string) {
	p.t.Helper()
	_, err := p.kube.CoreV1().ConfigMaps(p.ns).Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// createLoginSet first forgets what the LoginSet refers to, and then makes it.
func (p *plane) createLoginSet(home corev1.Volume) {
	p.t.Helper()
	sets := p.tide.SlurmtideV1alpha1().LoginSets(p.ns)
	_, err := sets.Create(p.ctx, &v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: "tide"}, Spec: v1alpha1.LoginSetSpec{
		ControllerRef: v1alpha1.ObjectRef{Name: "tide"},
		SSHOptions:    v1alpha1.SSHOptions{AuthorizedKeysRefs: []v1alpha1.ObjectRef{{Name: "keys"}}},
		UserOptions:   v1alpha1.UserOptions{UsersRef: &v1alpha1.ObjectRef{Name: "users"}},
		Login:         &v1alpha1.DaemonOptions{VolumeMounts: []corev1.VolumeMount{{Name: "home", MountPath: "/home"}}},
		Template:      v1alpha1.PodOptions{Spec: v1alpha1.PodSpecOptions{Volumes: []corev1.Volume{home}}},
	}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.eventually("the missing keys to be told", func() (bool, string) {
		s := p.loginSet("tide")
		one := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted)
		return one != nil && one.Reason == "ConfigFileMissing" && strings.HasPrefix(one.Message, "spec.authorizedKeysRefs: there is no ConfigMap keys"), fmt.Sprintf("%+v", s.Status)
	})
	p.createConfigMap("keys", map[string]string{"alice": p.slurm("cat", "/tmp/alice.pub") + "\n"})
	p.createConfigMap("users", map[string]string{
		"passwd": "alice:x:2001:2001:Alice:/home/alice:/bin/bash\nbob:x:2002:2001:Bob:/home/bob:/bin/bash\n", "group": "alice:x:2001:\nproject:x:3001:alice\n",
	})
	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.Service.Annotations = map[string]string{"site": "x"} })
}

func (p *plane) loginSet(name string) *v1alpha1.LoginSet {
	p.t.Helper()
	s, err := p.tide.SlurmtideV1alpha1().LoginSets(p.ns).Get(p.ctx, name, metav1.GetOptions{})
	require.NoError(p.t, err)
	return s
}

func (p *plane) editLoginSet(edit func(*v1alpha1.LoginSet)) {
	p.t.Helper()
	p.eventually("the LoginSet to be written", func() (bool, string) {
		s := p.loginSet("tide")
		edit(s)
		_, err := p.tide.SlurmtideV1alpha1().LoginSets(p.ns).Update(p.ctx, s, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// waitLogin waits until condition Available of the newest generation has a reason and a message that begins so.
func (p *plane) waitLogin(reason, message string) {
	p.t.Helper()
	p.eventually("Available "+reason, func() (bool, string) {
		s := p.loginSet("tide")
		one := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAvailable)
		return one != nil && one.Reason == reason && strings.HasPrefix(one.Message, message) && one.ObservedGeneration == s.Generation, fmt.Sprintf("%+v", s.Status)
	})
}

// ssh runs a command as a user of the login pods, with the client where slurmctld runs if no other is made for it. key is whose key is used.
func (p *plane) ssh(user, key, command string, options ...string) (stdout string, err error) {
	return p.sshTo(user, key, "tide-login", command, options...)
}

// sshTo does so on any host.
func (p *plane) sshTo(user, key, host, command string, options ...string) (stdout string, err error) {
	args := append([]string{"timeout", "120", "ssh", "-F", "none", "-T", "-i", "/tmp/" + key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
		"-o", "UserKnownHostsFile=/tmp/known_hosts", "-o", "ConnectTimeout=10"}, options...)
	args = append(args, user+"@"+host)
	if command != "" { // with -W there is none
		args = append(args, command)
	}
	out, stderr, err := p.client(args...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr)
	}
	return strings.TrimSpace(out), err
}

// alice runs a command as she does; the host has to be the one she knows.
func (p *plane) alice(command string) string {
	p.t.Helper()
	out, err := p.ssh("alice", "alice", command, "-o", "StrictHostKeyChecking=yes")
	require.NoError(p.t, err, command)
	return out
}

func (p *plane) loginPods() []corev1.Pod {
	p.t.Helper()
	list, err := p.kube.CoreV1().Pods(p.ns).List(p.ctx, metav1.ListOptions{LabelSelector: loginSelector})
	require.NoError(p.t, err)
	return list.Items
}

// loginContainers are those with sshd, to see that none was started again.
func (p *plane) loginContainers() (all []string) {
	p.t.Helper()
	for _, pod := range p.loginPods() {
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == "login" {
				all = append(all, c.ContainerID)
			}
		}
	}
	return all
}

func (p *plane) testLoginValidation(t *testing.T) {
	sets := p.tide.SlurmtideV1alpha1().LoginSets(p.ns)
	for want, change := range map[string]func(*v1alpha1.LoginSet){
		"metadata.name must be at most 40": func(s *v1alpha1.LoginSet) { s.Name = strings.Repeat("a", 41) },
		"fsGroup cannot be set": func(s *v1alpha1.LoginSet) {
			s.Spec.Template.Spec.SecurityContext = &v1alpha1.PodSecurityOptions{FSGroup: new(int64(1))}
		},
		"spec.service.nodePort is for":              func(s *v1alpha1.LoginSet) { s.Spec.Service.NodePort = 32222 },
		"spec.service.externalTrafficPolicy is for": func(s *v1alpha1.LoginSet) { s.Spec.Service.ExternalTrafficPolicy = "Local" },
		"are for the type LoadBalancer":             func(s *v1alpha1.LoginSet) { s.Spec.Service.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
	} {
		s := &v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: v1alpha1.LoginSetSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}}}
		change(s)
		_, err := sets.Create(p.ctx, s, metav1.CreateOptions{})
		require.ErrorContains(t, err, want)
	}
	p.createSet("alone", "alone-0", func(s *v1alpha1.NodeSet) { s.Spec.ClusterRef.Name = "none" }) // it is given half a minute
	_, err := sets.Create(p.ctx, &v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: v1alpha1.LoginSetSpec{ControllerRef: v1alpha1.ObjectRef{Name: "none"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.eventually("the missing Controller to be told", func() (bool, string) {
		s := p.loginSet("try")
		one := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted)
		return one != nil && one.Reason == "ControllerMissing", fmt.Sprintf("%+v", s.Status)
	})
	p.eventually("an Event", func() (bool, string) {
		said := runKubectl(t, "-n", p.ns, "get", "events.events.k8s.io", "-o", `jsonpath={range .items[?(@.regarding.kind=="LoginSet")]}{.reason}: {.note}{"\n"}{end}`)
		return strings.Contains(said, "AcceptedControllerMissing: there is no Controller none"), said
	})
	s := p.loginSet("try")
	s.Spec.ControllerRef.Name = "tide"
	_, err = sets.Update(p.ctx, s, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "spec.controllerRef cannot be changed")
	require.NoError(t, sets.Delete(p.ctx, "try", metav1.DeleteOptions{}))
	nodes := p.tide.SlurmtideV1alpha1().NodeSets(p.ns)
	p.eventually("the NodeSet to say that nobody looks at it", func() (bool, string) {
		set, err := nodes.Get(p.ctx, "alone", metav1.GetOptions{})
		require.NoError(t, err)
		one := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionAccepted)
		return one != nil && one.Reason == "ControllerMissing", fmt.Sprintf("%+v", set.Status)
	})
	require.NoError(t, nodes.Delete(p.ctx, "alone", metav1.DeleteOptions{}))
}

func (p *plane) testLoginUser(t *testing.T) {
	var out string
	var err error
	p.eventually("kube-proxy to know the pod that is ready", func() (bool, string) {
		out, err = p.ssh("alice", "alice", "id -un; id -Gn; pwd", "-o", "StrictHostKeyChecking=accept-new")
		return err == nil || !strings.Contains(err.Error(), "Connection refused"), fmt.Sprint(err)
	})
	require.NoError(t, err)
	assert.Equal(t, "alice\nalice project\n/home/alice", out)
	// She can know beforehand whom she meets.
	known := p.slurm("ssh-keygen", "-l", "-f", "/tmp/known_hosts")
	fingerprint := strings.Fields(known)[1]
	assert.Contains(t, strings.Join(p.loginSet("tide").Status.HostKeys, "\n"), fingerprint)
	assert.Contains(t, p.alice("sinfo -h -o '%P %D %t'"), "cpu* 3 idle~")
}

// testLoginOutside comes to a port of the host, and to the address of a load balancer. Its maker is played by the test: kube-proxy does the rest.
func (p *plane) testLoginOutside(t *testing.T) {
	reached := func(host string, port int32) error {
		_, err := p.sshTo("alice", "alice", host, "true", "-p", fmt.Sprint(port), "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=tide-login", "-o", "ConnectTimeout=3")
		return err
	}
	let := func(what, host string, port int32) {
		t.Helper()
		p.eventually(what, func() (bool, string) { err := reached(host, port); return err == nil, fmt.Sprint(err) })
	}
	services := p.kube.CoreV1().Services(p.ns)
	service := func(of corev1.ServiceType) (s *corev1.Service) {
		t.Helper()
		p.eventually("a Service of type "+string(of), func() (bool, string) {
			var err error
			s, err = services.Get(p.ctx, "tide-login", metav1.GetOptions{})
			require.NoError(t, err)
			return s.Spec.Type == of, string(s.Spec.Type)
		})
		return s
	}
	hosts, err := p.kube.CoreV1().Nodes().List(p.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	host := ""
	for _, address := range hosts.Items[0].Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			host = address.Address
		}
	}

	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.Service = v1alpha1.LoginService{Type: corev1.ServiceTypeNodePort} })
	port := service(corev1.ServiceTypeNodePort).Spec.Ports[0].NodePort
	require.NotZero(t, port)
	let("a host's port to lead to a login pod", host, port)

	const balancer = "198.51.100.7"
	p.editLoginSet(func(s *v1alpha1.LoginSet) {
		s.Spec.Service = v1alpha1.LoginService{Type: corev1.ServiceTypeLoadBalancer, Port: 2200, LoadBalancerSourceRanges: []string{"0.0.0.0/0"}}
	})
	made := service(corev1.ServiceTypeLoadBalancer)
	made.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancer}}
	_, err = services.UpdateStatus(p.ctx, made, metav1.UpdateOptions{})
	require.NoError(t, err)
	let("the load balancer to lead to a login pod", balancer, 2200)
	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.Service.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} })
	p.eventually("others than those of its networks to be kept out", func() (bool, string) {
		err := reached(balancer, 2200)
		return err != nil && strings.Contains(err.Error(), "ssh: connect to host"), fmt.Sprint(err) // nobody lets it in, or knows the way
	})
	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.Service.LoadBalancerSourceRanges = nil })
	let("everybody to be let in again", balancer, 2200)

	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.Service = v1alpha1.LoginService{} })
	assert.Zero(t, service(corev1.ServiceTypeClusterIP).Spec.Ports[0].NodePort)
	let("the Service's own name to lead to a login pod again", "tide-login", 22)
}

func (p *plane) testLoginRefused(t *testing.T) {
	for user, key := range map[string]string{"alice": "stranger", "root": "admin", "nobody": "alice", "slurm": "alice"} {
		_, err := p.ssh(user, key, "id")
		require.ErrorContains(t, err, "Permission denied (publickey)", user)
	}
	// Root comes with a key of its own, once that is given.
	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.RootSSHAuthorizedKeys = p.slurm("cat", "/tmp/admin.pub") })
	p.eventually("root to be let in", func() (bool, string) {
		out, err := p.ssh("root", "admin", "id -u")
		return err == nil && out == "0", fmt.Sprint(out, err)
	})
	_, err := p.ssh("root", "alice", "id")
	require.ErrorContains(t, err, "Permission denied (publickey)")
}

func (p *plane) testLoginJobs(t *testing.T) {
	p.waitZero("cpu-[0-2]")
	began := time.Now()
	id := submitted.FindString(p.alice("sbatch --parsable -N2 --ntasks-per-node=1 --output=out.txt --wrap='srun -l id -u; id -G; hostname; pwd'"))
	require.NotEmpty(t, id)
	p.waitJob(id, "COMPLETED")
	t.Logf("alice's 2-node job from zero: %v", time.Since(began).Round(100*time.Millisecond))
	out := p.alice("cat out.txt")
	for _, want := range []string{"0: 2001", "1: 2001", "2001 3001", "cpu-0", "/home/alice"} {
		assert.Contains(t, out, want)
	}
	assert.Equal(t, "UserId=alice(2001)", p.alice("scontrol show job "+id+" | grep -o UserId=[^[:space:]]*"), "slurmctld has only the number")
	assert.Equal(t, "2001", p.alice("srun -N1 id -u"), "nodes reach srun in the login pod")
	held := submitted.FindString(p.alice("sbatch --parsable --hold --wrap=true"))
	p.alice("scancel " + held)
	p.waitJob(held, "CANCELLED")
	mine := p.sbatch("true", "--hold")
	_, err := p.ssh("alice", "alice", "scancel "+mine)
	require.ErrorContains(t, err, "Access/permission denied", "that job is not hers")
	p.slurm("scancel", mine)
}

// testLoginRights looks at what whoever is in the pod can do there.
func (p *plane) testLoginRights(t *testing.T) {
	status := p.alice("grep -E '^(CapPrm|CapEff|NoNewPrivs):' /proc/self/status | tr -s '\\t' ' '")
	assert.Equal(t, "CapPrm: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1", status)
	for _, file := range []string{"/etc/slurmtide/host-keys/ssh_host_ed25519_key", "/etc/shadow"} {
		_, err := p.ssh("alice", "alice", "cat "+file)
		require.ErrorContains(t, err, "Permission denied", file)
	}
	for _, command := range []string{"test -e /etc/slurmtide/keys", "touch /run/slurm/x", "test -e /var/run/secrets"} {
		_, err := p.ssh("alice", "alice", command)
		require.Error(t, err, command)
	}
	pod := p.loginPods()[0].Name
	out, _, err := p.ExecPod(p.ctx, pod, nil, "sackd", "/bin/sh", "-c", "id -u; grep CapBnd /proc/self/status | tr -s '\\t' ' '")
	require.NoError(t, err)
	assert.Equal(t, "64030\nCapBnd: 0000000000000000\n", out)
}

// hash tells whether the login pod's slurm.conf is slurmctld's.
func (p *plane) hash() string {
	p.t.Helper()
	return p.alice("scontrol show config | sed -n 's/^HASH_VAL *= //p'")
}

func (p *plane) testLoginConfig(t *testing.T) {
	before := p.loginContainers()
	require.Len(t, before, 1)
	p.createConfigMap("site", map[string]string{"more.conf": "MaxJobCount=4321\n", "cli_filter.lua": filter, "job_submit.lua": p.noUserEnv()})
	c := p.controller()
	c.Spec.ExtraConf = "SuspendTime=6\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\nInclude more.conf\nCliFilterPlugins=cli_filter/lua\nScronParameters=enable\nJobSubmitPlugins=lua\n"
	c.Spec.ConfigFileRefs = []v1alpha1.ObjectRef{{Name: "site"}}
	_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
	require.NoError(t, err)
	p.waitInForce()
	began := time.Now()
	p.eventually("the login pod to have it", func() (bool, string) {
		out := p.alice("grep -E '^SuspendTime=' /run/slurm/conf/slurm.conf; cat /run/slurm/conf/more.conf")
		return out == "SuspendTime=6\nMaxJobCount=4321", out
	})
	t.Logf("%v later it is in the login pod", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, "Match", p.hash())
	assert.Contains(t, p.alice("scontrol show config | grep -E '^(SuspendTime|MaxJobCount) '"), "6 sec")

	// sbatch asks the filter.
	_, err = p.ssh("alice", "alice", "sbatch --job-name=forbidden --wrap=true")
	require.ErrorContains(t, err, "no job is called so here")
	held := submitted.FindString(p.alice("sbatch --parsable --hold --wrap=true"))
	assert.Equal(t, "filtered", p.jobField(held, "Comment"))
	p.alice("scancel " + held)
	// testScrontab looks what became of it.
	p.alice(`printf '#SCRON --output=cron.txt\n* * * * * hostname\n' >cron.tab && scrontab cron.tab`)

	// An old one, as a sackd has it that slurmctld could not reach, is mended.
	pod := p.loginPods()[0].Name
	_, stderr, err := p.ExecPod(p.ctx, pod, nil, "sackd", "sed", "-i", "s/^SuspendTime=6/SuspendTime=60/", "/run/slurm/conf/slurm.conf")
	require.NoError(t, err, stderr)
	assert.Contains(t, p.hash(), "Different")
	began = time.Now()
	p.within(3*time.Minute, time.Second, "sackd to fetch it again", func() (bool, string) {
		out, err := p.ssh("alice", "alice", "scontrol show config | sed -n 's/^HASH_VAL *= //p'") // sackd may be away just now
		return err == nil && out == "Match", fmt.Sprint(out, err)
	})
	t.Logf("mended after %v", time.Since(began).Round(time.Second))
	assert.Equal(t, before, p.loginContainers(), "sessions live")
}

// noUserEnv is the job_submit.lua of docs/troubleshooting.md: without it a crontab's job ends slurmd in a pod.
func (p *plane) noUserEnv() string {
	p.t.Helper()
	text, err := os.ReadFile("../../docs/examples/job_submit.lua")
	require.NoError(p.t, err)
	return string(text)
}

// testScrontab waits until what alice has written into her crontab has run.
func (p *plane) testScrontab(t *testing.T) {
	assert.Contains(t, p.alice("scrontab -l"), "* * * * * hostname")
	p.within(3*time.Minute, time.Second, "the job to run", func() (bool, string) {
		out, err := p.ssh("alice", "alice", "cat cron.txt")
		return err == nil && strings.Contains(out, "cpu-"), fmt.Sprint(out, err)
	})
	p.alice("scrontab -r")
	assert.Empty(t, p.alice("squeue -h --me"))
}

// testLoginBadConfig sees that pods stay when new ones would not start.
func (p *plane) testLoginBadConfig(t *testing.T) {
	before := p.loginContainers()
	p.editLoginSet(func(s *v1alpha1.LoginSet) { s.Spec.ExtraSshdConfig = "Nonsense yes\n" })
	p.eventually("it to be told", func() (bool, string) {
		one := meta.FindStatusCondition(p.loginSet("tide").Status.Conditions, v1alpha1.ConditionAvailable)
		return one.Status == metav1.ConditionTrue && strings.Contains(one.Message, "ends again and again") && strings.Contains(one.Message, "Bad configuration option: Nonsense"), one.Message
	})
	assert.Equal(t, "alice", p.alice("id -un"))
	assert.Subset(t, p.loginContainers(), before)
	// The user's lines come first, and a Match block of theirs does not swallow ours.
	p.editLoginSet(func(s *v1alpha1.LoginSet) {
		s.Spec.ExtraSshdConfig = "PermitRootLogin no\nMatch User alice\n  SetEnv SITE=here\n"
	})
	p.eventually("new pods", func() (bool, string) {
		out, err := p.ssh("alice", "alice", "echo $SITE")
		return err == nil && out == "here", fmt.Sprint(out, err)
	})
	p.waitLogin("Answers", "1 of 1 let users in")
	p.eventually("the old pod to go", func() (bool, string) { return len(p.loginPods()) == 1, "" })
	_, err := p.ssh("root", "admin", "id")
	require.ErrorContains(t, err, "Permission denied (publickey)")
}

func (p *plane) testLoginHostKey(t *testing.T) {
	secret, err := p.kube.CoreV1().Secrets(p.ns).Get(p.ctx, "tide-login-host-keys", metav1.GetOptions{})
	require.NoError(t, err)
	before := p.loginPods()[0]
	require.NoError(t, p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, before.Name, metav1.DeleteOptions{}))
	p.eventually("the pod to go", func() (bool, string) {
		pods := p.loginPods()
		return len(pods) == 1 && pods[0].UID != before.UID, fmt.Sprint(len(pods))
	})
	p.waitLogin("Answers", "1 of 1 let users in")
	assert.Equal(t, "alice", p.alice("id -un"), "the host is the one she knows")
	after, err := p.kube.CoreV1().Secrets(p.ns).Get(p.ctx, "tide-login-host-keys", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, secret.Data, after.Data)
	assert.Equal(t, secret.ResourceVersion, after.ResourceVersion)
}

func (p *plane) testLoginScale(t *testing.T) {
	runKubectl(t, "-n", p.ns, "scale", "loginset", "tide", "--replicas=2")
	p.waitLogin("Answers", "2 of 2 let users in")
	scale := runKubectl(t, "-n", p.ns, "get", "--raw", "/apis/slurmtide.io/v1alpha1/namespaces/"+p.ns+"/loginsets/tide/scale")
	assert.Contains(t, scale, `"status":{"replicas":2,"selector":"`)
	met := map[string]bool{}
	p.eventually("both to be met", func() (bool, string) {
		met[p.alice("hostname")] = true // both have the key that she knows
		return len(met) == 2, fmt.Sprint(met)
	})
	runKubectl(t, "-n", p.ns, "scale", "loginset", "tide", "--replicas=1")
	p.eventually("one to go", func() (bool, string) { return len(p.loginPods()) == 1, "" })
	p.waitLogin("Answers", "1 of 1 let users in")
}

// testLoginKeyGoes takes alice's key away. Nothing is written for it: the kubelet brings the ConfigMap.
func (p *plane) testLoginKeyGoes(t *testing.T) {
	before, writes := p.loginContainers(), p.writes()
	m, err := p.kube.CoreV1().ConfigMaps(p.ns).Get(p.ctx, "keys", metav1.GetOptions{})
	require.NoError(t, err)
	m.Data = map[string]string{"alice": p.slurm("cat", "/tmp/stranger.pub") + "\n"}
	_, err = p.kube.CoreV1().ConfigMaps(p.ns).Update(p.ctx, m, metav1.UpdateOptions{})
	require.NoError(t, err)
	began := time.Now()
	p.within(3*time.Minute, time.Second, "the key to be refused", func() (bool, string) {
		_, err := p.ssh("alice", "alice", "true")
		return err != nil && strings.Contains(err.Error(), "Permission denied (publickey)"), fmt.Sprint(err)
	})
	t.Logf("refused after %v", time.Since(began).Round(time.Second))
	out, err := p.ssh("alice", "stranger", "id -un")
	require.NoError(t, err)
	assert.Equal(t, "alice", out)
	assert.Equal(t, before, p.loginContainers())
	assert.Equal(t, writes, p.writes())
}

// writes is what the daemon has written so far.
func (p *plane) writes() (lines string) {
	p.t.Helper()
	daemon := runKubectl(p.t, "-n", "slurmtide-system", "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
	metrics := runKubectl(p.t, "get", "--raw", "/api/v1/namespaces/slurmtide-system/pods/"+daemon+":9444/proxy/metrics")
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "slurmtide_controller_writes_total") && !strings.Contains(line, `"events"`) { // how often one was seen is written minutes later
			lines += line
		}
	}
	require.NotEmpty(p.t, lines)
	return lines
}

func (p *plane) testLoginDeleted(*testing.T) {
	require.NoError(p.t, p.tide.SlurmtideV1alpha1().LoginSets(p.ns).Delete(p.ctx, "tide", metav1.DeleteOptions{}))
	p.eventually("all of it to go", func() (bool, string) {
		left := runKubectl(p.t, "-n", p.ns, "get", "deployments,services,configmaps,secrets,pods", "-l", loginSelector, "-o", "name")
		return left == "", left
	})
}
