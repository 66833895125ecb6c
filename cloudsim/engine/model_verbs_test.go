package engine_test

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func (w *world) createInstance(t *rapid.T) {
	req := cloudsim.CreateInstance{
		Name: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "-a"}).Draw(t, "name"),
		Zone: rapid.SampledFrom([]string{"sim-1a", "sim-1a", "sim-1b", "mars"}).Draw(t, "zone"),
		Type: "small",
	}
	have := w.instances[idOfName(w.instances, req.Name, func(i *vm) string { return i.Name })]
	address := w.freeInstanceIP()
	got, err := w.e.CreateInstance(w.ctx, req)
	switch {
	case req.Name == "-a":
		mustAgree(t, err, cloudsim.Invalid)
	case have != nil && have.State == "terminating":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && have.Zone != req.Zone:
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
		if got.InternalIP() != have.IP {
			t.Fatalf("repeated request: got %s with address %s, want the instance with address %s", got.ID, got.InternalIP(), have.IP)
		}
	case req.Zone == "mars":
		mustAgree(t, err, cloudsim.Invalid)
	case address == "":
		mustAgree(t, err, cloudsim.Exhausted)
	default:
		mustAgree(t, err, nil)
		w.instances[w.id("i")] = &vm{Name: req.Name, Zone: req.Zone, State: "provisioning", IP: address, Subnet: "subnet-000001", Pods: w.podsIn("subnet-000001"), until: time.Now().Add(slow.Provision)}
	}
}

func (w *world) moveInstance(t *rapid.T) {
	id := randomID(t, w.instances)
	i := w.instances[id]
	verbs := map[string]struct {
		do    func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)
		from  []string
		to    string
		takes time.Duration
	}{
		"start":  {w.e.StartInstance, []string{"stopped"}, "starting", slow.Boot},
		"stop":   {w.e.StopInstance, []string{"running", "rebooting"}, "stopping", slow.Shutdown},
		"reboot": {w.e.RebootInstance, []string{"running"}, "rebooting", slow.Boot},
		"delete": {w.e.DeleteInstance, []string{"provisioning", "running", "stopping", "stopped", "starting", "rebooting"}, "terminating", slow.Shutdown},
	}
	name := rapid.SampledFrom([]string{"start", "stop", "reboot", "delete"}).Draw(t, "verb")
	verb := verbs[name]
	_, err := verb.do(w.ctx, cloudsim.InstanceID(id))
	switch {
	case i == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case name == "delete" && i.State == "terminating":
		mustAgree(t, err, nil)
	case !slices.Contains(verb.from, i.State):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		i.State, i.until = verb.to, time.Now().Add(verb.takes)
	}
}

// addressNames are the names for new addresses. A request for the last name in this list fails,
// because only the cloud itself may use names of this form.
var addressNames = []string{"a", "b", "c", "lb-000001"}

func (w *world) createAddress(t *rapid.T) {
	req := cloudsim.CreateAddress{Name: rapid.SampledFrom(addressNames).Draw(t, "name")}
	have := w.addresses[idOfName(w.addresses, req.Name, func(a *ip) string { return a.Name })]
	address := w.freeAddress()
	_, err := w.e.CreateAddress(w.ctx, req)
	switch {
	case req.Name == "lb-000001":
		mustAgree(t, err, cloudsim.Invalid)
	case have != nil:
		mustAgree(t, err, nil)
	case address == "":
		mustAgree(t, err, cloudsim.Exhausted)
	default:
		mustAgree(t, err, nil)
		w.addresses[w.id("addr")] = &ip{Name: req.Name, IP: address, Static: true}
	}
}

func (w *world) deleteAddress(t *rapid.T) {
	id := randomID(t, w.addresses)
	a := w.addresses[id]
	err := w.e.DeleteAddress(w.ctx, cloudsim.AddressID(id))
	switch {
	case a == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case a.UsedBy != "":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		delete(w.addresses, id)
	}
}

// draw returns a random specification of a load balancer, and the ids of its
// targets. The last result is true if all targets exist.
func (w *world) draw(t *rapid.T) (spec cloudsim.LoadBalancerSpec, targets []string, known bool) {
	port := rapid.IntRange(80, 81).Draw(t, "port")
	spec = cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}
	spec.Targets, targets, known = w.drawTargets(t)
	return spec, targets, known
}

func (w *world) drawTargets(t *rapid.T) (list []cloudsim.Target, ids []string, known bool) {
	known = true
	for range rapid.IntRange(0, 2).Draw(t, "targets") {
		id := randomID(t, w.instances)
		if slices.Contains(ids, id) {
			continue
		}
		known = known && w.instances[id] != nil
		ids, list = append(ids, id), append(list, cloudsim.Target{Instance: cloudsim.InstanceID(id)})
	}
	return list, ids, known
}

