package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/internal/freeport"
	"github.com/cloudsim-dev/allinone/internal/run"
)

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	often := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.1, MaxDelay: 50 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{Backoff: often, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestRegistration proves that the kubelet gets the correct endpoint of the driver. It also proves
// that the driver removes its registration socket when it stops. The kubelet watches this socket.
// When the socket disappears, the kubelet removes the driver from the CSINode.
func TestRegistration(t *testing.T) {
	dir, registry := t.TempDir(), t.TempDir()
	cfg := Default()
	cfg.Cloud, cfg.Endpoint = cloudtest.Start(t), "unix://"+filepath.Join(dir, "csi.sock")
	cfg.Node = NodeConfig{Instance: "i-000001", DisksDir: dir, RegistrationDir: registry}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), cfg) }()
	socket := filepath.Join(registry, DefaultName+"-reg.sock")
	kubelet := registration.NewRegistrationClient(dial(t, socket))
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.GetType() != "CSIPlugin" || info.GetName() != DefaultName || len(info.GetSupportedVersions()) != 1 {
		t.Fatalf("GetInfo of the registration socket: got %v, error %v; want the CSI plugin %s with one version", info, err, DefaultName)
	}
	plugin, err := csi.NewIdentityClient(dial(t, info.GetEndpoint())).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || plugin.GetName() != DefaultName {
		t.Errorf("plugin at the endpoint: got %v, %v", plugin, err)
	}
	for _, taken := range []bool{false, true} { // a refusal does not end the registration
		must(t)(kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: taken, Error: "why"}))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, path := range []string{socket, filepath.Join(dir, "csi.sock")} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("socket %s still exists: %v", path, err)
		}
	}
}

// TestRegister proves that Register waits for a third-party driver, and
// registers the driver under the name that the driver itself returns.
func TestRegister(t *testing.T) {
	dir, registry := t.TempDir(), t.TempDir()
	cfg := Default()
	cfg.Name, cfg.Mode, cfg.Cloud, cfg.Endpoint = "csi.example.com", ModeController, cloudtest.Start(t), "unix://"+filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() {
		done <- Register(ctx, slog.New(slog.DiscardHandler), Registration{Endpoint: cfg.Endpoint, Dir: registry, KubeletSocketDir: "/seen/by/kubelet"})
	}()
	go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), cfg) }()
	socket := filepath.Join(registry, "csi.example.com-reg.sock")
	info, err := registration.NewRegistrationClient(dial(t, socket)).GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.GetType() != "CSIPlugin" || info.GetName() != "csi.example.com" || info.GetEndpoint() != "/seen/by/kubelet/csi.sock" {
		t.Errorf("GetInfo of the registration socket: got %v, error %v; want the CSI plugin csi.example.com at /seen/by/kubelet/csi.sock", info, err)
	}
	cancel()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// TestRegisterRefuses proves that Register refuses invalid fields. It also proves that Register
// returns no error if its context ends before the driver answers.
func TestRegisterRefuses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good := Registration{Endpoint: "unix://" + filepath.Join(t.TempDir(), "csi.sock"), Dir: t.TempDir()}
	if err := Register(ctx, slog.New(slog.DiscardHandler), good); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		r    Registration
		want string
	}{
		{Registration{Endpoint: "/run/csi.sock", Dir: "/a"}, "--endpoint"},
		{Registration{Endpoint: "unix://csi.sock", Dir: "/a"}, "--endpoint"},
		{Registration{Endpoint: "unix:///csi.sock", Dir: "a"}, "--kubelet-registration-dir"},
		{Registration{Endpoint: "unix:///csi.sock", Dir: "/a", KubeletSocketDir: "b"}, "--kubelet-socket-dir"},
	} {
		err := Register(t.Context(), slog.New(slog.DiscardHandler), c.r)
		if !errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error about %s", c.r, err, c.want)
		}
	}
}

