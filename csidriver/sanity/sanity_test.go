// Package sanity runs upstream's csi-sanity tests against the driver, with cloudsim and loop
// devices of the kernel. It is a separate module, so that the product does not depend on
// csi-sanity's dependencies.
package sanity

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/csidriver"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// unusedIDs generates ids of objects that do not exist. The ids have a valid
// format, so that the requests pass the format check.
type unusedIDs struct{ n *atomic.Int64 }

func (i unusedIDs) GenerateUniqueValidVolumeID() string { return fmt.Sprintf("disk-f%07x", i.n.Add(1)) }
func (i unusedIDs) GenerateInvalidVolumeID() string     { return "../../etc/passwd" }
func (i unusedIDs) GenerateUniqueValidNodeID() string   { return fmt.Sprintf("i-f%07x", i.n.Add(1)) }
func (i unusedIDs) GenerateInvalidNodeID() string       { return "no node" }

// TestSanity proves that the driver passes csi-sanity with all capabilities and
// without skipped tests. It runs one driver for mounted volumes, and another
// driver for block volumes.
func TestSanity(t *testing.T) {
	if err := machine.Ready(); err != nil {
		t.Skipf("this machine cannot mount volumes: %v", err)
	}
	before := loopFiles(t)
	for _, access := range []string{"mount", "block"} {
		dir := t.TempDir()
		cfg := sanity.NewTestConfig()
		cfg.Address = "unix://" + serve(t, dir)
		cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		cfg.TestVolumeAccessType, cfg.TestVolumeSize = access, 1<<30
		cfg.TestVolumeExpandSize = 2 << 30
		cfg.TestVolumeMutableParameters = map[string]string{"iops": "4000"}
		cfg.TestNodeVolumeAttachLimit = true
		cfg.IDGen = unusedIDs{new(atomic.Int64)}
		sanity.GinkgoTest(&cfg)
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	ran := map[string]int{}
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) { ran[r.State.String()]++ })
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
	t.Log(ran)
	if ran["skipped"] > 0 || ran["passed"] < 204 {
		t.Errorf("got the results %v, want at least 204 passed and no skipped tests", ran)
	}
	if after := loopFiles(t); len(after) > len(before) {
		t.Errorf("loop devices remain: %v", after)
	}
}

// serve runs a driver, and a cloud that has a data plane. It returns the driver's socket.
func serve(t *testing.T, dir string) string {
	t.Helper()
	files := filepath.Join(dir, "disks")
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cloud := cloudtest.Start(t,
		cloudtest.WithConfig(func(c *engine.Config) { c.DiskData = true }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return disks.Run(engine.AsCloud(ctx), log, disks.Config{Dir: files}, e)
		}))
	vm := instance(t, cloud)
	cfg := csidriver.Default()
	cfg.Cloud, cfg.Endpoint = cloud, "unix://"+filepath.Join(dir, "csi.sock")
	cfg.Node = csidriver.NodeConfig{Instance: vm.ID, DisksDir: files}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- csidriver.Run(ctx, log, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run of the stopped driver: got error %v, want none", err)
		}
	})
	return filepath.Join(dir, "csi.sock")
}

func instance(t *testing.T, cloud *client.Client) cloudsim.Instance {
	t.Helper()
	vm, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// loopFiles lists each file that has a loop device and is in a folder of this
// test.
func loopFiles(t *testing.T) (files []string) {
	t.Helper()
	there, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if raw, err := os.ReadFile(f); err == nil && strings.Contains(string(raw), os.TempDir()+"/TestSanity") {
			files = append(files, string(raw))
		}
	}
	return files
}
