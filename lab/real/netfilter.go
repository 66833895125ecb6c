package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The settings that br_netfilter adds to the kernel, and the command that loads the module.
const (
	bridgeSettings = "/proc/sys/net/bridge"
	loadNetfilter  = "modprobe br_netfilter"
)

// filterBridges loads br_netfilter. Then bridged packets between pods on one machine pass
// the machine's netfilter rules, in every network namespace that is created later. A
// Service needs this if its pod is on the client's node. Otherwise the answer bypasses
// the rules that restore the Service's address, and the client drops the answer.
func filterBridges(ctx context.Context) error {
	if _, err := os.Stat(bridgeSettings); err == nil {
		return nil
	}
	load := strings.Fields(loadNetfilter)
	if out, err := exec.CommandContext(ctx, load[0], load[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", loadNetfilter, err, lastLines(string(out), 1))
	}
	return nil
}

func checkNetfilter() Finding {
	f := Finding{Name: "br_netfilter", Fix: loadNetfilter}
	if _, err := os.Stat(bridgeSettings); err != nil && !loadable("br_netfilter") {
		f.Problem = "pods do not reach Services that lead to a pod on their own node, such as the name server"
	}
	return f
}
