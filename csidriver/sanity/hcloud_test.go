package sanity

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// unusedNumbers generates unused ids of resources in Hetzner's API.
type unusedNumbers struct{ n *atomic.Int64 }

func (i unusedNumbers) GenerateUniqueValidVolumeID() string {
	return fmt.Sprint(1_000_000 + i.n.Add(1))
}
func (i unusedNumbers) GenerateInvalidVolumeID() string   { return "not-a-number" }
func (i unusedNumbers) GenerateUniqueValidNodeID() string { return fmt.Sprint(1_000_000 + i.n.Add(1)) }
func (i unusedNumbers) GenerateInvalidNodeID() string     { return "not-a-number" }

// countingWriter is an http.ResponseWriter that counts the answers with the status 501.
type countingWriter struct {
	http.ResponseWriter
	unsupported *atomic.Int64
}

func (n countingWriter) WriteHeader(code int) {
	if code == http.StatusNotImplemented {
		n.unsupported.Add(1)
	}
	n.ResponseWriter.WriteHeader(code)
}

// inNamespace is the name of an environment variable. TestHetznerCSI sets this
// variable in the process that the test starts in a new network namespace.
const inNamespace = "HCLOUD_SANITY_IN_NAMESPACE"

// TestHetznerCSI runs csi-sanity against Hetzner's unmodified CSI driver. The
// driver calls the cloud through the dialect hcloud, a server with the API of
// Hetzner. The driver reads the metadata service at the fixed address
// 169.254.169.254, so the test runs in a network namespace in which this
// address is local.
//
// The driver calls the program cryptsetup to find out whether a volume is encrypted. In this test,
// a script replaces cryptsetup, so that the test does not need the kernel's device mapper. The
// script answers that no volume is encrypted.
func TestHetznerCSI(t *testing.T) {
	driver := os.Getenv("FOREIGN_BIN_DIR")
	if driver == "" {
		t.Skip("NOT RUN: FOREIGN_BIN_DIR is not set; it is the folder with hcloud-csi-driver")
	}
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a network namespace needs root")
	}
	if os.Getenv(inNamespace) == "" {
		const setup = `ip link set lo up && ip addr add 169.254.169.254/32 dev lo && exec "$0" -test.run '^TestHetznerCSI$' -test.v`
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", setup, os.Args[0])
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	cfg := sanity.NewTestConfig()
	var unsupported atomic.Int64
	cfg.Address = "unix://" + serveHetzner(t, filepath.Join(driver, "hcloud-csi-driver"), dir, &unsupported)
	cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	cfg.TestVolumeSize, cfg.TestVolumeExpandSize = 10<<30, 20<<30
	cfg.IDGen = unusedNumbers{new(atomic.Int64)}
	sanity.GinkgoTest(&cfg)

	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	suite.FocusStrings = []string{`\[Controller Server\]`}
	suite.SkipStrings = []string{
		`ListVolumes`, // version 2.22.1 panics as soon as a volume exists
		`ValidateVolumeCapabilities should fail when the requested volume does not exist`, // version 2.22.1 answers Internal instead of NotFound
	}
	passed := 0
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
		if r.State.String() == "passed" {
			passed++
		}
	})
	ginkgo.RunSpecs(t, "csi-sanity for Hetzner's driver", suite, reporter)
	if passed < 25 {
		t.Errorf("%d specs passed, want at least 25", passed)
	}
	if n := unsupported.Load(); n != 0 {
		t.Errorf("got %d answers with the status 501, want none", n)
	}
}

// serveHetzner runs a cloud, a server for the dialect hcloud, the metadata service and the driver.
// It returns the driver's socket. Each answer of the dialect with the status 501 adds 1 to the
// counter unsupported.
func serveHetzner(t *testing.T, driver, dir string, unsupported *atomic.Int64) string {
	t.Helper()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	ln, err := metadata.Listen(t.Context(), metadata.Address)
	if err != nil {
		t.Fatal(err)
	}
	cloud := cloudtest.Start(t, cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		return metadata.Run(engine.AsCloud(ctx), log, metadata.Config{Listener: ln, Instance: "i-000001"}, e)
	}))
	instance(t, cloud)
	if _, err := cloud.SetMetadataTree(t.Context(), "hetzner", cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{
		Prefix: "/hetzner/v1/metadata",
		Leaves: []cloudsim.MetadataLeaf{{Path: "/instance-id", Text: "${id.number}"}, {Path: "/hostname", Text: "${hostname}"}, {Path: "/availability-zone", Text: "${zone}-dc1"}},
	}}); err != nil {
		t.Fatal(err)
	}
	h := dialect.New(log, hcloud.New(), dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport, Project: cloud.Project})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(countingWriter{w, unsupported}, r) }))
	t.Cleanup(api.Close)
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	// This script replaces cryptsetup. It answers as "cryptsetup status" does for a
	// device that is not active: a line of text and the exit code 4.
	const standIn = "#!/bin/sh\necho \"/dev/mapper/$2 is inactive.\"\nexit 4\n"
	if err := os.WriteFile(filepath.Join(bin, "cryptsetup"), []byte(standIn), 0o700); err != nil { //nolint:gosec // the driver executes this file
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "hcloud.sock")
	said, err := os.Create(filepath.Join(dir, "driver.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(driver, "-controller", "-node")
	cmd.Env = append(os.Environ(), "HCLOUD_ENDPOINT="+api.URL+"/v1", "HCLOUD_TOKEN="+secret, "CSI_ENDPOINT=unix://"+socket,
		"HCLOUD_VOLUME_DEFAULT_LOCATION=sim-1a", "HCLOUD_POLLING_INTERVAL_SECONDS=1", "ENABLE_METRICS=false", "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		raw, _ := os.ReadFile(said.Name())
		if t.Failed() {
			t.Logf("the end of the driver's log:\n%s", raw[max(0, len(raw)-20_000):])
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(end) {
			raw, _ := os.ReadFile(said.Name())
			t.Fatalf("the driver has no socket:\n%s", raw)
		}
	}
}
