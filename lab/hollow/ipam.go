package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// byNode is the name of the index of pods by node.
const byNode = "node"

// ipam assigns addresses to pods, as CNI's host-local plugin does on a machine. From each range of
// the node, ipam takes a free address. It prefers the least recently assigned address. A pod that
// has ended or is gone no longer occupies its addresses.
//
// The permanent state is in the status of the pods. ipam starts after the informer has read all
// pods, and only one goroutine at a time handles a node. So ipam never assigns an address that
// another pod uses.
type ipam struct {
	kube   kubernetes.Interface
	nodes  corelisters.NodeLister
	pods   cache.Indexer
	synced []cache.InformerSynced
	queue  *nodeQueue

	mu    sync.Mutex
	books map[string]*book // by node name
}

// book holds the recent assignments of addresses to pods of one node. The informer's copies
// of the pods may not contain these addresses yet.
type book struct {
	given map[types.UID][]netip.Addr
	last  map[netip.Prefix]netip.Addr
}

var errNoAddress = errors.New("no address is free")

func newIPAM(log *slog.Logger, kube kubernetes.Interface, factory informers.SharedInformerFactory) (*ipam, error) {
	nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
	a := &ipam{
		kube: kube, nodes: nodes.Lister(), pods: pods.Informer().GetIndexer(), books: map[string]*book{},
	}
	a.queue = newNodeQueue(log, "cannot set the addresses of pods on a hollow node", a.sync)
	if err := pods.Informer().AddIndexers(cache.Indexers{byNode: nodeOfPod}); err != nil {
		return nil, fmt.Errorf("pod informer: %w", err)
	}
	node := func(obj any) {
		if n, ok := obj.(*corev1.Node); ok && takesPods(n) {
			a.queue.add(n.Name)
		}
	}
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{"node", nodes.Informer(), cache.ResourceEventHandlerFuncs{AddFunc: node, UpdateFunc: func(_, obj any) { node(obj) }, DeleteFunc: a.forget}},
		{"pod", pods.Informer(), cache.ResourceEventHandlerFuncs{AddFunc: a.queueNodeOf, UpdateFunc: func(_, obj any) { a.queueNodeOf(obj) }, DeleteFunc: a.queueNodeOf}},
	} {
		handle, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return nil, fmt.Errorf("%s informer: %w", w.kind, err)
		}
		a.synced = append(a.synced, handle.HasSynced)
	}
	return a, nil
}

// nodeOfPod indexes a pod by its node. An unscheduled pod has no index entry.
func nodeOfPod(obj any) ([]string, error) {
	if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

// queueNodeOf queues the node of a pod that changed. The pod may need an address, or may have
// freed its addresses.
func (a *ipam) queueNodeOf(obj any) {
	gone, deleted := obj.(cache.DeletedFinalStateUnknown)
	if deleted {
		obj = gone.Obj
	}
	if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" && !p.Spec.HostNetwork {
		a.queue.add(p.Spec.NodeName)
	}
}

// forget deletes the recent assignments of a deleted Node.
func (a *ipam) forget(obj any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.books, name)
	}
}

// takesPods reports whether a Node is hollow, has pod ranges, and has kwok's label. This label
// means that the machine of the Node is on.
func takesPods(n *corev1.Node) bool {
	return isHollow(n) && hasKwokLabel(n) && len(n.Spec.PodCIDRs) != 0
}

func (a *ipam) run(ctx context.Context) {
	a.queue.run(ctx, func(ctx context.Context) bool { return cache.WaitForCacheSync(ctx.Done(), a.synced...) })
}