func (w *world) createBalancer(t *rapid.T) {
	spec, targets, known := w.draw(t)
	req := cloudsim.CreateLoadBalancer{
		Name: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), Region: "sim-1", LoadBalancerSpec: spec,
	}
	static := rapid.SampledFrom([]string{"", "", "127.65.0.1", "127.65.0.2"}).Draw(t, "static address")
	if static != "" {
		req.Addresses = []string{static}
	}
	have := w.balancers[idOfName(w.balancers, req.Name, func(l *lb) string { return l.Name })]
	on := w.addresses[idOfName(w.addresses, static, func(a *ip) string { return a.IP })]
	address := w.freeAddress()
	got, err := w.e.CreateLoadBalancer(w.ctx, req)
	switch {
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (static != "" && static != have.IP || spec.Listeners[0].Port != have.Port || !slices.Equal(targets, have.Targets)):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case !known, static != "" && (on == nil || !on.Static):
		mustAgree(t, err, cloudsim.Invalid)
	case static != "" && on.UsedBy != "":
		mustAgree(t, err, cloudsim.Conflict)
	case static == "" && address == "":
		mustAgree(t, err, cloudsim.Exhausted)
	default:
		mustAgree(t, err, nil)
		l := &lb{Name: req.Name, State: "provisioning", IP: static, Port: spec.Listeners[0].Port, Targets: targets, until: time.Now().Add(slow.LoadBalancer), rev: got.Revision}
		id := w.id("lb")
		w.balancers[id] = l
		if on != nil {
			on.UsedBy = id
			return
		}
		l.IP = address
		w.addresses[w.id("addr")] = &ip{Name: id, IP: address, UsedBy: id}
	}
}

// updateLB checks the result of an update of a load balancer and applies the
// update to the model.
func (w *world) updateLB(t *rapid.T, l *lb, port int, targets []string, known bool, got cloudsim.LoadBalancer, err error) {
	switch {
	case l.State != "deleting" && l.Port == port && slices.Equal(l.Targets, targets):
		mustAgree(t, err, nil) // an update without changes begins no work
	case l.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case !known:
		mustAgree(t, err, cloudsim.Invalid)
	default:
		mustAgree(t, err, nil)
		l.Port, l.Targets, l.until, l.rev = port, targets, time.Now().Add(slow.LoadBalancer), got.Revision
		if l.State == "active" {
			l.State = "updating"
		}
	}
}

func (w *world) updateBalancer(t *rapid.T) {
	id := randomID(t, w.balancers)
	l := w.balancers[id]
	spec, targets, known := w.draw(t)
	now, getErr := w.e.GetLoadBalancer(w.ctx, cloudsim.LoadBalancerID(id))
	rev := uint64(0)
	match := rapid.SampledFrom([]string{"none", "now", "before"}).Draw(t, "If-Match")
	switch {
	case l == nil:
		mustAgree(t, getErr, cloudsim.NotFound)
	case match == "now":
		rev = now.Revision
	case match == "before":
		rev = l.rev
	}
	got, err := w.e.UpdateLoadBalancer(w.ctx, cloudsim.LoadBalancerID(id), cloudsim.UpdateLoadBalancer{LoadBalancerSpec: spec}, rev)
	switch {
	case l == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case rev != 0 && rev != now.Revision:
		mustAgree(t, err, cloudsim.Stale)
	default:
		w.updateLB(t, l, spec.Listeners[0].Port, targets, known, got, err)
	}
}

func (w *world) setTargets(t *rapid.T) {
	id := randomID(t, w.balancers)
	l := w.balancers[id]
	list, targets, known := w.drawTargets(t)
	got, err := w.e.SetLoadBalancerTargets(w.ctx, cloudsim.LoadBalancerID(id), cloudsim.SetTargets{Targets: list}, 0)
	if l == nil {
		mustAgree(t, err, cloudsim.NotFound)
		return
	}
	w.updateLB(t, l, l.Port, targets, known, got, err)
}

func (w *world) deleteBalancer(t *rapid.T) {
	id := randomID(t, w.balancers)
	l := w.balancers[id]
	_, err := w.e.DeleteLoadBalancer(w.ctx, cloudsim.LoadBalancerID(id))
	switch {
	case l == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case l.State == "deleting":
		mustAgree(t, err, nil)
	default:
		mustAgree(t, err, nil)
		l.State, l.until = "deleting", time.Now().Add(slow.LoadBalancer)
	}
}
