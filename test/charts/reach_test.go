//go:build charts

package charts

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/pods"
	kuberender "github.com/slurmtide/slurmtide/kube/render"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// outside is no pod: the API server, a login host, anybody else.
const outside, outsideIP = "outside", "192.0.2.1"

// anyPort is one that nobody has by name; steps of jobs listen on such.
const anyPort = 60001

// neighborhood is a Kubernetes with pods and policies, and a NetworkPolicy engine that clusters use. The pods are those that the charts and our code make.
type neighborhood struct {
	informers informers.SharedInformerFactory // without a client, and never started: stores alone
	engine    *networkpolicy.PolicyEngine
	ips       map[string]string // by namespace/name
	ports     map[int]bool      // all that containers name
	objects   map[string]string // what the charts gave, by namespace
}

func newNeighborhood() *neighborhood {
	n := &neighborhood{informers: informers.NewSharedInformerFactory(nil, 0), ips: map[string]string{outside: outsideIP}, objects: map[string]string{}}
	n.ports = map[int]bool{22: true, 6818: true, anyPort: true}
	namespaces, all := n.informers.Core().V1().Namespaces(), n.informers.Core().V1().Pods()
	policies := networkpolicy.NewStandardNetworkPolicy("host", namespaces, all, n.informers.Networking().V1().NetworkPolicies())
	n.engine = networkpolicy.NewPolicyEngine(podinfo.NewInformerProvider(all, namespaces, nil, nil), []api.PolicyEvaluator{policies})
	return n
}

// add is a pod, of a template if it has one.
func (n *neighborhood) add(t *testing.T, namespace, name string, template corev1.PodTemplateSpec) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: template.Labels}, Spec: template.Spec}
	require.False(t, pod.Spec.HostNetwork, "policies are not for the host's network")
	require.NotContains(t, n.ips, namespace+"/"+name)
	ip := fmt.Sprintf("10.0.0.%d", len(n.ips))
	n.ips[namespace+"/"+name] = ip
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			n.ports[int(port.ContainerPort)] = true
		}
	}
	require.NoError(t, n.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	about := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{corev1.LabelMetadataName: namespace}}} // as the API server does
	require.NoError(t, n.informers.Core().V1().Namespaces().Informer().GetIndexer().Add(about))
}

// install does what Helm, the controller and the bridge do with a release.
func (n *neighborhood) install(t *testing.T, chart, release, namespace, values string) {
	t.Helper()
	out, said, err := renderAs(t, chart, release, namespace, values)
	require.NoError(t, err, said)
	for _, object := range decode(t, out) {
		switch o := object.(type) {
		case *networkingv1.NetworkPolicy:
			require.NoError(t, n.informers.Networking().V1().NetworkPolicies().Informer().GetIndexer().Add(o))
		case *appsv1.Deployment:
			n.add(t, namespace, o.Name, o.Spec.Template)
		case *corev1.Pod:
			n.add(t, namespace, o.Name, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
		case *v1alpha1.NodeSet:
			names, err := slurmconf.ParseHostlist(o.Spec.NodeNames)
			require.NoError(t, err)
			for node := range names.All() {
				pod, err := pods.Build(o, node, 1, "request", pods.PodOptions{Cluster: o.Spec.ClusterRef.Name})
				require.NoError(t, err)
				n.add(t, namespace, pod.Name, corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
			}
		}
	}
	n.objects[namespace] += "\n---\n" + out
	if chart != "slurm" {
		return
	}
	in := kuberender.Input{Secrets: []*corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: namespace}, Data: map[string][]byte{"password": []byte("a")}}}}
	require.NoError(t, in.Read(chart, strings.NewReader(n.objects[namespace]), namespace))
	require.NoError(t, in.Select(release))
	objects, _, err := in.Kube(namespace, controlplane.Settings{Image: "slurmtide", ClusterDomain: "cluster.local", BridgeRole: "bridge"})
	require.NoError(t, err)
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.StatefulSet:
			for i := range *cmp.Or(o.Spec.Replicas, new(int32(1))) {
				name := fmt.Sprintf("%s-%d", o.Name, i)
				if n.ips[namespace+"/"+name] == "" { // a slurmdbd may be that of an earlier release
					n.add(t, namespace, name, o.Spec.Template)
				}
			}
		case *appsv1.Deployment:
			n.add(t, namespace, o.Name, o.Spec.Template)
		}
	}
}

