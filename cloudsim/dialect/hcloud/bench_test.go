package hcloud_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/dialecttest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
)

// benchWorld starts a cloud, and a dialect that calls the cloud without a network connection.
func benchWorld(b *testing.B) *world {
	b.Helper()
	api := dialecttest.NewInProcess()
	w := &world{cloud: cloudtest.Start(b, api.Part())}
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), hcloud.New(), dialect.Config{URL: "http://cloud", Transport: api, Project: w.cloud.Project}))
	b.Cleanup(srv.Close)
	w.url = srv.URL
	w.Client = w.clientOf(b, w.cloud)
	return w
}

// BenchmarkDialect compares the time for calls of Hetzner's client through the dialect with the
// time for direct calls to the cloud. It fails if a call through the dialect takes more than twice
// as long as the direct calls. For a list of 1,000 servers, the limit is three times the duration
// of the direct calls.
//
// In Hetzner's API, an answer about a server also contains the ids of its volumes. For the same
// values, a client of this cloud needs two calls: one for the instances and one for the disks. So
// for servers, the benchmark compares the dialect with both calls together.
func BenchmarkDialect(b *testing.B) {
	ctx := context.Background()
	w := benchWorld(b)
	for i := range 1000 {
		in, err := w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i), Zone: "sim-1a", Type: "small"})
		if err != nil {
			b.Fatal(err)
		}
		d, err := w.cloud.CreateDisk(ctx, cloudsim.CreateDisk{Name: fmt.Sprintf("data-%d", i), Zone: "sim-1a", Type: "balanced", SizeGiB: 10})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.cloud.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: in.ID}); err != nil {
			b.Fatal(err)
		}
	}
	dialecttest.Compare(b, []dialecttest.Pair{
		{Name: "volume", N: 400, Most: 2, Ours: func() error { _, err := w.cloud.GetDisk(ctx, "disk-000001"); return err }, Theirs: func() error { _, _, err := w.Volume.GetByID(ctx, 1); return err }},
		{
			Name: "server", N: 400, Most: 2,
			Ours: func() error {
				_, err := w.cloud.GetInstance(ctx, "i-000007")
				_, listErr := w.cloud.ListDisks(ctx, cloudsim.ListOptions{Instances: []cloudsim.InstanceID{"i-000007"}})
				return errors.Join(err, listErr)
			},
			Theirs: func() error { _, _, err := w.Server.GetByID(ctx, 7); return err },
		},
		{
			Name: "list", N: 15, Most: 3,
			Ours: func() error {
				_, _, err := cloudsim.All(ctx, w.cloud.ListInstances, cloudsim.ListOptions{})
				_, _, listErr := cloudsim.All(ctx, w.cloud.ListDisks, cloudsim.ListOptions{})
				return errors.Join(err, listErr)
			},
			Theirs: func() error { _, err := w.Server.All(ctx); return err },
		},
	})
}
