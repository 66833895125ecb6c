// Command konnectivity runs upstream's network proxy for tests and benchmarks: the server, the
// agent, the client, and kube-apiserver's egress selector. It only calls upstream's code.
//
//	konnectivity server|agent [upstream's flags]
//	konnectivity dial SOCKET HOST:PORT       one connection with konnectivity-client
//	konnectivity egress FILE HOST:PORT       one connection with k8s.io/apiserver and the configuration FILE
//
// With "dial" or "egress", the command copies stdin to the connection. It also copies data from the
// connection to stdout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/klog/v2"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: konnectivity server|agent|dial|egress …")
	}
	switch args[0] {
	case "server":
		o := serveroptions.NewProxyRunOptions()
		cmd := serverapp.NewProxyCommand(&serverapp.Proxy{}, o)
		cmd.Flags().AddFlagSet(o.Flags())
		cmd.Flags().AddGoFlagSet(klogFlags())
		cmd.SetArgs(args[1:])
		return cmd.Execute()
	case "agent":
		o := agentoptions.NewGrpcProxyAgentOptions()
		cmd := agentapp.NewAgentCommand(&agentapp.Agent{}, o)
		cmd.Flags().AddFlagSet(o.Flags())
		cmd.Flags().AddGoFlagSet(klogFlags())
		cmd.SetArgs(args[1:])
		return cmd.Execute()
	case "dial", "egress":
		if len(args) != 3 {
			return fmt.Errorf("usage: konnectivity %s FROM HOST:PORT", args[0])
		}
		return carry(args[0], args[1], args[2])
	}
	return fmt.Errorf("unknown program %q", args[0])
}

// klogFlags returns the flags that upstream's main adds, such as --v.
func klogFlags() *flag.FlagSet {
	fl := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fl)
	return fl
}

// carry opens a connection to address and copies stdin to the connection. It copies data from the
// connection to stdout until the connection ends. The parameter path is the argument SOCKET of the
// program "dial", or the argument FILE of the program "egress".
func carry(program, path, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	connect := dial
	if program == "egress" {
		connect = egress
	}
	conn, err := connect(ctx, path, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, os.Stdin) }() // ends with the process
	_, err = io.Copy(os.Stdout, conn)
	return err
}

func dial(ctx context.Context, socket, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

func egress(ctx context.Context, file, address string) (net.Conn, error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		return nil, err
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil {
		return nil, err
	}
	dialer, err := selector.Lookup(egressselector.Cluster.AsNetworkContext())
	if err != nil {
		return nil, err
	}
	if dialer == nil {
		return nil, fmt.Errorf("%s configures no connection for the network cluster", file)
	}
	return dialer(ctx, "tcp", address)
}
