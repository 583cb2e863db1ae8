// Command kubenode is every Kubernetes program of the local cluster in one
// binary: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelet, kube-proxy and kubectl. One link step instead of seven
// is what keeps a cold build in minutes.
//
// The program is chosen by the name it is called by, or by its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJob time zones

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if !run() && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		if run() {
			return
		}
	}
	fmt.Fprintln(os.Stderr, "kubenode: call it as, or with the first argument, etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy or kubectl")
	os.Exit(2)
}

// run starts the program named by os.Args[0] and does not return when there is one.
func run() bool {
	switch filepath.Base(os.Args[0]) {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		exit(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		exit(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		exit(scheduler.NewSchedulerCommand())
	case "kubelet":
		exit(kubelet.NewKubeletCommand(context.Background()))
	case "kube-proxy":
		exit(proxy.NewProxyCommand())
	case "kubectl":
		logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as kubectl's own main does
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		return false
	}
	os.Exit(0)
	return true
}

func exit(c *cobra.Command) { os.Exit(cli.Run(c)) }
