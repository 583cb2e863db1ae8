package main

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// component is one process of the cluster, started and restarted by the init
// process. Paths in it are those of the cluster's mount namespace.
type component struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// After names what must answer first: "tcp:<address>" or "unix:<path>" that
	// accepts a connection, or "https:<address>", whose /readyz must say 200.
	After []string `json:"after,omitempty"`
}

// Sockets and files that several components share.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	etcdAddr         = "127.0.0.1:2379"
	auditLog         = "audit.log" // beside the components' logs; older parts are audit-<time>.log
)

// components are the cluster's processes in the order of dependence.
func components(p Plan, tool func(string) string) []component {
	pki := func(name string) string { return p.inState("pki", name) }
	conf := func(name string) string { return p.inState("conf", name) }
	apiserver := []string{"https:" + p.NodeAddr().String() + ":6443"}
	return []component{
		{Name: "etcd", Argv: []string{
			tool("etcd"), "--name=default", "--data-dir=" + p.inState("etcd"),
			"--listen-client-urls=http://" + etcdAddr, "--advertise-client-urls=http://" + etcdAddr,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380", "--auto-compaction-retention=1", "--quota-backend-bytes=4294967296",
			// The cluster's state dies with the cluster: waiting for the disk buys nothing.
			"--unsafe-no-fsync", "--log-level=warn",
		}},
		{Name: "containerd", Argv: []string{tool("containerd"), "--config", conf("containerd.toml")}},
		{Name: "kube-apiserver", After: []string{"tcp:" + etcdAddr}, Argv: []string{
			tool("kube-apiserver"),
			"--etcd-servers=http://" + etcdAddr,
			"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address=" + p.NodeAddr().String(),
			"--service-cluster-ip-range=" + p.ServiceCIDR().String(),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"),
			"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("service-account.pub"), "--service-account-signing-key-file=" + pki("service-account.key"),
			"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + pki("front-proxy-client.crt"), "--proxy-client-key-file=" + pki("front-proxy-client.key"),
			"--profiling=false",
			// What service accounts did, for hack/rights. 400 MiB are several hours of the integration suite.
			"--audit-policy-file=" + conf("audit.yaml"), "--audit-log-path=" + p.inState("logs", auditLog),
			"--audit-log-maxsize=100", "--audit-log-maxbackup=3",
		}},
		{Name: "kube-controller-manager", After: apiserver, Argv: []string{
			tool("kube-controller-manager"),
			"--kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--authentication-kubeconfig=" + pki("controller-manager.kubeconfig"), "--authorization-kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + pki("service-account.key"), "--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
			// The CNI configuration names the pod range; nodes that only pretend (kwok) need none.
			"--allocate-node-cidrs=false", "--kube-api-qps=100", "--kube-api-burst=200", "--profiling=false",
			// The kubelet's (kubelet.yaml); the default lies in the host's /usr/libexec, and is created.
			"--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
		}},
		{Name: "kube-scheduler", After: apiserver, Argv: []string{
			tool("kube-scheduler"), "--config=" + conf("scheduler.yaml"), "--bind-address=127.0.0.1",
			"--authentication-kubeconfig=" + pki("scheduler.kubeconfig"), "--authorization-kubeconfig=" + pki("scheduler.kubeconfig"),
		}},
		{Name: "kubelet", After: append([]string{"unix:" + containerdSocket}, apiserver...), Argv: []string{
			tool("kubelet"), "--config=" + conf("kubelet.yaml"), "--kubeconfig=" + pki("kubelet.kubeconfig"),
			"--hostname-override=" + p.Name, "--node-ip=" + p.NodeAddr().String(),
		}},
		{Name: "kube-proxy", After: apiserver, Argv: []string{tool("kube-proxy"), "--config=" + conf("proxy.yaml")}},
		{Name: "coredns", After: apiserver, Argv: []string{tool("coredns"), "-conf", conf("Corefile")}},
		{Name: "gpu-plugin", After: []string{"unix:/var/lib/kubelet/device-plugins/kubelet.sock"}, Argv: []string{
			tool("gpuplugin"), p.inState("conf", "gpus"),
		}},
	}
}

// configFiles renders every configuration file, by name below conf/.
func configFiles(p Plan) map[string]string {
	r := strings.NewReplacer(
		"{{name}}", p.Name,
		"{{node}}", p.NodeAddr().String(),
		"{{server}}", p.Server(),
		"{{pods}}", p.PodCIDR().String(),
		"{{dns}}", p.DNSAddr().String(),
		"{{pki}}", p.inState("pki"),
		"{{conf}}", p.inState("conf"),
		"{{cgroup}}", p.CgroupParent(),
		"{{pause}}", pauseImage,
		"{{socket}}", containerdSocket,
	)
	files := map[string]string{}
	for name, text := range configTemplates {
		files[name] = r.Replace(text)
	}
	return files
}

func renderKubeconfig(p Plan, ca, cert, key []byte) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
`, p.Name, p.Server(), b64(ca), b64(cert), b64(key))
}