// TestHealth proves that /readyz fails if the cloud is down or hangs. /healthz succeeds in both
// cases, because a restart of the driver would not repair the cloud.
func TestHealth(t *testing.T) {
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	cloud := *cloudtest.Start(t)
	const hangs = "hangs"
	for name, c := range map[string]struct {
		url    string
		alive  int
		isGood int
	}{
		"up":   {cloud.URL, http.StatusOK, http.StatusOK},
		"down": {"http://127.0.0.1:1", http.StatusOK, http.StatusServiceUnavailable},
		hangs:  {cloud.URL, http.StatusOK, http.StatusServiceUnavailable},
	} {
		cloud.URL = c.url
		undo := func() {}
		if name == hangs {
			undo = hang(t, &cloud)
		}
		cfg := Default()
		cfg.Mode, cfg.Cloud, cfg.Endpoint, cfg.HealthAddress = ModeController, &cloud, "unix://"+filepath.Join(t.TempDir(), "csi.sock"), address
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), cfg) }()
		must(t)(csi.NewIdentityClient(dial(t, cfg.Endpoint[len("unix://"):])).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}))
		for path, want := range map[string]int{"/healthz": c.alive, "/readyz": c.isGood} {
			if got, body := get(t, "http://"+address+path); got != want {
				t.Errorf("cloud %s: %s is %d (%s), want %d", name, path, got, body, want)
			} else if name == hangs && path == "/readyz" && !strings.Contains(body, "does not answer") {
				t.Errorf("/readyz while the cloud hangs: got %q", body)
			}
		}
		undo()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// hang makes all calls to a cloud hang until the caller calls undo.
func hang(t *testing.T, cloud *client.Client) (undo func()) {
	t.Helper()
	f, err := cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "hang", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultHang},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cloud.DeleteFault(t.Context(), f.ID); err != nil {
			t.Error(err)
		}
	}
}

// TestNodeByName configures a driver with the name of its instance, but without the instance's id.
// The driver must ask the cloud for this id. The test proves that the driver can start while the
// cloud hangs. While the cloud hangs, the driver answers NodeUnpublishVolume, which does not need
// the cloud. When the cloud is back, NodeGetInfo succeeds. If no instance has the name, the driver
// ends with an error.
func TestNodeByName(t *testing.T) {
	cloud := cloudtest.Start(t)
	vm, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := Default()
	cfg.Mode, cfg.Cloud, cfg.Endpoint = ModeNode, cloud, "unix://"+filepath.Join(dir, "csi.sock")
	cfg.Node = NodeConfig{InstanceName: "nobody", DisksDir: dir}
	if err := Run(t.Context(), slog.New(slog.DiscardHandler), cfg); !errors.Is(err, cloudsim.NotFound) || !strings.Contains(err.Error(), "--node-instance") {
		t.Errorf("unknown instance name: got %v, want NotFound for --node-instance", err)
	}
	cfg.Node.InstanceName = "node-1"
	undo := hang(t, cloud)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), cfg) }()
	node := csi.NewNodeClient(dial(t, filepath.Join(dir, "csi.sock")))
	info := func(most time.Duration) (*csi.NodeGetInfoResponse, error) {
		within, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		return node.NodeGetInfo(within, &csi.NodeGetInfoRequest{})
	}
	must(t)(node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "disk-000001", TargetPath: filepath.Join(dir, "none")}))
	_, err = info(othersWithin + time.Second) // longer than the driver's first attempt
	wantCode(t, "while the cloud hangs", err, codes.DeadlineExceeded)
	undo()
	if got, err := info(time.Minute); err != nil || got.GetNodeId() != string(vm.ID) {
		t.Errorf("node after the cloud is back: got %v, %v", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run of the stopped driver: got error %v, want none", err)
	}
}

// get sends an HTTP request, and repeats the request until a server listens.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	for {
		resp, err := http.Get(url)
		if err == nil {
			raw, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(raw)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestHealthDropsHalfARequest proves that the server closes the connection of a
// client that sends an incomplete request.
func TestHealthDropsHalfARequest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveHealth(ctx, ln, "unix:///nowhere", run.Limits{AnonymousFor: time.Second, Body: 50 * time.Millisecond})
	}()
	for request, want := range map[string]string{
		"":                            "",
		"GET /healthz HTTP/1.1\r\nX:": "",
		"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{": "HTTP/1.1 405",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{":  "HTTP/1.1 503",
	} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if ne, ok := err.(net.Error); ok && ne.Timeout() || !strings.HasPrefix(string(got), want) {
			t.Errorf("after %q: %q, %v; want %s", request, got, err, want)
		}
		_ = c.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
