package metadata

import (
	"context"
	"errors"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// finder finds an instance by its internal address. It remembers the instance of each
// address. Before finder returns a remembered instance, it reads this instance from the
// cloud again, because another instance may have the address now. If finder does not know
// the address, or if the remembered instance no longer has the address, finder reads the
// whole list of instances.
type finder struct {
	cloud Cloud
	mu    sync.Mutex // walk holds the mutex while it calls the cloud, so that only one walk runs at a time
	known map[string]cloudsim.InstanceID
}

func (f *finder) find(ctx context.Context, ip string) (cloudsim.Instance, error) {
	f.mu.Lock()
	id, ok := f.known[ip]
	f.mu.Unlock()
	if ok {
		i, err := f.cloud.GetInstance(ctx, id)
		if err == nil && i.InternalIP() == ip {
			return i, nil
		}
		if err != nil && !errors.Is(err, cloudsim.NotFound) {
			return i, err
		}
	}
	return f.walk(ctx, ip)
}

func (f *finder) walk(ctx context.Context, ip string) (found cloudsim.Instance, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = map[string]cloudsim.InstanceID{}
	for o := (cloudsim.ListOptions{Limit: cloudsim.MaxPageSize}); ; {
		l, err := f.cloud.ListInstances(ctx, o)
		if err != nil {
			return found, err
		}
		for _, i := range l.Items {
			f.known[i.InternalIP()] = i.ID
			if i.InternalIP() == ip {
				if found.ID != "" {
					return found, &httpError{403, "more than one instance has the address " + ip + ": each instance needs its own listener"}
				}
				found = i
			}
		}
		if o.After = l.Next; l.Next == "" {
			break
		}
	}
	if found.ID == "" {
		return found, &httpError{403, "no instance has the caller's address " + ip}
	}
	return found, nil
}
