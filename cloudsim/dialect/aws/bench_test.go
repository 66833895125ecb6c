package aws_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/dialecttest"
)

// BenchmarkDialect compares the time for signed requests to the dialect with the time for direct
// calls to the cloud. It fails if a request to the dialect takes more than twice as long as the
// direct calls. The time of a request does not include the time that a client needs to decode XML.
//
// EC2's answer about an instance contains the volumes of the instance. For one instance, the direct
// calls therefore also list the volumes. For 1,000 instances, the direct call lists only the
// instances, so the limit is three times the time of the direct call.
func BenchmarkDialect(b *testing.B) {
	ctx := context.Background()
	api := dialecttest.NewInProcess()
	w := start(b, api.Part())
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), aws.New(), dialect.Config{URL: "http://cloud", Transport: api}))
	b.Cleanup(srv.Close)
	w.url = srv.URL
	for i := range 1000 {
		if _, err := w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i), Zone: "sim-1a", Type: "small"}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.cloud.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 10}); err != nil {
		b.Fatal(err)
	}
	dialectCall := func(form url.Values) func() error {
		return func() error {
			resp, err := http.DefaultClient.Do(w.request(b, time.Now(), form))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			return errors.Join(err, resp.Body.Close())
		}
	}
	dialecttest.Compare(b, []dialecttest.Pair{
		{
			Name: "instance", N: 400, Most: 2,
			Ours: func() error {
				_, err := w.cloud.GetInstance(ctx, "i-000007")
				_, listErr := w.cloud.ListDisks(ctx, cloudsim.ListOptions{Instances: []cloudsim.InstanceID{"i-000007"}})
				return errors.Join(err, listErr)
			},
			Theirs: dialectCall(url.Values{"Action": {"DescribeInstances"}, "InstanceId.1": {"i-00000000000000007"}}),
		},
		{
			Name: "volume", N: 400, Most: 2,
			Ours:   func() error { _, err := w.cloud.GetDisk(ctx, "disk-000001"); return err },
			Theirs: dialectCall(url.Values{"Action": {"DescribeVolumes"}, "VolumeId.1": {"vol-00000000000000001"}}),
		},
		{
			Name: "list", N: 15, Most: 3,
			Ours: func() error {
				_, _, err := cloudsim.All(ctx, w.cloud.ListInstances, cloudsim.ListOptions{})
				return err
			},
			Theirs: dialectCall(url.Values{"Action": {"DescribeInstances"}}),
		},
	})
}
