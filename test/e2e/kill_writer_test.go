package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// writer creates, changes and deletes its own resources. Other writers do not use these resources,
// so a resource may be missing only if this writer has deleted it.
type writer struct {
	v          *victim
	n          int
	rng        *rand.Rand
	requests   int
	deleteSent map[string]bool // ids of resources for which the writer has sent a delete request

	instances [3]cloudsim.InstanceID
	addresses [2]cloudsim.Address
	balancers [2]cloudsim.LoadBalancer
	disks     [2]cloudsim.DiskID
	snapshot  cloudsim.SnapshotID
	net       cloudsim.NetworkID
	subnet    cloudsim.SubnetID
	way       cloudsim.RouteID
}

// work makes calls until the test kills the cloud. If a call fails because of a fault, the method
// makes the next call. The failed call may still have created its resource.
func (w *writer) work(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		var err error
		switch w.rng.IntN(12) {
		case 0:
			err = w.address(ctx, c, w.rng.IntN(len(w.addresses)))
		case 1, 2:
			err = w.balancer(ctx, c, w.rng.IntN(len(w.balancers)))
		case 3, 4, 5:
			err = w.disk(ctx, c, w.rng.IntN(len(w.disks)))
		case 6:
			err = w.snap(ctx, c)
		case 7:
			err = w.network(ctx, c)
		case 8:
			err = w.sub(ctx, c)
		case 9:
			err = w.route(ctx, c)
		default:
			err = w.instance(ctx, c, w.rng.IntN(len(w.instances)))
		}
		if errors.Is(err, errDead) && !isAlive(ctx, c) {
			return
		}
	}
}

func isAlive(ctx context.Context, c *client.Client) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := c.HTTP.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// checkNotFound reports whether err is NotFound. If err is NotFound and the writer has sent no
// delete request for the resource, the method fails the test.
func (w *writer) checkNotFound(err error, id string) bool {
	if !errors.Is(err, cloudsim.NotFound) {
		return false
	}
	if !w.deleteSent[id] {
		w.v.t.Errorf("writer %d: %s does not exist, but no writer deleted it", w.n, id)
	}
	return true
}

func (w *writer) instance(ctx context.Context, c *client.Client, n int) error {
	id := &w.instances[n]
	idOf := func(i cloudsim.Instance) string { return string(i.ID) }
	do := func(f func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)) error {
		_, err := say(ctx, w, cloudsim.KindInstance, idOf, func(ctx context.Context) (cloudsim.Instance, error) { return f(ctx, *id) })
		if w.checkNotFound(err, string(*id)) {
			*id = ""
		}
		return err
	}
	if *id == "" {
		i, err := say(ctx, w, cloudsim.KindInstance, idOf, func(ctx context.Context) (cloudsim.Instance, error) {
			return c.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("vm-%d-%d", w.n, n), Zone: "sim-1a", Type: "small"})
		})
		*id = i.ID
		return err
	}
	switch w.rng.IntN(6) {
	case 0:
		return do(c.StartInstance)
	case 1, 2:
		return do(c.StopInstance)
	case 3:
		return do(c.RebootInstance)
	case 4:
		return do(c.GetInstance)
	default:
		w.deleteSent[string(*id)] = true
		return do(c.DeleteInstance)
	}
}

// goneAddress returns an Address that contains only the id. The cloud's answer to a delete request
// is empty, but the ledger needs the id of the deleted address.
func goneAddress(id cloudsim.AddressID) cloudsim.Address { return cloudsim.Address{ID: id} }

func (w *writer) address(ctx context.Context, c *client.Client, n int) error {
	a := &w.addresses[n]
	idOf := func(a cloudsim.Address) string { return string(a.ID) }
	if a.ID == "" {
		got, err := say(ctx, w, cloudsim.KindAddress, idOf, func(ctx context.Context) (cloudsim.Address, error) {
			return c.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("ip-%d-%d", w.n, n)})
		})
		*a = got
		return err
	}
	w.deleteSent[string(a.ID)] = true
	_, err := say(ctx, w, cloudsim.KindAddress, idOf, func(ctx context.Context) (cloudsim.Address, error) {
		return goneAddress(a.ID), c.DeleteAddress(ctx, a.ID)
	})
	if err == nil || w.checkNotFound(err, string(a.ID)) {
		*a = cloudsim.Address{}
	}
	return err
}

func (w *writer) balancer(ctx context.Context, c *client.Client, n int) error {
	lb := &w.balancers[n]
	idOf := func(l cloudsim.LoadBalancer) string { return string(l.ID) }
	spec := cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 8080, TargetPort: 30000 + w.rng.IntN(100)}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}
	for _, id := range w.instances {
		if id != "" && w.rng.IntN(2) == 0 {
			spec.Targets = append(spec.Targets, cloudsim.Target{Instance: id})
		}
	}
	verb := w.rng.IntN(4)
	got, err := say(ctx, w, cloudsim.KindLoadBalancer, idOf, func(ctx context.Context) (cloudsim.LoadBalancer, error) {
		switch {
		case lb.ID == "":
			req := cloudsim.CreateLoadBalancer{Name: fmt.Sprintf("lb-%d-%d", w.n, n), Region: "sim-1", LoadBalancerSpec: spec}
			if n == 0 {
				req.Addresses = []string{w.addresses[0].IP}
			}
			return c.CreateLoadBalancer(ctx, req)
		case verb == 0:
			return c.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{LoadBalancerSpec: spec}, lb.Revision)
		case verb == 1:
			return c.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: spec.Targets})
		case verb == 2:
			return c.GetLoadBalancer(ctx, lb.ID)
		default:
			w.deleteSent[string(lb.ID)] = true
			return c.DeleteLoadBalancer(ctx, lb.ID)
		}
	})
	switch {
	case err == nil:
		*lb = got
	case errors.Is(err, cloudsim.Exists): // an earlier request with a lost answer created the load balancer with other values
		l, lerr := c.ListLoadBalancers(ctx, cloudsim.ListOptions{Name: fmt.Sprintf("lb-%d-%d", w.n, n)})
		if lerr == nil && len(l.Items) == 1 {
			*lb = l.Items[0]
		}
	case w.checkNotFound(err, string(lb.ID)):
		*lb = cloudsim.LoadBalancer{}
	}
	return err
}
