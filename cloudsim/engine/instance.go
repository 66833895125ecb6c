package engine

import (
	"context"
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

var instances = store.Table[cloudsim.Instance]{
	Kind: cloudsim.KindInstance, Prefix: "i",
	ID:   func(i *cloudsim.Instance) string { return string(i.ID) },
	Meta: func(i *cloudsim.Instance) *cloudsim.Meta { return &i.Meta },
	Uses: store.One[cloudsim.Instance](cloudsim.QuotaInstances),
	Index: map[string]func(*cloudsim.Instance) []string{
		byAccount: func(i *cloudsim.Instance) []string { return ofAccount(i.ServiceAccount) },
		bySubnet:  subnetsOf,
	},
}

const bySubnet = "subnet"

// CreateInstance begins to create an instance. If an instance with the same name exists and matches
// the request, CreateInstance returns the existing instance. If the existing instance does not
// match, CreateInstance returns Exists. While the existing instance terminates, CreateInstance
// returns Conflict.
func (e *Engine) CreateInstance(ctx context.Context, req cloudsim.CreateInstance) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		i, err = idempotent(tx, call, instances, req, func() (cloudsim.Instance, error) {
			return e.instanceByName(tx, call, req)
		})
		return err
	})
	return i, err
}

// instanceByName returns the existing instance with the requested name, or an error if that
// instance does not match the request. If no instance has this name, instanceByName creates one.
func (e *Engine) instanceByName(tx *store.Tx, call Call, req cloudsim.CreateInstance) (i cloudsim.Instance, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return i, err
	}
	have, err := instances.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newInstance(tx, call, project, req)
	case err != nil:
		return i, err
	case have.State == cloudsim.InstanceTerminating:
		return i, cloudsim.Errorf(cloudsim.Conflict, "the earlier instance %q (%s) is still terminating: try again when it is deleted", req.Name, have.ID)
	case have.Zone != req.Zone || have.Type != req.Type:
		return i, errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "zone "+have.Zone+" and type "+have.Type)
	case req.Network != "" && req.Network != have.Network || req.Subnet != "" && req.Subnet != have.Subnet:
		return i, errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "network "+string(have.Network)+" and subnet "+string(have.Subnet))
	case req.Address != "" && !hasAddress(have, req.Address):
		return i, errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "address "+have.InternalIP())
	case !sameLabels(have.Labels, req.Labels):
		return i, errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "other labels")
	case req.ServiceAccount != "" && !hasAccount(tx, call, have, req.ServiceAccount):
		return i, errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "another service account")
	}
	same, err := sameUserData(tx, have.ID, req.UserData)
	if err == nil && !same {
		err = errNameTaken(cloudsim.KindInstance, req.Name, string(have.ID), "other user data")
	}
	return have, err
}

func (e *Engine) newInstance(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateInstance) (i cloudsim.Instance, err error) {
	region, err := regionOfZone(tx, "zone", req.Zone)
	if err != nil {
		return i, err
	}
	if !instanceTypes.Has(tx, req.Type) {
		return i, errUnknownReference("type", req.Type, "see GET /v1/instance-types")
	}
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaInstances, N: 1}); err != nil {
		return i, err
	}
	account, err := accountToCarry(tx, call, project, req.ServiceAccount)
	if err != nil {
		return i, err
	}
	n, s, err := e.placeInstance(tx, project, region, req)
	if err != nil {
		return i, err
	}
	ips, err := takeAddresses(tx, s, req.Address)
	if err != nil {
		return i, err
	}
	pods, err := takePodRanges(tx, n)
	if err != nil {
		return i, err
	}
	id, err := instances.NextID(tx)
	if err != nil {
		return i, err
	}
	i = cloudsim.Instance{
		ID:   cloudsim.InstanceID(id),
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Zone: req.Zone, Region: region, Type: req.Type, ServiceAccount: account,
		State:      cloudsim.InstanceProvisioning,
		ProviderID: providerid.ID{Region: region, Zone: req.Zone, Instance: id}.String(),
		Network:    n.ID, Subnet: s.ID, PodRanges: pods,
		Addresses: append(ips, cloudsim.InstanceAddress{Type: cloudsim.AddressHostname, Address: req.Name}),
	}
	if err := putUserData(tx, i.ID, req.UserData); err != nil {
		return i, err
	}
	return i, e.workOnInstance(tx, call, &i, cloudsim.Create, e.cfg.Profile.Provision)
}

