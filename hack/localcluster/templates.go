package main

// configTemplates are the components' configuration files and what is applied
// to the apiserver once it answers. {{x}} is filled in by configFiles.
var configTemplates = map[string]string{
	"containerd.toml": `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.nri.v1.nri",
]

[grpc]
  address = "{{socket}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

# Containers' file systems die with the cluster: syncing the disk when one is
# unmounted would only make pods wait.
[plugins."io.containerd.snapshotter.v1.overlayfs"]
  mount_options = ["volatile"]

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{pause}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{conf}}/registries"

[plugins."io.containerd.cri.v1.runtime"]
  # Machines without CAP_SYS_RESOURCE may not lower oom_score_adj.
  restrict_oom_score_adj = true
  # A profile would stay in the kernel after the cluster.
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{{conf}}/cni"
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
`,

	// Every registry is a closed port: an image that was not loaded fails at
	// once instead of after a time-out.
	"registries/_default/hosts.toml": `server = "http://127.0.0.1:1"

[host."http://127.0.0.1:1"]
  capabilities = ["pull", "resolve"]
`,

	"cni/10-slurmtide.conflist": `{
  "cniVersion": "1.0.0",
  "name": "slurmtide",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": "{{pods}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`,

	"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{node}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{pki}}/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: {{pki}}/kubelet-server.crt
tlsPrivateKeyFile: {{pki}}/kubelet-server.key
containerRuntimeEndpoint: unix://{{socket}}
cgroupDriver: cgroupfs
cgroupRoot: {{cgroup}}
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
localStorageCapacityIsolation: false
clusterDomain: cluster.local
clusterDNS: [{{dns}}]
resolvConf: {{conf}}/resolv.conf
maxPods: 250
podsPerCore: 0
kubeAPIQPS: 100
kubeAPIBurst: 200
eventRecordQPS: 100
eventBurst: 200
serializeImagePulls: false
# Tests kill containers over and over: start them again at once, not after minutes.
featureGates: {KubeletCrashLoopBackOffMax: true}
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
# Loaded images cannot be had again from anywhere: never evict for disk, never collect images.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
volumeStatsAggPeriod: -1s
volumePluginDir: /var/lib/kubelet/volume-plugins
podLogsDir: /var/log/pods
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
`,

	"scheduler.yaml": `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: {{pki}}/scheduler.kubeconfig, qps: 100, burst: 200}
`,

	// One line for each request of a service account; watches have one when they begin, too, since some never end.
	// Not those of the controller manager's own: they would be most of it.
	"audit.yaml": `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
- {level: None, nonResourceURLs: ["*"]}
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
`,

	"proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: {{pki}}/proxy.kubeconfig}
hostnameOverride: {{name}}
clusterCIDR: {{pods}}
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
iptables: {minSyncPeriod: 100ms, syncPeriod: 5m}
# The host's connection table is not ours to size.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`,

	// Names outside the cluster are denied at once: there is no network behind
	// it, and a program that waits for a name (slurmctld 24.11) stalls.
	"Corefile": `.:53 {
  bind {{dns}}
  errors
  health 127.0.0.1:8080
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig {{pki}}/coredns.kubeconfig
    pods insecure
    ttl 0
  }
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
`,

	// What pods with dnsPolicy Default get.
	"resolv.conf": "nameserver {{dns}}\n",

	// What commands started with "localcluster ns" see as /etc/resolv.conf.
	"ns-resolv.conf": `search default.svc.cluster.local svc.cluster.local cluster.local
nameserver {{dns}}
options timeout:2 attempts:2
`,

	"manifests.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: system:coredns}
---
# CoreDNS listens on this address itself, without kube-proxy between; the
# service keeps the address taken and gives it its usual name.
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {k8s-app: kube-dns, service.kubernetes.io/service-proxy-name: none}
spec:
  clusterIP: {{dns}}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
`,
}
