// Command controller measures slurmtide controller with many clusters, on the Kubernetes that KUBECONFIG names, and prints one JSON object; see
// type result. The clusters are real: each has a slurmctld, a slurmrestd and a bridge that run, and NodeSets whose nodes are off. Each fifth has a RestApi, a LoginSet and
// a Token, too. There is no Accounting: that needs a database.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
)

type result struct {
	Clusters int `json:"clusters"`
	NodeSets int `json:"nodesets"`
	// Others are RestApis, LoginSets and Tokens, so many of each.
	Others int `json:"others"`
	// Ready is from the first create until every Controller is available with its configuration in force, in seconds.
	Ready float64 `json:"ready_s"`
	RSS   float64 `json:"rss_mib"` // the most that was seen
	// Making is the 99th percentile of the time to handle an object until all were ready, in milliseconds; Handling the same afterwards, when each is looked at
	// once a minute. Of buckets: at most that.
	Making   float64 `json:"making_p99_ms"`
	Made     uint64  `json:"made"`
	Handling float64 `json:"handling_p99_ms"`
	Handled  uint64  `json:"handled"`
	Median   float64 `json:"handling_median_ms"`
	// Reading is the 99th percentile of one Secret's GET meanwhile, in milliseconds: the API server and the machine.
	Reading float64 `json:"reading_p99_ms"`
	// Idle is how long nothing was changed then, in seconds, and Writes what the controller wrote meanwhile, its Lease left out.
	Idle   float64            `json:"idle_s"`
	Writes float64            `json:"idle_writes"`
	By     map[string]float64 `json:"idle_writes_by_resource"`
}

// othersEach is for how many clusters there is one object of each other kind.
const othersEach = 5

// label marks the namespaces that are made here.
const label = "slurmtide.io/bench-controller"

type bench struct {
	ctx     context.Context
	kube    kubernetes.Interface
	tide    versioned.Interface
	dir     string // of the volumes
	metrics string
	rss     float64
}