// reach says whether a connection is let through, by the policies of both ends.
func (n *neighborhood) reach(t *testing.T, from, to string, port int) bool {
	t.Helper()
	require.Contains(t, n.ips, from)
	require.Contains(t, n.ips, to)
	through, err := n.engine.EvaluatePacket(t.Context(), &network.Packet{
		Family: corev1.IPv4Protocol, Proto: corev1.ProtocolTCP, SrcIP: net.ParseIP(n.ips[from]), SrcPort: 40000, DstIP: net.ParseIP(n.ips[to]), DstPort: port,
	})
	require.NoError(t, err)
	return through
}

// who are all that reach a port of a pod, without the pod itself.
func (n *neighborhood) who(t *testing.T, to string, port int) (all []string) {
	t.Helper()
	for _, from := range n.everybody() {
		if from != to && n.reach(t, from, to, port) {
			all = append(all, from)
		}
	}
	return all
}

func (n *neighborhood) everybody() []string { return slices.Sorted(maps.Keys(n.ips)) }

// in are the pods of a namespace.
func (n *neighborhood) in(namespace string) []string {
	return slices.DeleteFunc(n.everybody(), func(name string) bool { return !strings.HasPrefix(name, namespace+"/") })
}

// guests are who may come: the pod, its port (0 is each), and all that reach it.
type guests struct {
	to   string
	port int
	from []string
}

// only asserts that a pod is reached by those alone who are named, at the ports that are named. It is not counted that pods reach themselves.
func (n *neighborhood) only(t *testing.T, want []guests) {
	t.Helper()
	ports := map[string]map[int][]string{}
	for _, g := range want {
		if ports[g.to] == nil {
			ports[g.to] = map[int][]string{}
		}
		for port := range n.ports {
			if g.port == 0 || g.port == port {
				ports[g.to][port] = append(ports[g.to][port], g.from...)
			}
		}
		require.True(t, g.port == 0 || n.ports[g.port], "%s has no port %d", g.to, g.port)
	}
	for to, at := range ports {
		for port := range n.ports {
			expected := slices.DeleteFunc(slices.Clone(at[port]), func(from string) bool { return from == to })
			assert.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(expected))), n.who(t, to, port), "who reaches %s at %d", to, port)
		}
	}
}

