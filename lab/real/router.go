package real

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/follow"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// Services are what machines find in the VPC, beside each other.
type Services struct {
	// Metadata answers for the metadata service, as whoever may speak for any
	// instance.
	Metadata metadata.Cloud
	// Endpoints are ports of the host's address in the VPC, by the address
	// that each leads to: what runs on the host and machines must reach.
	Endpoints map[int]string
}

// RouterConfig is what the router of a VPC needs that hypervisors share.
type RouterConfig struct {
	Services
	// Cloud needs to read instances, routes and events.
	Cloud *client.Client
	// Dir is the router's own folder, absolute.
	Dir string
	// Network must have its bridge on the host.
	Network Network
}

// Validate says everything that is wrong with c.
func (c RouterConfig) Validate() error {
	errs := []error{checkCloud(c.Cloud), checkDir(c.Dir), c.Network.Validate(), asRoot()}
	if c.Metadata == nil {
		errs = append(errs, errNoMetadata)
	}
	if !c.Network.BridgeOnHost {
		errs = append(errs, errors.New("a bridge in the router's own namespace is reached by no other process"))
	}
	return errors.Join(errs...)
}

// Route makes a VPC for hypervisors that are other processes, in this process'
// network namespace, and is its router until ctx ends. Then the router is gone
// with its routes, and the bridge stays: machines of one hop go on reaching each
// other, and the next router is plugged into it.
func Route(ctx context.Context, log *slog.Logger, c RouterConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(c.Dir, vpcFile)
	v, err := openVPC(file, c.Network)
	if err != nil {
		return err
	}
	r := newRouter(log, c.Cloud, v)
	work, err := r.serve(ctx, c.Services)
	if err == nil {
		watching, stop := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { r.watch(watching) })
		err = work.Wait()
		stop()
		watch.Wait()
	}
	return errors.Join(err, v.close(), dropNetNS(file))
}

// router keeps the routes of a VPC what the cloud's table says, and serves in it.
type router struct {
	log   *slog.Logger
	cloud *client.Client
	vpc   *vpc
	table *table
}

func newRouter(log *slog.Logger, cloud *client.Client, v *vpc) *router {
	return &router{log: log, cloud: cloud, vpc: v, table: newTable()}
}

// serve listens, and then serves and routes until ctx ends, or a part of it fails.
func (r *router) serve(ctx context.Context, s Services) (*errgroup.Group, error) {
	work, ctx := errgroup.WithContext(ctx)
	if err := r.serveEndpoints(ctx, work, s); err != nil {
		return nil, err
	}
	work.Go(func() error {
		r.table.news.each(ctx, func() error { return r.vpc.setRoutes(r.table.active(r.vpc.VPC)) }, func(err error) {
			r.log.Warn("the router is not as the cloud says; trying again", "err", err)
		})
		return nil
	})
	work.Go(func() error {
		follow.Run(ctx, r.cloud.Watch, &routed{r, follow.Teller{Log: r.log}}, retry())
		return nil
	})
	return work, nil
}

// routed is the router's picture of the cloud. Without the cloud the routes stay.
type routed struct {
	*router
	follow.Teller
}

// List has the table be what the cloud says of routes and their next hops.
func (r *routed) List(ctx context.Context) (follow.Listed, error) {
	instances, at, err := cloudsim.All(ctx, r.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	routes, routesAt, err := cloudsim.All(ctx, r.cloud.ListRoutes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	r.table.fill(instances, routes)
	return follow.Listed{cloudsim.KindInstance: at, cloudsim.KindRoute: routesAt}, nil
}

// Take passes an event on.
func (r *routed) Take(_ context.Context, e cloudsim.Event) error {
	gone := e.Type == cloudsim.EventDelete
	if e.Kind == cloudsim.KindRoute {
		route, err := object[cloudsim.Route](e)
		if err == nil {
			r.table.put(route, gone)
		}
		return err
	}
	i, err := object[cloudsim.Instance](e)
	if err == nil {
		r.table.locate(i, gone)
	}
	return err
}

// How often the router looks for the machines of running instances, and how
// long one may take to boot, also where images must be unpacked first.
const (
	missingEvery = 5 * time.Second
	missingAfter = time.Minute
)

// watch says of a running instance that has no machine, once, and when it has
// one again. No hypervisor knows that: each knows its own zones.
func (r *router) watch(ctx context.Context) {
	look := time.NewTicker(missingEvery)
	defer look.Stop()
	m := missing{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		there, err := r.vpc.bridge.cables()
		if err != nil {
			r.log.Warn("looking for machines", "err", err)
			continue
		}
		lost, found := m.look(time.Now(), r.table.running(), there)
		for _, i := range lost {
			r.log.Warn("the cloud calls an instance running, and there is no machine of it: does a host serve its zone, and does it run?",
				"instance", i.ID, "name", i.Name, "zone", i.Zone, "after", missingAfter)
		}
		for _, i := range found {
			r.log.Info("the instance has its machine again", "instance", i.ID, "name", i.Name, "zone", i.Zone)
		}
	}
}

// missing are running instances without a machine.
type missing map[cloudsim.InstanceID]*absence

type absence struct {
	since time.Time
	told  bool
}

// look returns the instances that have had no machine for too long, each once,
// and those of them that have one again.
func (m missing) look(now time.Time, running []cloudsim.Instance, there map[string]bool) (lost, found []cloudsim.Instance) {
	runs := map[cloudsim.InstanceID]bool{}
	for _, i := range running {
		runs[i.ID] = true
		a := m[i.ID]
		switch {
		case there[string(i.ID)]:
			if a != nil && a.told {
				found = append(found, i)
			}
			delete(m, i.ID)
		case a == nil:
			m[i.ID] = &absence{since: now}
		case !a.told && now.Sub(a.since) >= missingAfter:
			a.told = true
			lost = append(lost, i)
		}
	}
	for id := range m {
		if !runs[id] {
			delete(m, id)
		}
	}
	return lost, found
}
