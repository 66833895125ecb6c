package metadata

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// finder finds an instance by its internal address. It remembers the instance of each
// address. Before finder returns a remembered instance, it reads this instance from the
// cloud again, because another instance may have the address now. If finder does not know
// the address, or if the remembered instance no longer has the address, finder reads the
// whole list of instances.
type finder struct {
	cloud   Cloud
	listing chan struct{}                                  // capacity 1; it contains a value while finder reads the list
	known   atomic.Pointer[map[string]cloudsim.InstanceID] // by address; "" if several instances have the address
}

func newFinder(c Cloud) *finder {
	f := &finder{cloud: c, listing: make(chan struct{}, 1)}
	f.known.Store(&map[string]cloudsim.InstanceID{})
	return f
}

// find returns the instance with the address ip. At any time, at most one call reads
// the list of instances. Calls for remembered instances do not wait for this call.
func (f *finder) find(ctx context.Context, ip string) (cloudsim.Instance, error) {
	if i, ok, err := f.remembered(ctx, ip); ok || err != nil {
		return i, err
	}
	select {
	case f.listing <- struct{}{}:
		defer func() { <-f.listing }()
	case <-ctx.Done():
		return cloudsim.Instance{}, ctx.Err()
	}
	if i, ok, err := f.remembered(ctx, ip); ok || err != nil { // another call may have read the list
		return i, err
	}
	return f.list(ctx, ip)
}

// remembered returns the remembered instance with the address ip, and whether this instance still
// has the address.
func (f *finder) remembered(ctx context.Context, ip string) (i cloudsim.Instance, ok bool, err error) {
	id := (*f.known.Load())[ip]
	if id == "" {
		return i, false, nil
	}
	i, err = f.cloud.GetInstance(ctx, id)
	if errors.Is(err, cloudsim.NotFound) {
		return i, false, nil
	}
	return i, err == nil && i.InternalIP() == ip, err
}

func (f *finder) list(ctx context.Context, ip string) (found cloudsim.Instance, err error) {
	known := map[string]cloudsim.InstanceID{}
	for o := (cloudsim.ListOptions{Limit: cloudsim.MaxPageSize}); ; {
		l, err := f.cloud.ListInstances(ctx, o)
		if err != nil {
			return found, err
		}
		for _, i := range l.Items {
			at := i.InternalIP()
			if _, shared := known[at]; shared {
				i.ID = ""
			}
			known[at] = i.ID
			if at == ip {
				found = i
			}
		}
		if o.After = l.Next; l.Next == "" {
			break
		}
	}
	f.known.Store(&known)
	switch id, ok := known[ip]; {
	case !ok:
		return found, &httpError{403, "no instance has the caller's address " + ip}
	case id == "":
		return found, &httpError{403, "more than one instance has the address " + ip + ": serve each instance in its own network namespace, with 'allinone metadata --instance'"}
	}
	return found, nil
}
