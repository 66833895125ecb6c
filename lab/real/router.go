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
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// Services holds the services that machines can call in the VPC.
type Services struct {
	// Metadata is the data source of the metadata service. The source's credentials must allow
	// reads for all instances.
	Metadata metadata.Cloud
	// Endpoints maps a port to the address of a service on the host. Machines reach the service
	// at this port of the host's address in the VPC.
	Endpoints map[int]string
}

// RouterConfig holds the settings of a router that serves hypervisors in other processes.
type RouterConfig struct {
	Services
	// Cloud is the client with which the router calls the cloud. The client's credentials must
	// allow reads of instances, routes and events.
	Cloud *client.Client
	// Dir is the absolute path of the router's own folder.
	Dir string
	// Network must have BridgeOnHost set.
	Network Network
}

// Validate returns one error that lists all invalid fields of c.
func (c RouterConfig) Validate() error {
	errs := []error{checkCloud(c.Cloud), checkDir(c.Dir), c.Network.Validate(), asRoot()}
	if c.Metadata == nil {
		errs = append(errs, errNoMetadata)
	}
	if !c.Network.BridgeOnHost {
		errs = append(errs, errors.New("the network needs a bridge on the host: other processes cannot reach a bridge in the router's own namespace"))
	}
	return errors.Join(errs...)
}

// Route creates a VPC in this process's network namespace, for hypervisors in other processes. It
// runs the VPC's router until ctx ends. Then it deletes the router and the router's routes, but the
// bridge stays. So machines still reach each other directly, and the next router connects to this
// bridge. The firewall rules and the changed settings of the host stay, too.
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
		watch.Go(func() { r.watchMachines(watching) })
		err = work.Wait()
		stop()
		watch.Wait()
	}
	return errors.Join(err, v.close(), dropNetNS(file))
}

// router applies the cloud's routes to a VPC and runs the VPC's services.
type router struct {
	log   *slog.Logger
	cloud *client.Client
	vpc   *vpc
	table *table
}

func newRouter(log *slog.Logger, cloud *client.Client, v *vpc) *router {
	return &router{log: log, cloud: cloud, vpc: v, table: newTable()}
}

// serve starts the services and the routing. The services and the routing run until ctx ends or one
// of them fails.
func (r *router) serve(ctx context.Context, s Services) (*errgroup.Group, error) {
	work, ctx := errgroup.WithContext(ctx)
	names, err := r.newNameServer(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.serveEndpoints(ctx, work, s); err != nil {
		if names != nil {
			err = errors.Join(err, names.UDP.Close(), names.TCP.Close())
		}
		return nil, err
	}
	if names != nil {
		work.Go(func() error { return names.Run(ctx) })
	}
	work.Go(func() error {
		r.table.news.forEach(ctx, func() error { return r.vpc.setRoutes(r.table.activeRoutes(r.vpc.Network)) }, func(err error) {
			r.log.Warn("routes not updated; retrying", "err", err)
		})
		return nil
	})
	work.Go(func() error {
		informer.Run(ctx, r.cloud.Watch, &routeUpdater{r, informer.OutageLogger{Log: r.log}}, retryBackoff())
		return nil
	})
	return work, nil
}

// routeUpdater applies the cloud's events to the router. While the cloud is unavailable, the
// routes do not change.
type routeUpdater struct {
	*router
	informer.OutageLogger
}

// List reads all routes and instances into the table.
func (r *routeUpdater) List(ctx context.Context) (informer.Listed, error) {
	instances, at, err := cloudsim.All(ctx, r.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	routes, routesAt, err := cloudsim.All(ctx, r.cloud.ListRoutes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	r.table.fill(instances, routes)
	return informer.Listed{cloudsim.KindInstance: at, cloudsim.KindRoute: routesAt}, nil
}

// Take applies an event to the table.
func (r *routeUpdater) Take(_ context.Context, e cloudsim.Event) error {
	deleted := e.Type == cloudsim.EventDelete
	if e.Kind == cloudsim.KindRoute {
		route, err := object[cloudsim.Route](e)
		if err == nil {
			r.table.put(route, deleted)
		}
		return err
	}
	i, err := object[cloudsim.Instance](e)
	if err == nil {
		r.table.putInstance(i, deleted)
	}
	return err
}

// missingEvery is the interval at which the router checks whether each running instance has a
// machine. missingAfter is the time that a machine may take to boot, including the unpacking of
// images.
const (
	missingEvery = 5 * time.Second
	missingAfter = time.Minute
)

// watchMachines logs a warning once if a running instance has no machine, and a second message when
// the instance has a machine again. If no hypervisor serves the zone of an instance, only the
// router can detect that the machine is missing.
func (r *router) watchMachines(ctx context.Context) {
	look := time.NewTicker(missingEvery)
	defer look.Stop()
	m := missingMachines{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		links, err := r.vpc.bridge.linkNames()
		if err != nil {
			r.log.Warn("machines not listed; retrying", "err", err)
			continue
		}
		missing, recovered := m.update(time.Now(), r.table.runningInstances(), links)
		for _, i := range missing {
			r.log.Warn("a running instance has no machine: check that a host for this zone runs; if the machine stopped by itself, reboot the instance",
				"instance", i.ID, "name", i.Name, "zone", i.Zone, "after", missingAfter)
		}
		for _, i := range recovered {
			r.log.Info("the instance has a machine again", "instance", i.ID, "name", i.Name, "zone", i.Zone)
		}
	}
}

// missingMachines holds the running instances without a machine.
type missingMachines map[cloudsim.InstanceID]*absence

type absence struct {
	since    time.Time
	reported bool
}

// update returns the changes since the previous call. If a running instance has had no machine for
// the time missingAfter, one call returns the instance in the first result. If this instance has a
// machine again later, one call returns the instance in the second result. The argument links
// contains the names of all links in the namespace of the VPC's bridge. The link of a machine has
// the instance's ID as its name.
func (m missingMachines) update(now time.Time, running []cloudsim.Instance, links map[string]bool) (missing, recovered []cloudsim.Instance) {
	runs := map[cloudsim.InstanceID]bool{}
	for _, i := range running {
		runs[i.ID] = true
		a := m[i.ID]
		switch {
		case links[string(i.ID)]:
			if a != nil && a.reported {
				recovered = append(recovered, i)
			}
			delete(m, i.ID)
		case a == nil:
			m[i.ID] = &absence{since: now}
		case !a.reported && now.Sub(a.since) >= missingAfter:
			a.reported = true
			missing = append(missing, i)
		}
	}
	for id := range m {
		if !runs[id] {
			delete(m, id)
		}
	}
	return missing, recovered
}
