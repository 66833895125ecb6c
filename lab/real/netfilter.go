package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// bridgeSettings is a folder that exists only while the kernel module br_netfilter is loaded.
// loadNetfilter is the command that loads this module.
const (
	bridgeSettings = "/proc/sys/net/bridge"
	loadNetfilter  = "modprobe br_netfilter"
)

// filterBridges loads the kernel module br_netfilter. With this module, a machine's netfilter rules
// also apply to packets between pods on the machine. A Service needs this effect if a pod of the
// Service is on the client's node. Without the module, the pod's answer bypasses the rules that
// restore the Service's address, and the client drops the answer. The module has no effect in
// network namespaces that existed before the kernel loaded the module.
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
	if _, err := os.Stat(bridgeSettings); err != nil && !isLoadable("br_netfilter") {
		f.Problem = "pods cannot reach a Service whose endpoint is on their own node, such as the cluster DNS"
	}
	return f
}