// Who reaches what, by all that there is, and nobody else does: not strangers, not another cluster in the namespace, and not the same release in another one.
func TestReach(t *testing.T) {
	const (
		database = "accounting: {enabled: true, spec: {storageConfig: {host: db, passwordKeyRef: {name: db, key: password}}}}\n"
		users    = "loginSets: {login: {spec: {}}, web: {spec: {}}}\n"
		sets     = "nodeSets: {cpu: {spec: {nodeNames: 'cpu-[0-1]', shape: {cpus: 1, realMemory: 100}}}, dyn: {spec: {mode: Dynamic, nodeNames: dyn-0, shape: {cpus: 1, realMemory: 100}}}}\n"
		external = "external: {host: a}, slurmKeyRef: {name: a, key: b}, jwtKeyRef: {name: a, key: b}"
		other    = database + "loginSets: {other: {spec: {}}}\nnodeSets: {ebb: {spec: {nodeNames: ebb-0, shape: {cpus: 1, realMemory: 100}}}}\nnetworkPolicy: {enabled: true}\n"
		daemons  = `
scaler: {enabled: true, clusters: [{name: tide, namespace: slurm, slurmrestd: "http://tide-restapi.slurm:6820"}], tls: {secretName: tls}, externalMetrics: {enabled: true}}
exporter: {enabled: true, clusters: [{name: tide, slurmrestd: "http://tide-restapi.slurm:6820"}]}
`
		monitoring = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}"
		keda       = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: keda}}}"

		prometheus, operator = "monitoring/prometheus", "keda/keda-operator"
	)
	nodes := []string{"slurm/cpu-0", "slurm/cpu-1", "slurm/dyn-0"}
	logins := []string{"slurm/login-login", "slurm/web-login"}
	all := func(lists ...[]string) []string { return slices.Concat(lists...) }

	for name, test := range map[string]struct {
		slurm, slurmtide string
		want             func(*neighborhood) []guests
	}{
		"everything": {
			database + users + sets + "controller: {spec: {backups: 1, persistence: {accessModes: [ReadWriteMany]}, bridge: {page: {exposed: true}}}}\nmetrics: {slurmctld: {enabled: true}}\n" +
				"networkPolicy: {enabled: true, metricsFrom: [" + monitoring + "]}",
			daemons + "networkPolicy: {enabled: true, metricsFrom: [" + monitoring + "], kedaFrom: [" + keda + "]}",
			func(n *neighborhood) (want []guests) {
				controllers := []string{"slurm/tide-controller-0", "slurm/tide-controller-1"}
				clients := all(controllers, nodes, logins, []string{"slurm/tide-restapi", "slurm/tide-test"})
				for _, c := range controllers {
					want = append(want, guests{c, 6817, append(clients, "slurm/tide-accounting-0", prometheus)}, guests{c, 9441, []string{prometheus}}, guests{c, 9445, []string{prometheus}})
				}
				for _, node := range nodes {
					want = append(want, guests{node, 0, all(nodes, controllers, logins)})
				}
				for _, login := range logins { // there is no policy for them: sshd is for all, and steps of jobs come back to srun
					want = append(want, guests{login, 0, n.everybody()})
				}
				return append(want,
					guests{"slurm/tide-accounting-0", 6819, clients},
					guests{"slurm/tide-restapi", 6820, n.in("slurm")},
					guests{"slurmtide-system/slurmtide-controller", 9444, []string{prometheus}},
					guests{"slurmtide-system/slurmtide-scaler", 9442, []string{operator}},
					guests{"slurmtide-system/slurmtide-scaler", 9443, all(controllers, []string{"slurm/ebb-controller-0", prometheus})}, // for their pages
					guests{"slurmtide-system/slurmtide-scaler", 6443, n.everybody()},                                                    // the API server is no pod
					guests{"slurmtide-system/slurmtide-exporter-tide", 9446, []string{prometheus}},
				)
			},
		},
		"least": {
			sets + "networkPolicy: {enabled: true}",
			"networkPolicy: {enabled: true}\nscaler: {enabled: true, clusters: [{name: tide, slurmrestd: a}]}",
			func(n *neighborhood) (want []guests) {
				for _, node := range nodes {
					want = append(want, guests{node, 0, append(slices.Clone(nodes), "slurm/tide-controller-0")})
				}
				return append(want,
					guests{"slurm/tide-controller-0", 6817, append(slices.Clone(nodes), "slurm/tide-restapi", "slurm/tide-test")},
					guests{"slurm/tide-controller-0", 9441, n.everybody()},
					guests{"slurm/tide-restapi", 6820, n.in("slurm")},
					guests{"slurmtide-system/slurmtide-controller", 9444, n.everybody()},
					guests{"slurmtide-system/slurmtide-scaler", 9442, n.everybody()},
					guests{"slurmtide-system/slurmtide-scaler", 9443, n.everybody()},
				)
			},
		},
		"named": { // peers of one's own, Prometheus without slurmctld's metrics, and a slurmdbd of another release
			users + sets + "controller: {spec: {accountingRef: {name: ebb}}}\n" + `
networkPolicy:
  enabled: true
  slurmFrom: [{ipBlock: {cidr: 192.0.2.0/24}}, {podSelector: {matchLabels: {role: login}}}]
  metricsFrom: [` + monitoring + `]
  restApiFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: slurmtide-system}}, podSelector: {matchLabels: {app.kubernetes.io/name: slurmtide}}}]
`,
			daemons + "controller: {namespaces: [slurm, other]}\nnetworkPolicy: {enabled: true, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}",
			func(n *neighborhood) (want []guests) {
				named := []string{outside, "slurm/host"}
				for _, node := range nodes {
					want = append(want, guests{node, 0, all(nodes, logins, named, []string{"slurm/tide-controller-0"})})
				}
				return append(want,
					guests{"slurm/tide-controller-0", 6817, all(nodes, logins, named, []string{"slurm/tide-restapi", "slurm/tide-test", "slurm/ebb-accounting-0"})},
					guests{"slurm/tide-controller-0", 9441, []string{prometheus}},
					// Who else uses a slurmdbd has to be named where it is.
					guests{"slurm/ebb-accounting-0", 6819, []string{"slurm/ebb-controller-0", "slurm/ebb-0", "slurm/other-login", "slurm/ebb-restapi", "slurm/ebb-test"}},
					guests{"slurm/tide-restapi", 6820, []string{
						"slurmtide-system/slurmtide-scaler", "slurmtide-system/slurmtide-exporter-tide",
						"slurmtide-system/slurmtide-controller-slurm", "slurmtide-system/slurmtide-controller-other", "slurm/tide-test",
					}},
					guests{"slurmtide-system/slurmtide-controller-slurm", 9444, n.everybody()},
					guests{"slurmtide-system/slurmtide-controller-other", 9444, n.everybody()},
					// Daemons are all that the policies of egress are for.
					guests{outside, 0, append(n.in("slurm"), all(n.in("elsewhere"), n.in("monitoring"), n.in("keda"), []string{"slurmtide-system/stranger"})...)},
				)
			},
		},
		"slurmctld and slurmdbd elsewhere": {
			users + sets + "controller: {spec: {" + external + "}}\naccounting: {enabled: true, spec: {" + external + "}}\nnetworkPolicy: {enabled: true, slurmFrom: [{ipBlock: {cidr: 192.0.2.1/32}}]}",
			"",
			func(n *neighborhood) (want []guests) {
				for _, node := range nodes {
					want = append(want, guests{node, 0, append(all(nodes, logins), outside)})
				}
				return append(want, guests{"slurm/tide-restapi", 6820, n.in("slurm")})
			},
		},
		"slurmdbd elsewhere": {
			sets + "accounting: {enabled: true, spec: {" + external + "}}\nnetworkPolicy: {enabled: true, slurmFrom: [{ipBlock: {cidr: 192.0.2.1/32}}]}",
			"",
			func(n *neighborhood) []guests {
				return []guests{
					{"slurm/tide-controller-0", 6817, append(slices.Clone(nodes), outside, "slurm/tide-restapi", "slurm/tide-test")},
					{"slurm/tide-controller-0", 9441, n.everybody()},
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighborhood()
			for _, namespace := range []string{"slurm", "elsewhere"} {
				n.install(t, "slurm", "ebb", namespace, other)
				n.install(t, "slurm", "tide", namespace, test.slurm)
			}
			n.install(t, "slurmtide", "slurmtide", "slurmtide-system", test.slurmtide)
			for _, pod := range []string{"slurm/stranger", "elsewhere/stranger", "slurmtide-system/stranger", prometheus, operator} {
				namespace, name, _ := strings.Cut(pod, "/")
				n.add(t, namespace, name, corev1.PodTemplateSpec{})
			}
			for _, namespace := range []string{"slurm", "elsewhere"} { // the same in another namespace is not meant
				n.add(t, namespace, "host", corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"role": "login"}}})
			}
			n.only(t, test.want(n))
		})
	}
}
