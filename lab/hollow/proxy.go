package hollow

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	// gather is the time between a change and the update of the sockets. Changes that arrive
	// during this time do not cause a second update.
	gather = 50 * time.Millisecond
	// relisten is the pause between two attempts to open a port.
	relisten = 2 * time.Second

	taintToBeDeleted = "ToBeDeletedByClusterAutoscaler" // KEP-3836
)

// proxy acts as the kube-proxy of every machine of a fleet. One goroutine opens and
// closes all sockets.
type proxy struct {
	log      *slog.Logger
	fleet    *fleet
	nodes    corelisters.NodeLister
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	synced   []cache.InformerSynced
	kubelet  KubeletTLS    // nil means that machines serve no kubelet API
	changed  chan struct{} // change notifications; the buffer holds one notification
	on       map[cloudsim.InstanceID]*responder
}

func newProxy(log *slog.Logger, factory informers.SharedInformerFactory, f *fleet, kubelet KubeletTLS) (*proxy, error) {
	nodes, services, slices := factory.Core().V1().Nodes(), factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	p := &proxy{
		log: log, fleet: f, kubelet: kubelet, nodes: nodes.Lister(), services: services.Lister(), slices: slices.Lister(),
		changed: make(chan struct{}, 1), on: map[cloudsim.InstanceID]*responder{},
	}
	f.hear = append(f.hear, func(string) { p.notify() })
	object := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.notify() }, UpdateFunc: func(any, any) { p.notify() }, DeleteFunc: func(any) { p.notify() },
	}
	node := object
	node.UpdateFunc = func(before, after any) {
		if factsOf(before.(*corev1.Node)) != factsOf(after.(*corev1.Node)) {
			p.notify()
		}
	}
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"node", nodes.Informer(), node},
		{"service", services.Informer(), object},
		{"endpointslice", slices.Informer(), object},
	} {
		handle, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return nil, fmt.Errorf("%s informer: %w", w.kind, err)
		}
		p.synced = append(p.synced, handle.HasSynced)
	}
	return p, nil
}

func (p *proxy) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// nodeFacts holds the fields of a Node that the proxy uses.
type nodeFacts struct {
	hollow     bool
	providerID string
	zone       string
	eligible   bool
}

func factsOf(n *corev1.Node) nodeFacts {
	f := nodeFacts{isHollow(n), n.Spec.ProviderID, n.Labels[corev1.LabelTopologyZone], n.DeletionTimestamp == nil}
	for _, t := range n.Spec.Taints {
		if t.Key == taintToBeDeleted {
			f.eligible = false
		}
	}
	return f
}

// run updates the sockets on each change until ctx ends, and then closes all sockets.
func (p *proxy) run(ctx context.Context) {
	defer p.allOff()
	if !cache.WaitForCacheSync(ctx.Done(), p.synced...) {
		return
	}
	for {
		var retry <-chan time.Time
		if !p.sync(ctx) {
			retry = time.After(relisten)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
			continue
		case <-p.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		select {
		case <-p.changed: // the next sync handles all changes until now
		default:
		}
	}
}

func (p *proxy) allOff() {
	for id, r := range p.on {
		r.closePorts()
		delete(p.on, id)
	}
}

// sync opens and closes the sockets of all machines to match the cluster. It reports
// whether all sockets are open.
func (p *proxy) sync(ctx context.Context) (complete bool) {
	t, err := newTable(p.services, p.slices)
	if err != nil { // cannot happen: the lister reads a cache
		p.log.Error("reading services", "err", err)
		return false
	}
	want := map[cloudsim.InstanceID]machine{}
	about := map[cloudsim.InstanceID]nodeFacts{}
	for _, m := range p.fleet.reachableMachines() {
		if f, ok := p.runsProxy(m); ok {
			want[m.ID], about[m.ID] = m, f
		}
	}
	for id, r := range p.on { // close sockets before opening others, because an address may have moved to another machine
		if m, ok := want[id]; !ok || m.InternalIP() != r.ip {
			r.closePorts()
			delete(p.on, id)
		}
	}
	complete = true
	for id, m := range want {
		r := p.on[id]
		if r == nil {
			r = &responder{log: p.log, kubelet: p.kubelet, ip: m.InternalIP(), broke: p.notify, open: map[socketKey]*socket{}, failed: map[socketKey]string{}}
			p.on[id] = r
		}
		if !r.syncPorts(ctx, t.viewsOf(m, about[id], p.kubelet != nil)) {
			complete = false
		}
	}
	return complete
}

// runsProxy reports whether a machine runs a kube-proxy. A kube-proxy needs the Node of its own
// machine and exits without this Node.
func (p *proxy) runsProxy(m machine) (nodeFacts, bool) {
	n, err := p.nodes.Get(m.Name)
	if err != nil {
		if !apierrors.IsNotFound(err) { // cannot happen: the lister reads a cache
			p.log.Error("reading a node", "node", m.Name, "err", err)
		}
		return nodeFacts{}, false
	}
	return factsOf(n), isHollow(n) && mayBelong(n, m) && m.InternalIP() != ""
}

// viewsOf returns a view for each socket of a machine. A node port without usable endpoints has no
// view.
func (t *table) viewsOf(m machine, f nodeFacts, kubelet bool) map[socketKey]*view {
	base := view{node: m.Name, zone: m.Zone, eligible: f.eligible}
	out := map[socketKey]*view{{proxyHealthz, proxyHealthPort}: &base}
	if kubelet {
		out[socketKey{kubeletAPI, kubeletPort}] = &base
	}
	for _, s := range t.services {
		endpoints := s.endpointsFrom(m.Name, f.zone)
		if len(endpoints) == 0 {
			continue
		}
		v := base
		v.service, v.endpoints = s, endpoints
		key := socketKey{nodePortTCP, s.nodePort}
		if s.protocol == corev1.ProtocolUDP {
			key.role = nodePortUDP
		}
		out[key] = &v
	}
	for _, c := range t.checks {
		v := base
		v.check = c
		out[socketKey{checkNodePort, c.port}] = &v
	}
	return out
}
