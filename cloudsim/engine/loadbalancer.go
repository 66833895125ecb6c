package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byTarget = "target"

var loadBalancers = store.Table[cloudsim.LoadBalancer]{
	Kind: cloudsim.KindLoadBalancer, Prefix: "lb",
	ID:    func(l *cloudsim.LoadBalancer) string { return string(l.ID) },
	Meta:  func(l *cloudsim.LoadBalancer) *cloudsim.Meta { return &l.Meta },
	Index: map[string]func(*cloudsim.LoadBalancer) []string{byTarget: targetsOf},
}

func targetsOf(l *cloudsim.LoadBalancer) []string {
	ids := make([]string, len(l.Targets))
	for i, t := range l.Targets {
		ids[i] = string(t.Instance)
	}
	return ids
}

// CreateLoadBalancer makes a load balancer.
func (e *Engine) CreateLoadBalancer(ctx context.Context, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	if err := req.Validate(); err != nil {
		return l, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		l, err = once(tx, call, loadBalancers, req, func() (cloudsim.LoadBalancer, error) {
			return e.loadBalancerByName(tx, call, req)
		})
		return err
	})
	return l, err
}

func (e *Engine) loadBalancerByName(tx *store.Tx, call Call, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	project, err := e.home(tx, call)
	if err != nil {
		return l, err
	}
	differs := func(have cloudsim.LoadBalancer) string {
		switch {
		case have.Region != req.Region:
			return "region " + have.Region
		case req.IP != "" && have.IP != req.IP:
			return "address " + have.IP
		case !sameLabels(have.Labels, req.Labels):
			return "other labels"
		case !sameSpec(have.LoadBalancerSpec, req.LoadBalancerSpec):
			return "other listeners, targets or health check"
		}
		return ""
	}
	have, err := loadBalancers.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newLoadBalancer(tx, call, project, req)
	case err != nil:
		return l, err
	case have.State == cloudsim.LoadBalancerDeleting:
		return l, cloudsim.Errorf(cloudsim.Conflict, "the load balancer %q before, %s, is still being deleted: ask again when it is gone", req.Name, have.ID)
	}
	if d := differs(have); d != "" {
		return l, taken(cloudsim.KindLoadBalancer, req.Name, string(have.ID), d)
	}
	return have, nil
}

func (e *Engine) newLoadBalancer(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	if !regions.Has(tx, req.Region) {
		return l, unknown("region", req.Region, "see GET /v1/regions")
	}
	if err := e.checkTargets(tx, project, req.Region, req.Targets); err != nil {
		return l, err
	}
	id, err := loadBalancers.NextID(tx)
	if err != nil {
		return l, err
	}
	l = cloudsim.LoadBalancer{
		ID:               cloudsim.LoadBalancerID(id),
		Meta:             cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		LoadBalancerSpec: req.LoadBalancerSpec,
		Region:           req.Region,
		State:            cloudsim.LoadBalancerProvisioning,
	}
	if err := e.standOn(tx, &l, req.IP); err != nil {
		return l, err
	}
	return l, e.workOnLoadBalancer(tx, call, &l, cloudsim.Create)
}

