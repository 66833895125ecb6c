package conform

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// observer records every version of the Nodes and Services that the API server reports. So a check
// can also verify past versions, for example the first version without a certain taint.
type observer struct {
	mu      sync.Mutex
	changed chan struct{} // recordVersion closes and replaces this channel
	history map[string][]version
}

// version is the state of a Node or Service at one moment.
type version struct {
	at     time.Time
	object any // *v1.Node or *v1.Service; nil if the object did not exist at this moment
}

func newObserver() *observer {
	return &observer{changed: make(chan struct{}), history: map[string][]version{}}
}

// follow registers the observer with the informers.
func (o *observer) follow(f informers.SharedInformerFactory) error {
	for _, i := range []cache.SharedIndexInformer{f.Core().V1().Nodes().Informer(), f.Core().V1().Services().Informer()} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { o.recordVersion(obj, false) },
			UpdateFunc: func(_, obj any) { o.recordVersion(obj, false) },
			DeleteFunc: func(obj any) { o.recordVersion(obj, true) },
		}); err != nil {
			return err
		}
	}
	return nil
}

func (o *observer) recordVersion(obj any, deleted bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	key, err := objectKey(obj)
	if err != nil {
		return // cannot happen: only Nodes and Services have informers
	}
	v := version{at: time.Now(), object: obj}
	if deleted {
		v.object = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.history[key] = append(o.history[key], v)
	close(o.changed)
	o.changed = make(chan struct{})
}

func nodeKey(name string) string      { return "node/" + name }
func serviceKey(s *v1.Service) string { return "service/" + s.Namespace + "/" + s.Name }

func objectKey(obj any) (string, error) {
	switch x := obj.(type) {
	case *v1.Node:
		return nodeKey(x.Name), nil
	case *v1.Service:
		return serviceKey(x), nil
	}
	return "", fmt.Errorf("%T is neither a Node nor a Service", obj)
}

// versionsOf returns the recorded versions of an object. It also returns a channel that
// recordVersion closes when it records the next version of any object.
func (o *observer) versionsOf(key string) ([]version, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.history[key]), o.changed
}

// lastVersion returns the last version of an object, or nil if the object does not exist.
func lastVersion[T any](all []version) *T {
	if len(all) == 0 {
		return nil
	}
	object, _ := all[len(all)-1].object.(*T)
	return object
}

// timeline describes all versions of the objects that have the given name in their keys. Each line
// contains the time that has passed since the given start.
func (o *observer) timeline(name string, begin time.Time) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for key, all := range o.history {
		if !strings.Contains(key, name) {
			continue
		}
		for _, v := range all {
			lines = append(lines, line{v.at, key + ": " + describe(v.object)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var texts []string
	for _, l := range lines {
		texts = append(texts, fmt.Sprintf("%+6.1f s  %s", l.at.Sub(begin).Seconds(), l.text))
	}
	return texts
}

// describe returns a text with the fields of obj that a CCM reads or writes.
func describe(obj any) string {
	switch x := obj.(type) {
	case *v1.Node:
		var taints, addresses []string
		for _, t := range x.Spec.Taints {
			taints = append(taints, t.Key)
		}
		for _, a := range x.Status.Addresses {
			addresses = append(addresses, string(a.Type)+"="+a.Address)
		}
		return fmt.Sprintf("providerID=%q zone=%q type=%q addresses=%v taints=%v", x.Spec.ProviderID, x.Labels[v1.LabelTopologyZone], x.Labels[v1.LabelInstanceTypeStable], addresses, taints)
	case *v1.Service:
		return fmt.Sprintf("type=%s ingress=%v finalizers=%v deleting=%t", x.Spec.Type, addressesOf(x), x.Finalizers, x.DeletionTimestamp != nil)
	}
	return "deleted"
}

func addressesOf(s *v1.Service) (all []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			all = append(all, i.IP)
		}
		if i.Hostname != "" {
			all = append(all, i.Hostname)
		}
	}
	return all
}
