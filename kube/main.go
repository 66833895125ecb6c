// Command kube contains upstream Kubernetes in one binary: etcd, the control plane, the node
// programs, kubectl and kwok. The build compiles these programs from Go modules, and downloads
// nothing else. The command's own code is the table of programs, and copies of the main functions
// of kubectl and kwok.
//
// The name of the binary selects the program. If the name of the binary is not the name of
// a program, the first argument selects the program:
//
//	kube kube-apiserver --version
//	ln -s kube kubectl && ./kubectl version
//
// A start costs about 80 ms, because Go initializes the packages of every program. Servers start
// rarely, so this cost is acceptable for them. The kubelet starts its plugins often, so do not use
// this command for a plugin of the kubelet.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// The variable programs maps each program's name to its upstream main function.
// The functions read os.Args and return the exit code.
var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 runKubectl,
	"kwok":                    runKwok,
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		os.Exit(run())
	}
	if len(os.Args) > 1 {
		if run, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: kube PROGRAM [flags]\nPROGRAM is one of: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}

// runKubectl is a copy of the main function of k8s.io/kubectl. RunNoErrOutput
// returns an error without printing it, and CheckErr prints this error.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // exits
	}
	return 0
}

// runKwok is a copy of the main function of sigs.k8s.io/kwok/cmd/kwok. It parses
// the global flags before it creates the command, because these flags choose the
// configuration of the command.
func runKwok() int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, log := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		log.Error("configuration", "err", err)
		return 1
	}
	// cobra adds the flags in pflag.CommandLine to every command. The packages of other programs in
	// this binary add a flag --version to pflag.CommandLine. The type of this flag is not bool.
	// cobra accepts only a flag --version of the type bool, so kwok gets an empty flag set.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		log.Error("exit", "err", err)
		return 1
	}
	return 0
}
