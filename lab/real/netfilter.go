package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// What a kernel with br_netfilter has, and what brings it.
const (
	bridgeSettings = "/proc/sys/net/bridge"
	loadNetfilter  = "modprobe br_netfilter"
)

// filterBridges has packets between pods on one machine pass the rules of that
// machine, in every network namespace made from now on. A Service needs it whose
// pod is beside its client: else the answer takes the bridge, past the rules that
// would give it the Service's address, and the client does not know it.
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