func main() {
	program := flag.String("program", "bin/slurmtide-controller", "the controller")
	version := flag.String("slurm", "26.05", "Slurm version")
	clusters := flag.Int("clusters", 50, "Controllers")
	sets := flag.Int("nodesets", 1000, "NodeSets, all together")
	idle := flag.Duration("idle-for", 10*time.Minute, "how long to count writes when all is done")
	address := flag.String("metrics-address", "127.0.0.1:19444", "where the controller serves its metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := run(ctx, *program, *version, *address, *clusters, *sets, *idle)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench controller:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "bench controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, version, address string, clusters, sets int, idle time.Duration) (r result, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return r, fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	b := &bench{ctx: ctx, metrics: "http://" + address + "/metrics"}
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return r, err
	}
	if b.tide, err = versioned.NewForConfig(config); err != nil {
		return r, err
	}
	if b.dir, err = os.MkdirTemp("/var/tmp", "bench-controller-"); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	controller := exec.Command(program, "--image", "slurmtide/slurmtide:dev", "--lease-namespace", metav1.NamespaceDefault, "--metrics-address", address)
	controller.Stderr = os.Stderr
	controller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := controller.Start(); err != nil {
		return r, err
	}
	defer func() {
		_ = controller.Process.Signal(syscall.SIGTERM)
		_ = controller.Wait()
	}()
	defer func() { err = errors.Join(err, b.clean(context.WithoutCancel(ctx))) }() // first: it takes its finalizers away

	began := time.Now()
	r = result{Clusters: clusters, NodeSets: sets, Others: (clusters + othersEach - 1) / othersEach}
	for i := range clusters {
		if err := b.cluster(i, sets/clusters, version); err != nil {
			return r, err
		}
		if i%othersEach != 0 {
			continue
		}
		if err := b.others(fmt.Sprintf("bench-c%d", i)); err != nil {
			return r, err
		}
	}
	if err := b.ready(clusters); err != nil {
		return r, err
	}
	r.Ready = time.Since(began).Seconds()
	fmt.Fprintf(os.Stderr, "bench: %d clusters are ready after %.0f s\n", clusters, r.Ready)
	time.Sleep(time.Minute) // statuses come to rest
	before, err := b.figures()
	if err != nil {
		return r, err
	}
	quiet := time.Now()
	var reads []float64
	for time.Since(quiet) < idle {
		time.Sleep(time.Second)
		took, err := b.read()
		if err != nil {
			return r, err
		}
		reads = append(reads, took)
		if _, err := b.figures(); err != nil {
			return r, err
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	after, err := b.figures()
	if err != nil {
		return r, err
	}
	r.Idle, r.RSS, r.By = time.Since(quiet).Seconds(), b.rss, map[string]float64{}
	for name, n := range after.writes {
		if n -= before.writes[name]; n != 0 && name != "leases" {
			r.By[name] = n
			r.Writes += n
		}
	}
	r.Making, r.Made = before.handling.quantile(0.99)
	r.Handling, r.Handled = after.handling.since(before.handling).quantile(0.99)
	r.Median, _ = after.handling.since(before.handling).quantile(0.5)
	slices.Sort(reads)
	r.Reading = reads[len(reads)*99/100]
	return r, nil
}

// read reads a Secret as the controller does, and gives the milliseconds that took.
func (b *bench) read() (float64, error) {
	began := time.Now()
	_, err := b.kube.CoreV1().Secrets("bench-c0").Get(b.ctx, "bench-c0-auth-slurm", metav1.GetOptions{ResourceVersion: "0"})
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

// cluster makes a Controller in a namespace of its own, with a volume for its state and NodeSets.
func (b *bench) cluster(i, sets int, version string) error {
	name := fmt.Sprintf("bench-c%d", i)
	labels := map[string]string{label: "yes"}
	dir := filepath.Join(b.dir, name)
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil { // against the umask
		return err
	}
	if _, err := b.kube.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := b.kube.CoreV1().PersistentVolumes().Create(b.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: name, Name: "statesave-" + name + "-controller-0"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	image := "slurmtide/slurm:" + version
	_, err = b.tide.SlurmtideV1alpha1().Controllers(name).Create(b.ctx, &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ControllerSpec{
		Slurmctld: &v1alpha1.DaemonOptions{
			ContainerOptions: v1alpha1.ContainerOptions{Image: image, ImagePullPolicy: corev1.PullIfNotPresent},
			// Fifty slurmctlds have hosts of their own elsewhere. Here the probes, a process each five seconds, would take both processors.
			ReadinessProbe: &v1alpha1.ProbeOptions{PeriodSeconds: 60}, LivenessProbe: &v1alpha1.ProbeOptions{PeriodSeconds: 300},
		},
		Bridge:      &v1alpha1.BridgeOptions{ContainerOptions: v1alpha1.ContainerOptions{ImagePullPolicy: corev1.PullIfNotPresent}},
		Persistence: v1alpha1.Persistence{StorageClassName: new("")},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for n := range sets {
		set := fmt.Sprintf("s%d", n)
		_, err := b.tide.SlurmtideV1alpha1().NodeSets(name).Create(b.ctx, &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: set}, Spec: v1alpha1.NodeSetSpec{
			ClusterRef: v1alpha1.ClusterRef{Name: name}, NodeNames: set + "-[0-9]", Shape: v1alpha1.Shape{CPUs: 2, RealMemory: 400},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "slurmd", Image: image}}}},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// others makes one object of each other kind for a cluster. They have no pods: those would take the processors, and the controller does the same for them.
func (b *bench) others(name string) error {
	tide, meta, ref := b.tide.SlurmtideV1alpha1(), metav1.ObjectMeta{Name: name}, v1alpha1.ObjectRef{Name: name}
	_, restAPI := tide.RestApis(name).Create(b.ctx, &v1alpha1.RestApi{ObjectMeta: meta, Spec: v1alpha1.RestApiSpec{ControllerRef: ref, Replicas: new(int32)}}, metav1.CreateOptions{})
	_, loginSet := tide.LoginSets(name).Create(b.ctx, &v1alpha1.LoginSet{ObjectMeta: meta, Spec: v1alpha1.LoginSetSpec{ControllerRef: ref, Replicas: new(int32)}}, metav1.CreateOptions{})
	_, token := tide.Tokens(name).Create(b.ctx, &v1alpha1.Token{ObjectMeta: meta, Spec: v1alpha1.TokenSpec{ControllerRef: &ref, Username: "slurm"}}, metav1.CreateOptions{})
	return errors.Join(restAPI, loginSet, token)
}

// ready waits until every Controller is available with its configuration in force.
func (b *bench) ready(clusters int) error {
	for end := time.Now().Add(30 * time.Minute); ; time.Sleep(2 * time.Second) {
		list, err := b.tide.SlurmtideV1alpha1().Controllers(metav1.NamespaceAll).List(b.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var not []string
		for _, c := range list.Items {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAvailable) || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionConfigInForce) {
				not = append(not, c.Name)
			}
		}
		if _, err := b.figures(); err != nil && time.Until(end) < 29*time.Minute { // it may not serve yet
			return err
		}
		switch {
		case len(list.Items) == clusters && len(not) == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%d of %d Controllers are not ready after half an hour: %s", len(not), clusters, strings.Join(not, " "))
		}
	}
}

type figures struct {
	writes   map[string]float64 // by resource
	handling buckets
}

// figures reads the controller's metrics.
func (b *bench) figures() (figures, error) {
	f := figures{writes: map[string]float64{}}
	resp, err := http.Get(b.metrics)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	_, _ = io.Copy(io.Discard, resp.Body)
	if err != nil {
		return f, fmt.Errorf("reading %s: %w", b.metrics, err)
	}
	for _, name := range []string{"process_resident_memory_bytes", "slurmtide_controller_handling_seconds"} {
		if families[name] == nil {
			return f, fmt.Errorf("%s lacks %s", b.metrics, name)
		}
	}
	b.rss = max(b.rss, families["process_resident_memory_bytes"].Metric[0].GetGauge().GetValue()/(1<<20))
	for _, m := range families["slurmtide_controller_writes_total"].GetMetric() {
		f.writes[m.Label[0].GetValue()] += m.GetCounter().GetValue()
	}
	f.handling = sum(families["slurmtide_controller_handling_seconds"].Metric)
	return f, nil
}

// buckets are how many took at most so long, by seconds; the last, for ever, is of all.
type buckets map[float64]uint64

// sum adds up histograms with the same buckets. NodeSets are left out: they are only looked at, and far more than all others.
func sum(histograms []*dto.Metric) buckets {
	all := buckets{}
	for _, m := range histograms {
		if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "kind" && l.GetValue() == "NodeSet" }) {
			continue
		}
		for _, bucket := range m.GetHistogram().GetBucket() {
			all[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return all
}

func (b buckets) since(before buckets) buckets {
	now := maps.Clone(b)
	for bound := range now {
		now[bound] -= before[bound]
	}
	return now
}

// quantile is the bound of the bucket that a quantile lies in, in milliseconds, and how many there are.
func (b buckets) quantile(q float64) (float64, uint64) {
	total := b[math.Inf(1)]
	for _, bound := range slices.Sorted(maps.Keys(b)) {
		if float64(b[bound]) >= q*float64(total) {
			return bound * 1000, total
		}
	}
	return math.Inf(1), total
}

// clean takes everything away.
func (b *bench) clean(ctx context.Context) error {
	mine := metav1.ListOptions{LabelSelector: label}
	list, err := b.kube.CoreV1().Namespaces().List(ctx, mine)
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		if gone := b.kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}
	err = errors.Join(err, b.kube.CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{}, mine))
	for range 300 {
		if list, failed := b.kube.CoreV1().Namespaces().List(ctx, mine); failed == nil && len(list.Items) == 0 {
			return err
		}
		time.Sleep(time.Second)
	}
	return errors.Join(err, errors.New("namespaces are not gone after five minutes"))
}