// checkTargets refuses targets that are not instances of the project and the
// region. One request names all that are wrong.
func (e *Engine) checkTargets(tx *store.Tx, project cloudsim.ProjectID, region string, targets []cloudsim.Target) error {
	var bad []cloudsim.FieldError
	for n, t := range targets {
		field := fmt.Sprintf("targets[%d].instance", n)
		i, err := instances.Get(tx, string(t.Instance))
		switch {
		case err != nil || i.Project != project:
			bad = append(bad, cloudsim.FieldError{Field: field, Reason: fmt.Sprintf("names %s, which does not exist", t.Instance)})
		case i.Region != region:
			bad = append(bad, cloudsim.FieldError{Field: field, Reason: fmt.Sprintf("names %s, which is in region %s", t.Instance, i.Region)})
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return &cloudsim.Error{Kind: cloudsim.Invalid, Msg: bad[0].Field + " " + bad[0].Reason, Fields: bad}
}

func (e *Engine) workOnLoadBalancer(tx *store.Tx, call Call, l *cloudsim.LoadBalancer, verb cloudsim.Verb) error {
	return work(e, tx, call, loadBalancers, l, verb, e.cfg.Profile.LoadBalancer, e.settledLoadBalancer)
}

func (e *Engine) settledLoadBalancer(tx *store.Tx, l *cloudsim.LoadBalancer) error {
	if err := l.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.end(tx, l.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if l.State != cloudsim.LoadBalancerDeleted {
		return loadBalancers.Put(tx, l)
	}
	if err := e.stepOff(tx, l); err != nil {
		return err
	}
	return loadBalancers.Delete(tx, l)
}

// GetLoadBalancer returns a load balancer; NotFound once it is deleted.
func (e *Engine) GetLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancer, error) {
	return read(ctx, e, loadBalancers, string(id))
}

// ListLoadBalancers returns one page of load balancers.
func (e *Engine) ListLoadBalancers(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error) {
	return page(ctx, e, loadBalancers, o, nil)
}

// UpdateLoadBalancer replaces labels and spec; Stale if rev is neither 0 nor
// its revision. What changes nothing is no work.
func (e *Engine) UpdateLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.UpdateLoadBalancer, rev uint64) (cloudsim.LoadBalancer, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	return e.changeLoadBalancer(ctx, id, rev, func(l *cloudsim.LoadBalancer) {
		l.Labels, l.LoadBalancerSpec = req.Labels, req.LoadBalancerSpec
	})
}

// SetLoadBalancerTargets replaces the set of targets.
func (e *Engine) SetLoadBalancerTargets(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.SetTargets) (cloudsim.LoadBalancer, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	return e.changeLoadBalancer(ctx, id, 0, func(l *cloudsim.LoadBalancer) { l.Targets = req.Targets })
}

func (e *Engine) changeLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, rev uint64, change func(*cloudsim.LoadBalancer)) (l cloudsim.LoadBalancer, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if l, err = get(tx, call, loadBalancers, string(id)); err != nil {
			return err
		}
		if rev != 0 && rev != l.Revision {
			return cloudsim.Errorf(cloudsim.Stale, "load balancer %s is at revision %d, not %d: read it again and decide anew", id, l.Revision, rev)
		}
		before := l
		change(&l)
		if sameLabels(before.Labels, l.Labels) && sameSpec(before.LoadBalancerSpec, l.LoadBalancerSpec) && before.State != cloudsim.LoadBalancerDeleting {
			l = before
			return nil
		}
		if err := e.checkTargets(tx, l.Project, l.Region, l.Targets); err != nil {
			return err
		}
		if err := l.Move(cloudsim.Update); err != nil {
			return err
		}
		l.Status = l.Status.For(l.LoadBalancerSpec)
		return e.workOnLoadBalancer(tx, call, &l, cloudsim.Update)
	})
	return l, err
}

// sameSpec compares what was asked for; nil and empty lists are the same.
func sameSpec(a, b cloudsim.LoadBalancerSpec) bool {
	return a.HealthCheck == b.HealthCheck && slices.Equal(a.Listeners, b.Listeners) && slices.Equal(a.Targets, b.Targets)
}

// DeleteLoadBalancer begins to delete a load balancer and returns it; one that
// is already being deleted is returned as it is.
func (e *Engine) DeleteLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (l cloudsim.LoadBalancer, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if l, err = get(tx, call, loadBalancers, string(id)); err != nil {
			return err
		}
		if l.State == cloudsim.LoadBalancerDeleting {
			return nil
		}
		if err := l.Move(cloudsim.Delete); err != nil {
			return err
		}
		return e.workOnLoadBalancer(tx, call, &l, cloudsim.Delete)
	})
	return l, err
}

// ReportLoadBalancer records what the data plane found. What is already known
// changes nothing, so reporting it again costs no event.
func (e *Engine) ReportLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, s cloudsim.LoadBalancerStatus) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		l, err := get(tx, call, loadBalancers, string(id))
		if err != nil {
			return err
		}
		s = s.For(l.LoadBalancerSpec)
		if reflect.DeepEqual(l.Status, s) {
			return nil
		}
		l.Status = s
		return loadBalancers.Put(tx, &l)
	})
}

// forgetTarget takes an instance that is gone out of every load balancer.
func (e *Engine) forgetTarget(tx *store.Tx, id cloudsim.InstanceID) error {
	found, err := loadBalancers.Lookup(tx, byTarget, string(id))
	if err != nil {
		return err
	}
	for _, l := range found {
		l.Targets = slices.DeleteFunc(l.Targets, func(t cloudsim.Target) bool { return t.Instance == id })
		l.Status = l.Status.For(l.LoadBalancerSpec)
		if err := loadBalancers.Put(tx, &l); err != nil {
			return err
		}
	}
	return nil
}
