package proxycli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// TestAgentLearnsFromMetadata proves that an agent reads its identifiers from the metadata of its
// instance, even if the metadata service starts later than the agent.
func TestAgentLearnsFromMetadata(t *testing.T) {
	ctx := t.Context()
	cl := cloudtest.Start(t)
	n, err := cl.CreateNetwork(ctx, cloudsim.CreateNetwork{
		Name: "n", IPv4: "10.10.0.0/16", IPv6: "fd10::/48",
		NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.11.0.0/16"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "s", Network: n.ID, IPv4: "10.10.1.0/24", IPv6: "fd10:0:0:1::/64"}); err != nil {
		t.Fatal(err)
	}
	i, err := cl.CreateInstance(ctx, cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1b", Type: "small", Network: n.ID})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	early := &proxyAgentFlags{metadataURL: "http://" + addr}
	learned := make(chan error, 1)
	output := newAwaited("waiting for the metadata service")
	go func() { learned <- early.askMetadata(ctx, slog.New(slog.NewTextHandler(output, nil))) }()
	<-output.matched
	serveMetadata(t, addr, cl, i.ID)
	if err := <-learned; err != nil {
		t.Fatal(err)
	}
	if want := "cidr=10.11.0.0%2F24&host=node-1&ipv4=10.10.1.2&ipv6=fd10%3A0%3A0%3A1%3A%3A2"; early.Identifiers.String() != want || early.Zone != "sim-1b" || early.ID != string(i.ID) {
		t.Errorf("agent: got ID %s, zone %s and identifiers %s, want ID %s, zone sim-1b and identifiers %s", early.ID, early.Zone, early.Identifiers, i.ID, want)
	}

	preset := &proxyAgentFlags{metadataURL: "http://" + addr, agentID: "mine"}
	preset.ID, preset.Zone, preset.Identifiers.Host = "mine", "elsewhere", []string{"node-1", "db"}
	if err := preset.askMetadata(ctx, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"node-1", "db"}, preset.Identifiers.Host); diff != "" || preset.ID != "mine" || preset.Zone != "elsewhere" {
		t.Errorf("agent with flags: got ID %s and zone %s, want mine and elsewhere, hosts (-want +got):\n%s", preset.ID, preset.Zone, diff)
	}

	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := early.askMetadata(over, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("askMetadata with an ended context: got no error, want one")
	}
}

func serveMetadata(t *testing.T, addr string, cl metadata.Cloud, instanceID cloudsim.InstanceID) {
	t.Helper()
	ln, err := metadata.Listen(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- metadata.Run(ctx, slog.New(slog.DiscardHandler), metadata.Config{Listener: ln, Instance: instanceID}, cl)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// wordWaiter is a writer for a log. When a line contains wantedText, the writer sends a value to
// its channel.
type wordWaiter struct {
	wantedText string
	matched    chan struct{}
}

func newAwaited(words string) *wordWaiter { return &wordWaiter{words, make(chan struct{}, 1)} }

func (a *wordWaiter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), a.wantedText) {
		select {
		case a.matched <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}
