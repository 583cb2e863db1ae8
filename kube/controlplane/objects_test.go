package controlplane

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func manifests(t *testing.T, objects []Object) string {
	t.Helper()
	text := ""
	for _, o := range objects {
		m, err := asJSON(o)
		require.NoError(t, err)
		one, err := yaml.Marshal(m)
		require.NoError(t, err)
		text += "---\n" + string(one)
	}
	return text
}

// Whole objects, in testdata.
func TestObjects(t *testing.T) {
	tests := map[string]*v1alpha1.Controller{
		"plain": controller(nil),
		"full": controller(func(c *v1alpha1.Controller) {
			c.Spec.ClusterName = "tide_1"
			c.Spec.SlurmKeyRef = &v1alpha1.KeyRef{Name: "keys", Key: "auth"}
			c.Spec.JWTKeyRef = &v1alpha1.KeyRef{Name: "keys", Key: "jwt"}
			c.Spec.Slurmctld.Args = []string{"-v"}
			c.Spec.Slurmctld.Env = []corev1.EnvVar{{Name: "TZ", Value: "Europe/Berlin"}}
			c.Spec.Slurmctld.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
			c.Spec.Bridge = &v1alpha1.BridgeOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "mirror/slurmtide:1", Args: []string{"--log-format=json"}}}
			c.Spec.Bridge.Page = &v1alpha1.BridgePage{Exposed: true, Scaler: "https://slurmtide-scaler.slurmtide-system:9443", ScalerTLS: &v1alpha1.ClientTLS{SecretName: "scaler"}}
			c.Spec.Bridge.Tracing = &v1alpha1.BridgeTracing{Endpoint: "http://collector:4318", HeadersRef: &v1alpha1.KeyRef{Name: "collector", Key: "headers"}}
			c.Spec.Template.Metadata = v1alpha1.PodMetadata{Labels: map[string]string{"team": "hpc"}, Annotations: map[string]string{"note": "x"}}
			c.Spec.Template.Spec = v1alpha1.PodSpecOptions{
				NodeSelector: map[string]string{"pool": "control"}, PriorityClassName: "high", HostUsers: new(false),
				Tolerations:      []corev1.Toleration{{Key: "control", Operator: corev1.TolerationOpExists}},
				ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
				SecurityContext:  &v1alpha1.PodSecurityOptions{RunAsUser: new(int64(401)), RunAsGroup: new(int64(401))},
			}
			c.Spec.Persistence = v1alpha1.Persistence{StorageClassName: new("fast"), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
			}}
		}),
		"claim": controller(func(c *v1alpha1.Controller) {
			c.Spec.Persistence = v1alpha1.Persistence{ExistingClaim: "state"}
			c.Spec.Bridge = &v1alpha1.BridgeOptions{Enabled: new(false)}
		}),
		"backups": controller(func(c *v1alpha1.Controller) {
			c.Spec.Backups = 1
			c.Spec.Persistence = v1alpha1.Persistence{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
		}),
		"external": controller(func(c *v1alpha1.Controller) {
			c.Spec = v1alpha1.ControllerSpec{External: &v1alpha1.ExternalController{Host: "head.example.com"}}
		}),
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := ControllerObjects(c, map[string]string{"slurm.conf": "ClusterName=tide\n"}, settings)
			require.NoError(t, err)
			golden.Compare(t, "testdata/"+name+".yaml", manifests(t, objects))
		})
	}
}

func TestRestApiObjects(t *testing.T) {
	r := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm", UID: "uid-of-restapi"}, Spec: v1alpha1.RestApiSpec{
		ControllerRef: v1alpha1.ObjectRef{Name: "tide"}, Replicas: new(int32(2)),
	}}
	objects, err := RestApiObjects(r, controller(nil), nil, settings)
	require.NoError(t, err)
	golden.Compare(t, "testdata/restapi.yaml", manifests(t, objects))

	_, err = RestApiObjects(r, controller(func(c *v1alpha1.Controller) { c.Spec.Slurmctld = nil }), nil, settings)
	require.EqualError(t, err, "spec.slurmrestd.image is missing, and Controller tide names no image: name one with slurmrestd")
}

