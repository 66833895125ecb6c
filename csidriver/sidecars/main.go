// Command csi-sidecars runs upstream's volume controllers in one process. It
// uses external-provisioner, external-attacher, external-resizer,
// csi-snapshotter and the snapshot-controller as libraries. For each driver,
// the process has one set of watches and one connection. In separate
// containers, each sidecar would have its own watches and its own connection to
// the driver.
//
// The command only composes these libraries, so its behavior, events and
// annotations are the same as upstream's. One process can serve several
// drivers, for example a disk driver under its own name and under a legacy name
// (KEP-625).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	cfg := defaultConfig()
	fl := pflag.NewFlagSet("csi-sidecars", pflag.ExitOnError)
	fl.StringSliceVar(&cfg.sockets, "csi-address", cfg.sockets, "socket of a driver's controller service; may be given several times")
	fl.StringVar(&cfg.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; empty for the service account of the pod")
	fl.StringVar(&cfg.http, "http-endpoint", "", "address host:port of /healthz, /readyz and /metrics; empty for no HTTP server")
	fl.BoolVar(&cfg.snapshotController, "snapshot-controller", cfg.snapshotController, "run the snapshot-controller, of which a cluster needs exactly one")
	fl.StringVar(&cfg.capacityNamespace, "capacity-namespace", "", "namespace of the CSIStorageCapacity objects (KEP-1472); empty for no such objects")
	fl.BoolVar(&cfg.elect, "leader-election", false, "work only while this process holds the lease csi-sidecars; needed for several replicas")
	fl.StringVar(&cfg.electNamespace, "leader-election-namespace", cfg.electNamespace, "namespace of the lease")
	fl.Float32Var(&cfg.qps, "kube-api-qps", cfg.qps, "limit of calls to the API server per second")
	fl.DurationVar(&cfg.timeout, "timeout", cfg.timeout, "time limit of a call to a driver")
	fl.DurationVar(&cfg.retryMax, "retry-interval-max", cfg.retryMax, "longest time between two attempts of a call")
	klogFlags := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(klogFlags)
	fl.AddGoFlag(klogFlags.Lookup("v"))
	if err := fl.Parse(os.Args[1:]); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	if err := run(ctx, cfg); err != nil {
		fail(err)
	}
}

func fail(err error) {
	klog.Flush()
	fmt.Fprintf(os.Stderr, "csi-sidecars: %v\n", err)
	os.Exit(1)
}