// sync assigns addresses to each pod of the node that needs addresses.
func (a *ipam) sync(ctx context.Context, node string) error {
	n, err := a.nodes.Get(node)
	if apierrors.IsNotFound(err) || err == nil && !takesPods(n) {
		return nil
	}
	if err != nil {
		return err
	}
	objs, err := a.pods.ByIndex(byNode, node)
	if err != nil {
		return err
	}
	pods := make([]*corev1.Pod, len(objs))
	for i, obj := range objs {
		pods[i] = obj.(*corev1.Pod)
	}
	b := a.book(node)
	taken := b.takenAddresses(pods)
	for _, p := range pods {
		if !needsAddress(p) {
			continue
		}
		ips, err := b.give(p, n.Spec.PodCIDRs, taken)
		if err != nil {
			return err
		}
		if err := a.write(ctx, p, ips); err != nil {
			return err
		}
	}
	return nil
}

func (a *ipam) book(node string) *book {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.books[node]
	if b == nil {
		b = &book{given: map[types.UID][]netip.Addr{}, last: map[netip.Prefix]netip.Addr{}}
		a.books[node] = b
	}
	return b
}

func needsAddress(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.PodIP == "" && p.DeletionTimestamp == nil && !hasEnded(p)
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// takenAddresses returns the addresses of a node's pods, including assigned addresses that are
// not in a pod's status yet. It also deletes the record of an assignment if the pod's status
// contains the addresses or if the pod is gone.
func (b *book) takenAddresses(pods []*corev1.Pod) map[netip.Addr]bool {
	taken, given := map[netip.Addr]bool{}, map[types.UID][]netip.Addr{}
	for _, p := range pods {
		if hasEnded(p) || p.Spec.HostNetwork {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil {
				taken[addr] = true
			}
		}
		if ips := b.given[p.UID]; p.Status.PodIP == "" && ips != nil {
			given[p.UID] = ips
			for _, addr := range ips {
				taken[addr] = true
			}
		}
	}
	b.given = given
	return taken
}

// give assigns one free address of each range to a pod. It records the
// addresses before the caller writes them to the API server. So a retry after a
// failed write assigns the recorded addresses again.
func (b *book) give(p *corev1.Pod, ranges []string, taken map[netip.Addr]bool) ([]netip.Addr, error) {
	if ips := b.given[p.UID]; ips != nil {
		return ips, nil
	}
	var ips []netip.Addr
	for _, cidr := range ranges {
		in, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("spec.podCIDRs: %w", err)
		}
		ip, ok := nextFree(in.Masked(), b.last[in], taken)
		if !ok {
			return nil, fmt.Errorf("%w in %s for pod %s/%s: %d are taken", errNoAddress, in, p.Namespace, p.Name, len(taken))
		}
		b.last[in] = ip
		ips = append(ips, ip)
	}
	for _, ip := range ips {
		taken[ip] = true
	}
	b.given[p.UID] = ips
	return ips, nil
}

// nextFree returns the first free address of ipRange after the given previous address. After the
// end of the range, nextFree continues at the beginning. It skips three reserved addresses: the
// first for the network, the second for the bridge, and the last for broadcasts.
func nextFree(ipRange netip.Prefix, previous netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	first := ipRange.Addr().Next().Next()
	usable := func(ip netip.Addr) bool { return ipRange.Contains(ip) && ipRange.Contains(ip.Next()) }
	at := first
	if previous.IsValid() && usable(previous.Next()) {
		at = previous.Next()
	}
	// Among len(taken)+1 different addresses at least one is free.
	for range len(taken) + 1 {
		if !usable(at) {
			at = first
		}
		if !usable(at) {
			break
		}
		if !taken[at] {
			return at, true
		}
		at = at.Next()
	}
	return netip.Addr{}, false
}

// The method write patches the addresses into a pod's status. The patch
// contains the pod's uid. So the API server refuses the patch if a new pod with
// the same name has replaced the pod.
func (a *ipam) write(ctx context.Context, p *corev1.Pod, ips []netip.Addr) error {
	podIPs := make([]corev1.PodIP, len(ips))
	for i, ip := range ips {
		podIPs[i].IP = ip.String()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status":   map[string]any{"podIP": podIPs[0].IP, "podIPs": podIPs},
	})
	if err != nil {
		return err
	}
	_, err = a.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return ifThere(err)
}
