package componentcli_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/componentcli"
)

// TestInstanceNamesAreNotIDs proves that the CSI driver finds an instance by its id and by its
// name, even if the name looks like an id. For example, the name i-worker-1 begins with "i-", like
// an id.
func TestInstanceNamesAreNotIDs(t *testing.T) {
	cloud, ctx := cloudtest.Start(t), t.Context()
	for _, name := range []string{"i-worker-1", "i-0123456789abcdef0", "node-1"} {
		i, err := cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{name, string(i.ID)} {
			if got := nodeID(t, cloud, flag); got != string(i.ID) {
				t.Errorf("with --node-instance=%s the node has the id %q, want %q", flag, got, i.ID)
			}
		}
	}
}

// nodeID runs 'allinone csi' with the given value of --node-instance, and returns the id of the
// node.
func nodeID(t *testing.T, cloud *client.Client, instance string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the paths of Unix sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	token, endpoint := filepath.Join(dir, "token"), "unix://"+filepath.Join(dir, "csi.sock")
	if err := os.WriteFile(token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := componentcli.NewCSICommand(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
	cmd.SetArgs([]string{
		"--mode=node", "--endpoint=" + endpoint, "--disks-dir=" + dir, "--node-instance=" + instance,
		"--cloud-url=" + cloud.URL, "--cloud-token-file=" + token, "--cloud-project=default",
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the driver ended with: %v", err)
		}
	}()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Errorf("with --node-instance=%s: %v", instance, err)
	}
	return info.GetNodeId()
}