// By LabelCluster the bridge knows the pods that it may delete.
func TestNoPodLooksLikeANode(t *testing.T) {
	objects, err := ControllerObjects(controller(nil), nil, settings)
	require.NoError(t, err)
	for _, o := range objects {
		assert.NotContains(t, o.GetLabels(), v1alpha1.LabelCluster)
	}
	assert.NotContains(t, controllerLabels(controller(nil)), v1alpha1.LabelCluster)
}

func TestContains(t *testing.T) {
	tests := map[string]struct {
		have, want string
		same       bool
	}{
		"defaults beside":        {`{"a": 1, "b": 2}`, `{"a": 1}`, true},
		"a value":                {`{"a": 1}`, `{"a": 2}`, false},
		"missing":                {`{}`, `{"a": 1}`, false},
		"deep":                   {`{"a": [{"b": 1, "c": 2}]}`, `{"a": [{"b": 1}]}`, true},
		"deep value":             {`{"a": [{"b": 1, "c": 2}]}`, `{"a": [{"b": 2}]}`, false},
		"a longer list":          {`{"a": [1, 2]}`, `{"a": [1]}`, false},
		"an empty object is one": {`{"a": {"b": 1}}`, `{"a": {}}`, true},
		"or none":                {`{}`, `{"a": {}}`, true},
		"an empty list is none":  {`{}`, `{"a": []}`, true},
		"another type":           {`{"a": "1"}`, `{"a": {"b": 1}}`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var have, want any
			require.NoError(t, yaml.Unmarshal([]byte(test.have), &have))
			require.NoError(t, yaml.Unmarshal([]byte(test.want), &want))
			assert.Equal(t, test.same, contains(have, want))
		})
	}
}

// overTheWire is an object as client-go's informers get it: in protobuf, which does not tell kinds within objects.
func overTheWire(t *testing.T, o Object) Object {
	t.Helper()
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var b bytes.Buffer
	require.NoError(t, codec.Encode(o, &b))
	back, _, err := codec.Decode(b.Bytes(), nil, nil)
	require.NoError(t, err)
	same, ok := back.(Object)
	require.True(t, ok)
	return same
}

func TestStamp(t *testing.T) {
	objects, err := ControllerObjects(controller(nil), map[string]string{"slurm.conf": "a"}, settings)
	require.NoError(t, err)
	require.Len(t, objects, 7)
	again, err := ControllerObjects(controller(nil), map[string]string{"slurm.conf": "a"}, settings)
	require.NoError(t, err)
	for i := range objects {
		want, hash, err := stamped(objects[i])
		require.NoError(t, err)
		_, same, err := stamped(again[i])
		require.NoError(t, err)
		assert.Equal(t, hash, same)
		live := overTheWire(t, objects[i])
		live.SetAnnotations(map[string]string{AnnotationApplied: hash, "somebody": "else"})
		ok, err := has(live, want)
		require.NoError(t, err)
		assert.True(t, ok, "%T %s", live, live.GetName())
	}
}

// What the bridge shows is its own concern: without the Secret slurmctld runs.
func TestBridgeTLS(t *testing.T) {
	for name, test := range map[string]struct {
		tls   *v1alpha1.ServerTLS
		flags []string
		keys  []string
	}{
		"none":          {},
		"a certificate": {&v1alpha1.ServerTLS{SecretName: "web"}, []string{"--tls-cert=/etc/slurmtide/tls/tls.crt", "--tls-key=/etc/slurmtide/tls/tls.key"}, []string{"tls.crt", "tls.key"}},
		"also clients'": {&v1alpha1.ServerTLS{SecretName: "web", ClientCA: true}, []string{"--tls-cert=/etc/slurmtide/tls/tls.crt", "--tls-key=/etc/slurmtide/tls/tls.key", "--tls-client-ca=/etc/slurmtide/tls/ca.crt"}, []string{"tls.crt", "tls.key", "ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := slurmctldPod(controller(func(c *v1alpha1.Controller) { c.Spec.Bridge = &v1alpha1.BridgeOptions{TLS: test.tls} }), settings)
			b := pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == ContainerBridge })]
			flags := slices.DeleteFunc(slices.Clone(b.Args), func(a string) bool { return !strings.HasPrefix(a, "--tls-") })
			assert.ElementsMatch(t, test.flags, flags)
			mounted := slices.ContainsFunc(b.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == bridgeTLSVolume && m.MountPath == bridgeTLSDir && m.ReadOnly
			})
			i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == bridgeTLSVolume })
			assert.Equal(t, test.tls != nil, mounted)
			require.Equal(t, test.tls != nil, i >= 0)
			if i < 0 {
				return
			}
			secret := pod.Volumes[i].Projected.Sources[0].Secret
			assert.Equal(t, "web", secret.Name)
			assert.True(t, *secret.Optional)
			var keys []string
			for _, item := range secret.Items {
				keys = append(keys, item.Path)
				assert.EqualValues(t, 0o440, *item.Mode, "others must not read the key")
			}
			assert.Equal(t, test.keys, keys)
		})
	}
}

