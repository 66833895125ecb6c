package aws_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestRepeatedDeletionOfNetworkLoadBalancer proves that a repeated DeleteLoadBalancer deletes the
// listeners that the first call could not delete. It tests two cases: the cloud is still deleting
// the load balancer, or has already deleted it.
func TestRepeatedDeletionOfNetworkLoadBalancer(t *testing.T) {
	for _, state := range []cloudsim.LoadBalancerState{cloudsim.LoadBalancerDeleting, cloudsim.LoadBalancerDeleted} {
		t.Run(string(state), func(t *testing.T) {
			w := startNetwork(t)
			if state == cloudsim.LoadBalancerDeleting {
				w.breakCall(t, "loadBalancers.delete", cloudsim.FaultStuckState)
			}
			w.breakCalls(t, "records.delete", cloudsim.FaultWhen{Max: 1}, cloudsim.FaultEffect{Type: cloudsim.FaultError})
			const deletion = nlbAction + "DeleteLoadBalancer&" + nlbLB
			listeners := func() int {
				l, err := w.cloud.ListRecords(t.Context(), cloudsim.ListOptions{Kind: "aws-listener"})
				if err != nil {
					t.Fatal(err)
				}
				return len(l.Items)
			}
			w.succeed(t, "sim-1", strings.Replace(deletion, "net/net", "net/other", 1))
			if status, _, body := w.query(t, "sim-1", deletion); status < http.StatusInternalServerError || listeners() != 1 {
				t.Fatalf("deletion with a fault: got status %d, %d listeners, body %s; want an error of the server and one listener", status, listeners(), body)
			}
			if w.succeed(t, "sim-1", deletion); listeners() != 0 {
				t.Errorf("listeners after the repeated deletion: got %d, want none", listeners())
			}
		})
	}
}
