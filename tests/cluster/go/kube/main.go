// Command kube is etcd, kubectl and every Kubernetes component in one binary.
//
// They share most of their code, so one link takes a fifth of the time and space of seven. The
// component is named by argv[0] (through a symlink) or by the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each entry builds its command only when asked: the constructors register global flags.
var components = map[string]func(context.Context) *cobra.Command{
	"kube-apiserver":          func(context.Context) *cobra.Command { return apiserver.NewAPIServerCommand() },
	"kube-controller-manager": func(context.Context) *cobra.Command { return controllers.NewControllerManagerCommand() },
	"kube-proxy":              func(context.Context) *cobra.Command { return proxy.NewProxyCommand() },
	"kube-scheduler":          func(context.Context) *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 func(context.Context) *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
	"kubelet":                 kubelet.NewKubeletCommand,
}

func known(name string) bool {
	_, found := components[name]
	return found || name == "etcd"
}

func main() {
	args := slices.Clone(os.Args)
	args[0] = filepath.Base(args[0])
	if !known(args[0]) && len(args) > 1 {
		args = args[1:]
	}
	if !known(args[0]) {
		fmt.Fprintf(os.Stderr, "kube: unknown component %q; one of: %s\n", args[0], strings.Join(names(), ", "))
		os.Exit(64)
	}
	os.Args = args
	if args[0] == "etcd" {
		etcdmain.Main(args)
		return
	}
	os.Exit(cli.Run(components[args[0]](context.Background())))
}

func names() []string {
	all := []string{"etcd"}
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