// errUnknownReference returns Invalid for a field that names a resource which does not
// exist.
func errUnknownReference(field, value, hint string) error {
	return cloudsim.InvalidField(field, value+" does not exist; "+hint)
}

// workOnInstance begins work on an instance. Before the call, the caller must change the state of
// the instance. workOnInstance clears the field Crashed, because each new operation ends the
// crashed state of an instance.
func (e *Engine) workOnInstance(tx *store.Tx, call Call, i *cloudsim.Instance, verb cloudsim.Verb, takes time.Duration) error {
	i.Crashed = nil
	if err := beginWork(e, tx, call, instances, i, verb, takes, e.settledInstance); err != nil {
		return err
	}
	return reroute(tx, i)
}

func (e *Engine) settledInstance(tx *store.Tx, i *cloudsim.Instance) error {
	if err := i.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, i.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if err := reroute(tx, i); err != nil {
		return err
	}
	if i.State != cloudsim.InstanceTerminated {
		return instances.Put(tx, i)
	}
	if err := giveAddresses(tx, i); err != nil {
		return err
	}
	if err := e.forgetTarget(tx, i.ID); err != nil {
		return err
	}
	if err := e.forgetAttachments(tx, i.ID); err != nil {
		return err
	}
	if err := userData.Delete(tx, string(i.ID)); err != nil {
		return err
	}
	return instances.Delete(tx, i)
}

// GetInstance returns an instance, or NotFound after the instance has
// terminated.
func (e *Engine) GetInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return read(ctx, e.core, instances, string(id))
}

// ListInstances returns one page of instances.
func (e *Engine) ListInstances(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error) {
	return listPage(ctx, e.core, instances, o, func(i *cloudsim.Instance) string { return i.Zone })
}

// StartInstance begins to start a stopped instance.
func (e *Engine) StartInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return e.moveInstance(ctx, id, cloudsim.Start, e.cfg.Profile.Boot)
}

// StopInstance begins to stop an instance. The instance keeps its addresses.
func (e *Engine) StopInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return e.moveInstance(ctx, id, cloudsim.Stop, e.cfg.Profile.Shutdown)
}

// UpdateInstance replaces the labels of an instance in any state. It returns
// Stale if rev is neither 0 nor the instance's revision.
func (e *Engine) UpdateInstance(ctx context.Context, id cloudsim.InstanceID, req cloudsim.UpdateInstance, rev uint64) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	return setLabels(ctx, e, instances, string(id), req.Labels, rev)
}

// RebootInstance begins to reboot an instance.
func (e *Engine) RebootInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return e.moveInstance(ctx, id, cloudsim.Reboot, e.cfg.Profile.Boot)
}

// CrashInstance simulates a power failure of a running instance. Programs on the
// instance get no warning. The instance stays in state running, but it is off
// until its next operation, for example a reboot. CrashInstance does not change
// an instance that has already crashed.
func (e *Engine) CrashInstance(ctx context.Context, id cloudsim.InstanceID) (i cloudsim.Instance, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if err := i.Move(cloudsim.Crash); err != nil || i.Crashed != nil {
			return err
		}
		i.Crashed = &tx.Now
		return instances.Put(tx, &i)
	})
	return i, err
}

// DeleteInstance begins to terminate an instance and returns the instance. It
// does not change an instance that is already terminating.
func (e *Engine) DeleteInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return e.moveInstance(ctx, id, cloudsim.Terminate, e.cfg.Profile.Shutdown)
}

func (e *Engine) moveInstance(ctx context.Context, id cloudsim.InstanceID, verb cloudsim.Verb, takes time.Duration) (i cloudsim.Instance, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if verb == cloudsim.Terminate && i.State == cloudsim.InstanceTerminating {
			return nil
		}
		if err := i.Move(verb); err != nil {
			return err
		}
		return e.workOnInstance(tx, call, &i, verb, takes)
	})
	return i, err
}
