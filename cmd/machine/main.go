// Command machine is the first process of a real node. In this project, a real node is a simulated
// machine that runs real containers. Only the hypervisor of allinone starts this command, in new
// namespaces. It is a separate program to save memory, because every node runs one such process.
// This process needs 2 MiB of memory, but a process of allinone would need 30 MiB.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

func main() {
	if len(os.Args) != 2 || os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "machine: do not run this program; the hypervisor of `allinone up --nodes real` runs it, as `machine SPEC`, in separate namespaces")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	spec, err := boot.Load(os.Args[1])
	if err == nil {
		err = boot.Run(ctx, log, spec, os.Stdin)
	}
	if err != nil {
		log.Error("the machine ends", "err", err)
		os.Exit(1)
	}
}
