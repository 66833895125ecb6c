package e2e

import (
	"fmt"
	"github.com/cloudsim-dev/allinone/test/proxylab"
	"path/filepath"
	"strings"
	"testing"
)

// TestProxyInterop proves that the servers and agents of this project work together with the
// servers and agents of upstream. The test uses two versions of upstream's client, and the client
// code of kube-apiserver.
func TestProxyInterop(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20<<10) // many packets
	for _, mode := range []struct{ name, protocol string }{{"grpc", "GRPC"}, {"http-connect", "HTTPConnect"}} {
		for _, pair := range [][2]proxylab.Implementation{{proxylab.Ours, proxylab.Ours}, {proxylab.Ours, proxylab.Theirs}, {proxylab.Theirs, proxylab.Ours}} {
			t.Run(fmt.Sprintf("%s/server-%s/agent-%s", mode.name, pair[0].Name, pair[1].Name), func(t *testing.T) {
				l := proxylab.New(t)
				l.Server(pair[0], mode.name)
				l.Agent(pair[1])
				egress := l.EgressFile(mode.protocol)
				for _, program := range []string{proxylab.UpstreamProgram, proxylab.Upstream37Program} {
					if err := l.Through(program, "egress", egress, text); err != nil {
						t.Errorf("%s egress: %v", filepath.Base(program), err)
					}
					if mode.name != "grpc" {
						continue
					}
					if err := l.Through(program, "dial", l.Socket, text); err != nil {
						t.Errorf("%s dial: %v", filepath.Base(program), err)
					}
				}
			})
		}
	}
}
