package e2e

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// network creates, reads or deletes a network. The cloud refuses the deletion while the
// network has a subnet.
func (w *writer) network(ctx context.Context, c *client.Client) error {
	id, verb := w.net, w.rng.IntN(3)
	got, err := say(ctx, w, cloudsim.KindNetwork, func(n cloudsim.Network) string { return string(n.ID) }, func(ctx context.Context) (cloudsim.Network, error) {
		switch {
		case id == "":
			return c.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: fmt.Sprintf("net-%d", w.n), IPv4: fmt.Sprintf("10.%d.0.0/16", 50+w.n)})
		case verb == 0:
			w.deleteSent[string(id)] = true
			return c.DeleteNetwork(ctx, id)
		}
		return c.GetNetwork(ctx, id)
	})
	if err == nil {
		w.net = got.ID
	} else if id != "" && w.checkNotFound(err, string(id)) {
		w.net = ""
	}
	return err
}

// sub creates, reads or deletes a subnet of the writer's network.
func (w *writer) sub(ctx context.Context, c *client.Client) error {
	id, verb := w.subnet, w.rng.IntN(2)
	if id == "" && w.net == "" {
		return nil
	}
	name := fmt.Sprintf("sub-%d", w.n)
	got, err := say(ctx, w, cloudsim.KindSubnet, func(s cloudsim.Subnet) string { return string(s.ID) }, func(ctx context.Context) (cloudsim.Subnet, error) {
		switch {
		case id == "":
			return c.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: name, Network: w.net, IPv4: fmt.Sprintf("10.%d.1.0/24", 50+w.n)})
		case verb == 0:
			w.deleteSent[string(id)] = true
			return c.DeleteSubnet(ctx, id)
		}
		return c.GetSubnet(ctx, id)
	})
	if err == nil {
		w.subnet = got.ID
	} else if id != "" && w.checkNotFound(err, string(id)) {
		w.subnet = ""
	}
	return err
}

// route creates, reads or deletes a route to one of the writer's instances.
func (w *writer) route(ctx context.Context, c *client.Client) error {
	id, verb, to := w.way, w.rng.IntN(2), w.instances[w.rng.IntN(len(w.instances))]
	if id == "" && to == "" {
		return nil
	}
	name := fmt.Sprintf("route-%d", w.n)
	got, err := say(ctx, w, cloudsim.KindRoute, func(r cloudsim.Route) string { return string(r.ID) }, func(ctx context.Context) (cloudsim.Route, error) {
		switch {
		case id == "":
			return c.CreateRoute(ctx, cloudsim.CreateRoute{Name: name, Destination: fmt.Sprintf("10.%d.0.0/16", 150+w.n), NextHop: to})
		case verb == 0:
			w.deleteSent[string(id)] = true
			return c.DeleteRoute(ctx, id)
		}
		return c.GetRoute(ctx, id)
	})
	switch {
	case err == nil:
		w.way = got.ID
	case id == "" && errors.Is(err, cloudsim.Exists): // an earlier request with a lost answer created the route to another instance
		if l, err := c.ListRoutes(ctx, cloudsim.ListOptions{Name: name}); err == nil && len(l.Items) == 1 {
			w.way = l.Items[0].ID
		}
	case id != "" && w.checkNotFound(err, string(id)):
		w.way = ""
	}
	return err
}

// breakCalls creates the faults of the test. The cloud drops, throttles or delays some calls. For
// some other calls, the cloud does the work but does not send the reply.
func (v *victim) breakCalls(ctx context.Context, c *client.Client) {
	tenth := 0.1
	for name, f := range map[string]cloudsim.FaultSpec{
		"lost-creates": {Match: cloudsim.FaultMatch{Operation: "*.create"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply}},
		"lost-disks":   {Match: cloudsim.FaultMatch{Operation: "disks.*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply}},
		"no-deletes":   {Match: cloudsim.FaultMatch{Operation: "*.delete"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultDrop}},
		"full":         {Match: cloudsim.FaultMatch{Operation: "*.stop"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}},
		"slow":         {Match: cloudsim.FaultMatch{Operation: "instances.*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 5}},
	} {
		f.When.Probability = &tenth
		if _, err := c.CreateFault(ctx, cloudsim.CreateFault{Name: name, FaultSpec: f}); err != nil {
			v.t.Errorf("fault %s: %v", name, err)
		}
	}
}
