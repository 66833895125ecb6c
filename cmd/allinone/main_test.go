package main

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func TestSupervise(t *testing.T) {
	if got := superviseWork(nil, func(context.Context) int { return 7 }); got != 7 {
		t.Errorf("exit code without a signal: got %d, want 7", got)
	}
	signals := make(chan os.Signal, 2)
	signals <- os.Interrupt
	if got := superviseWork(signals, func(ctx context.Context) int { <-ctx.Done(); return 3 }); got != 3 {
		t.Errorf("exit code after one signal: got %d, want 3 of a clean stop", got)
	}
	stuck := make(chan struct{})
	defer close(stuck)
	signals <- os.Interrupt
	signals <- syscall.SIGTERM
	if got := superviseWork(signals, func(context.Context) int { <-stuck; return 0 }); got != cli.ExitInterrupted {
		t.Errorf("exit code after two signals: got %d, want %d", got, cli.ExitInterrupted)
	}
}
