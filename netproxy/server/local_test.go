package server_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
)

// Without DialLocal an agent dials no loopback, link-local or unspecified address.
func TestLocalTargets(t *testing.T) {
	b := newBench(t)
	b.agent("one", func(c *agent.Config) { c.DialLocal = false })
	_, port, _ := strings.Cut(target(t, echo), ":")
	for _, host := range []string{"127.0.0.1", "127.64.0.1", "localhost", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1%25lo]"} {
		for _, d := range b.dialers() {
			if c, err := d.dial(host + ":" + port); err == nil {
				c.Close()
				t.Errorf("%s: the agent dialed %s", d.name, host)
			} else if !strings.Contains(err.Error(), "does not dial loopback") {
				t.Errorf("%s to %s: got %v, want a refusal", d.name, host, err)
			}
		}
	}
}