// What the bridge asks the scaler with is likewise its own concern, and there only if it asks one.
func TestScalerTLS(t *testing.T) {
	page := func(tls *v1alpha1.ClientTLS) *v1alpha1.BridgePage {
		return &v1alpha1.BridgePage{Scaler: "https://s:1", ScalerTLS: tls}
	}
	off, none := page(&v1alpha1.ClientTLS{SecretName: "s"}), page(&v1alpha1.ClientTLS{SecretName: "s"})
	off.Enabled, none.Scaler = new(false), ""
	ca := []string{"--scaler-ca=/etc/slurmtide/scaler/ca.crt"}
	for name, test := range map[string]struct {
		page  *v1alpha1.BridgePage
		flags []string
		keys  []string
	}{
		"none":          {page(nil), nil, nil},
		"a CA":          {page(&v1alpha1.ClientTLS{SecretName: "s"}), ca, []string{"ca.crt"}},
		"a certificate": {page(&v1alpha1.ClientTLS{SecretName: "s", Certificate: true}), append(ca, "--scaler-cert=/etc/slurmtide/scaler/tls.crt", "--scaler-key=/etc/slurmtide/scaler/tls.key"), []string{"ca.crt", "tls.crt", "tls.key"}},
		"no page":       {off, nil, nil},
		"no scaler":     {none, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := slurmctldPod(controller(func(c *v1alpha1.Controller) { c.Spec.Bridge = &v1alpha1.BridgeOptions{Page: test.page} }), settings)
			b := pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == ContainerBridge })]
			assert.ElementsMatch(t, test.flags, slices.DeleteFunc(slices.Clone(b.Args), func(a string) bool { return !strings.HasPrefix(a, "--scaler-") }))
			mount := corev1.VolumeMount{Name: "scaler-tls", MountPath: "/etc/slurmtide/scaler", ReadOnly: true}
			assert.Equal(t, test.keys != nil, slices.Contains(b.VolumeMounts, mount))
			var keys []string
			for _, v := range pod.Volumes {
				if v.Name != mount.Name {
					continue
				}
				secret := v.Projected.Sources[0].Secret
				assert.Equal(t, "s", secret.Name)
				assert.True(t, *secret.Optional)
				for _, item := range secret.Items {
					keys = append(keys, item.Path)
					assert.EqualValues(t, 0o440, *item.Mode, "others must not read the key")
				}
			}
			assert.Equal(t, test.keys, keys)
		})
	}
}

