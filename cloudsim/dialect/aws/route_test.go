package aws_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestFailedReplaceRoute proves that a route keeps its next hop if the cloud refuses the new route.
func TestFailedReplaceRoute(t *testing.T) {
	w := start(t)
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", createRoute+"&InstanceId=i-00000000000000001")
	w.breakCalls(t, "routes.create", cloudsim.FaultWhen{Max: 1}, cloudsim.FaultEffect{Type: cloudsim.FaultError})
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
			stuck := w.breakCall(t, "routes.delete", cloudsim.FaultStuckState)
			if want == "i-000001" {
				w.breakCalls(t, "routes.create", cloudsim.FaultWhen{Max: 1}, cloudsim.FaultEffect{Type: cloudsim.FaultError})
			}
			handled := w.abandon(t, strings.Replace(createRoute, "CreateRoute", "ReplaceRoute", 1)+"&InstanceId=i-00000000000000002", stuck)
			if err := w.cloud.DeleteFault(t.Context(), stuck); err != nil {
				t.Fatal(err)
			}
			<-handled
			l, err := w.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
			if err != nil || len(l.Items) != 1 || l.Items[0].NextHop != want {
				t.Errorf("routes: got %+v, error %v; want one route with the next hop %s", l.Items, err, want)
			}
		})
	}
}
