package aws_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestFailedReplaceRoute proves that a route keeps its next hop if the cloud refuses the new route.
func TestFailedReplaceRoute(t *testing.T) {
	w := start(t)
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", createRoute+"&InstanceId=i-00000000000000001")
	if _, err := w.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "once", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "routes.create"}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}}); err != nil {
		t.Fatal(err)
	}
	replace := strings.Replace(createRoute, "CreateRoute", "ReplaceRoute", 1) + "&InstanceId=i-00000000000000002"
	if status, _, body := w.query(t, "sim-1", replace); status < 500 {
		t.Errorf("replacement with a fault: got status %d, body %s; want an error of the server", status, body)
	}
	for _, want := range []cloudsim.InstanceID{"i-000001", "i-000002"} {
		l, err := w.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
		if err != nil || len(l.Items) != 1 || l.Items[0].NextHop != want {
			t.Errorf("routes: got %+v, error %v; want one route with the next hop %s", l.Items, err, want)
		}
		w.succeed(t, "sim-1", replace)
	}
}

// TestReplaceRouteWithoutClient proves that the dialect completes the replacement of a route even
// if the client disconnects. If the cloud refuses the new route, the dialect creates the old route
// again.
func TestReplaceRouteWithoutClient(t *testing.T) {
	for name, want := range map[string]cloudsim.InstanceID{"new route": "i-000002", "refused route": "i-000001"} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.succeed(t, "sim-1", runOne)
			w.succeed(t, "sim-1", runOne)
			w.succeed(t, "sim-1", createRoute+"&InstanceId=i-00000000000000001")
			stuck, err := w.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "stuck", FaultSpec: cloudsim.FaultSpec{
				Match: cloudsim.FaultMatch{Operation: "routes.delete"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultStuckState},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if want == "i-000001" {
				if _, err := w.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "once", FaultSpec: cloudsim.FaultSpec{
					Match: cloudsim.FaultMatch{Operation: "routes.create"}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
				}}); err != nil {
					t.Fatal(err)
				}
			}
			form, err := url.ParseQuery(strings.Replace(createRoute, "CreateRoute", "ReplaceRoute", 1) + "&InstanceId=i-00000000000000002")
			if err != nil {
				t.Fatal(err)
			}
			h := dialect.New(slog.New(slog.DiscardHandler), aws.New(), dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport})
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			r, over := w.request(t, time.Now(), form).WithContext(ctx), make(chan struct{})
			go func() { defer close(over); h.ServeHTTP(httptest.NewRecorder(), r) }()
			eventually.True(t, "the cloud deletes the old route", func() bool {
				f, err := w.cloud.GetFault(t.Context(), stuck.ID)
				return err == nil && f.Hits > 0
			})
			disconnect()
			if err := w.cloud.DeleteFault(t.Context(), stuck.ID); err != nil {
				t.Fatal(err)
			}
			<-over
			l, err := w.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
			if err != nil || len(l.Items) != 1 || l.Items[0].NextHop != want {
				t.Errorf("routes: got %+v, error %v; want one route with the next hop %s", l.Items, err, want)
			}
		})
	}
}