// The page is reached by others only if somebody says so, as the port in the pod, in the Service and in the bridge's flags say alike.
func TestPageAndTraces(t *testing.T) {
	type ports = []int32
	for name, test := range map[string]struct {
		bridge *v1alpha1.BridgeOptions
		flags  []string
		ports  ports // of the container, and of the Service beside slurmctld's
		env    string
	}{
		"neither":  {nil, nil, ports{9441}, ""},
		"page":     {&v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{}}, []string{"--page-address=127.0.0.1:9445"}, ports{9441}, ""},
		"demand":   {&v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{Scaler: "http://s:1"}}, []string{"--page-address=127.0.0.1:9445", "--scaler=http://s:1"}, ports{9441}, ""},
		"exposed":  {&v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{Exposed: true}}, []string{"--page-address=:9445"}, ports{9441, 9445}, ""},
		"off":      {&v1alpha1.BridgeOptions{Page: &v1alpha1.BridgePage{Enabled: new(false), Exposed: true, Scaler: "http://s:1"}}, nil, ports{9441}, ""},
		"traces":   {&v1alpha1.BridgeOptions{Tracing: &v1alpha1.BridgeTracing{Endpoint: "http://otel:4318"}}, []string{"--otlp-endpoint=http://otel:4318"}, ports{9441}, ""},
		"a header": {&v1alpha1.BridgeOptions{Tracing: &v1alpha1.BridgeTracing{Endpoint: "http://otel", HeadersRef: &v1alpha1.KeyRef{Name: "s", Key: "k"}}}, []string{"--otlp-endpoint=http://otel"}, ports{9441}, "s/k"},
		"one's own": {&v1alpha1.BridgeOptions{
			ContainerOptions: v1alpha1.ContainerOptions{Args: []string{"--page-address=:80"}, Env: []corev1.EnvVar{{Name: "OTEL_EXPORTER_OTLP_HEADERS", Value: "a=b"}}},
			Page:             &v1alpha1.BridgePage{}, Tracing: &v1alpha1.BridgeTracing{Endpoint: "http://otel", HeadersRef: &v1alpha1.KeyRef{Name: "s", Key: "k"}},
		}, []string{"--page-address=127.0.0.1:9445", "--otlp-endpoint=http://otel", "--page-address=:80"}, ports{9441}, "a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := ControllerObjects(controller(func(c *v1alpha1.Controller) { c.Spec.Bridge = test.bridge }), nil, settings)
			require.NoError(t, err)
			var service, pod ports
			var flags []string
			env := ""
			for _, o := range objects {
				if s, ok := o.(*corev1.Service); ok && s.Name == "tide-controller" {
					for _, p := range s.Spec.Ports[1:] {
						service = append(service, p.Port)
						assert.EqualValues(t, p.Port, p.TargetPort.IntValue())
					}
				}
				if s, ok := o.(*appsv1.StatefulSet); ok {
					b := s.Spec.Template.Spec.Containers[3]
					require.Equal(t, ContainerBridge, b.Name)
					for _, p := range b.Ports {
						pod = append(pod, p.ContainerPort)
					}
					flags = b.Args[8:]
					for _, e := range b.Env {
						if require.Equal(t, "OTEL_EXPORTER_OTLP_HEADERS", e.Name); e.ValueFrom != nil {
							env += e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
						}
						env += e.Value
					}
				}
			}
			assert.Equal(t, test.ports, pod)
			assert.Equal(t, test.ports, service)
			assert.ElementsMatch(t, test.flags, flags)
			assert.Equal(t, test.env, env)
		})
	}

	objects, err := ControllerObjects(controller(func(c *v1alpha1.Controller) {
		c.Spec.Bridge = &v1alpha1.BridgeOptions{Enabled: new(false), Page: &v1alpha1.BridgePage{Exposed: true}}
	}), nil, settings)
	require.NoError(t, err)
	assert.NotContains(t, manifests(t, objects), "9445", "there is no bridge")
}

// With a ResourceQuota of limits Kubernetes makes no pod of which a container has none.
func TestEveryContainerMayHaveLimits(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	container, beside := v1alpha1.ContainerOptions{Image: "slurm:1", Resources: limits}, &v1alpha1.SidecarOptions{Resources: limits}
	daemon := &v1alpha1.DaemonOptions{ContainerOptions: container}
	c := controller(func(c *v1alpha1.Controller) {
		c.Spec.Slurmctld, c.Spec.Bridge, c.Spec.Slurmrestd, c.Spec.Reconfigure = daemon, &v1alpha1.BridgeOptions{ContainerOptions: container}, beside, beside
	})
	pods := map[string]corev1.PodSpec{
		"slurmctld": slurmctldPod(c, settings),
		"slurmdbd":  slurmdbdPod(accounting(func(a *v1alpha1.Accounting) { a.Spec.Slurmdbd = daemon })),
		"login": loginPod(loginSet(func(s *v1alpha1.LoginSet) {
			s.Spec.SssdConfRef, s.Spec.Sackd, s.Spec.Sssd = &v1alpha1.KeyRef{Name: "sssd", Key: "sssd.conf"}, beside, beside
		}), c, daemon, settings),
	}
	for name, pod := range pods {
		for _, one := range slices.Concat(pod.InitContainers, pod.Containers) {
			assert.Equal(t, limits, one.Resources, "%s: %s", name, one.Name)
		}
	}
}
