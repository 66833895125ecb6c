package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byTarget = "target"

var loadBalancers = store.Table[cloudsim.LoadBalancer]{
	Kind: cloudsim.KindLoadBalancer, Prefix: "lb",
	ID:    func(l *cloudsim.LoadBalancer) string { return string(l.ID) },
	Meta:  func(l *cloudsim.LoadBalancer) *cloudsim.Meta { return &l.Meta },
	Uses:  store.One[cloudsim.LoadBalancer](cloudsim.QuotaLoadBalancers),
	Index: map[string]func(*cloudsim.LoadBalancer) []string{byTarget: targetsOf, byPublished: publishedOf},
}

func targetsOf(l *cloudsim.LoadBalancer) []string {
	var ids []string
	for _, list := range l.TargetLists() {
		for _, t := range list {
			ids = append(ids, string(t.Instance))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids) // several targets may have the same instance
}

// CreateLoadBalancer begins to create a load balancer. If a load balancer with the same name exists
// and matches the request, CreateLoadBalancer returns the existing load balancer. It returns Exists
// if that load balancer differs, and Conflict if it is in state deleting.
func (e *Engine) CreateLoadBalancer(ctx context.Context, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	if err := req.Validate(); err != nil {
		return l, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		l, err = idempotent(tx, call, loadBalancers, req, func() (cloudsim.LoadBalancer, error) {
			return e.loadBalancerByName(tx, call, req)
		})
		return err
	})
	return l, err
}

func (e *Engine) loadBalancerByName(tx *store.Tx, call Call, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return l, err
	}
	have, err := loadBalancers.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newLoadBalancer(tx, call, project, req)
	case err != nil:
		return l, err
	case have.State == cloudsim.LoadBalancerDeleting:
		return l, cloudsim.Errorf(cloudsim.Conflict, "the earlier load balancer %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	}
	if d := differsFrom(have, req); d != "" {
		return l, errNameTaken(cloudsim.KindLoadBalancer, req.Name, string(have.ID), d)
	}
	return have, nil
}

// differsFrom describes a difference between the existing load balancer and the
// request. It returns "" if the load balancer matches the request.
func differsFrom(have cloudsim.LoadBalancer, req cloudsim.CreateLoadBalancer) string {
	var ips []string
	for _, a := range have.Addresses {
		ips = append(ips, a.IP)
	}
	for _, text := range req.Addresses {
		ip, err := netip.ParseAddr(text) // one IPv6 address can have several spellings
		if err != nil || !slices.Contains(ips, ip.String()) {
			return "address " + strings.Join(ips, " and ")
		}
	}
	switch {
	case have.Region != req.Region:
		return "region " + have.Region
	case have.Scheme != cmp.Or(req.Scheme, cloudsim.SchemeExternal):
		return "scheme " + string(have.Scheme)
	case !slices.Equal(have.Families(), familiesOf(req.Families, req.Addresses)):
		return fmt.Sprintf("families %v", have.Families())
	case !sameLabels(have.Labels, req.Labels):
		return "other labels"
	case !have.Same(req.LoadBalancerSpec):
		return "other listeners, targets, health check or rules"
	}
	return ""
}

func (e *Engine) newLoadBalancer(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateLoadBalancer) (l cloudsim.LoadBalancer, err error) {
	if !regions.Has(tx, req.Region) {
		return l, errUnknownReference("region", req.Region, "see GET /v1/regions")
	}
	if err := e.checkTargets(tx, project, req.Region, req.LoadBalancerSpec, cloudsim.LoadBalancerSpec{}); err != nil {
		return l, err
	}
	if err := errors.Join(
		e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaLoadBalancers, N: 1}),
		e.checkQuotaEach(tx, project, cloudsim.QuotaListeners, len(req.Listeners)),
	); err != nil {
		return l, err
	}
	id, err := loadBalancers.NextID(tx)
	if err != nil {
		return l, err
	}
	req.Listeners = nonNilList(req.Listeners)
	l = cloudsim.LoadBalancer{
		ID:               cloudsim.LoadBalancerID(id),
		Meta:             cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		LoadBalancerSpec: req.LoadBalancerSpec,
		Region:           req.Region,
		Scheme:           cmp.Or(req.Scheme, cloudsim.SchemeExternal),
		State:            cloudsim.LoadBalancerProvisioning,
	}
	if err := e.assignAddresses(tx, &l, familiesOf(req.Families, req.Addresses), req.Addresses); err != nil {
		return l, err
	}
	if err := e.publish(tx, &l); err != nil {
		return l, err
	}
	return l, e.workOnLoadBalancer(tx, call, &l, cloudsim.Create)
}

// nonNilList replaces a nil list with an empty list, so that the API always returns a list of
// listeners.
func nonNilList(listeners []cloudsim.Listener) []cloudsim.Listener {
	if listeners == nil {
		return []cloudsim.Listener{}
	}
	return listeners
}

// checkTargets returns Invalid if a target is not an instance in the given project and region, or
// if the address of a target does not belong to the target's instance. The error lists all invalid
// targets. checkTargets skips the targets that oldSpec also contains, because an earlier call has
// checked these targets. These targets are still valid, because the cloud removes each terminated
// instance from all load balancers.
func (e *Engine) checkTargets(tx *store.Tx, project cloudsim.ProjectID, region string, newSpec, oldSpec cloudsim.LoadBalancerSpec) error {
	known := map[cloudsim.TargetKey]bool{}
	for _, list := range oldSpec.TargetLists() {
		for _, t := range list {
			known[t.Key()] = true
		}
	}
	var bad []cloudsim.FieldError
	lists := newSpec.TargetLists()
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		more, err := checkTargetList(tx, project, region, list, lists[list], known)
		if err != nil {
			return err
		}
		bad = append(bad, more...)
	}
	if len(bad) == 0 {
		return nil
	}
	return &cloudsim.Error{Kind: cloudsim.Invalid, Msg: bad[0].Field + " " + bad[0].Reason, Fields: bad}
}

// checkTargetList returns the invalid targets of one list. The parameter fieldName is the name of
// the list in the request, for example listeners[0].targets.
func checkTargetList(tx *store.Tx, project cloudsim.ProjectID, region, fieldName string, targets []cloudsim.Target, known map[cloudsim.TargetKey]bool) (bad []cloudsim.FieldError, err error) {
	for n, t := range targets {
		if known[t.Key()] {
			continue
		}
		field := fmt.Sprintf("%s[%d].instance", fieldName, n)
		i, err := instances.Get(tx, string(t.Instance))
		if err != nil && !errors.Is(err, cloudsim.NotFound) {
			return nil, err
		}
		switch {
		case err != nil || i.Project != project:
			bad = append(bad, cloudsim.FieldError{Field: field, Reason: fmt.Sprintf("%s does not exist", t.Instance)})
		case i.Region != region:
			bad = append(bad, cloudsim.FieldError{Field: field, Reason: fmt.Sprintf("%s is in region %s, but the load balancer is in region %s", t.Instance, i.Region, region)})
		case t.IP != "" && !isBehind(i, t.IP):
			bad = append(bad, cloudsim.FieldError{Field: fmt.Sprintf("%s[%d].ip", fieldName, n), Reason: fmt.Sprintf("is %s, which is neither in the field addresses of instance %s nor in its pod ranges %v", t.IP, t.Instance, i.PodRanges)})
		}
	}
	return bad, nil
}

// isBehind reports whether ip is an address of instance i, or is in a pod
// range of i.
func isBehind(i cloudsim.Instance, ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && i.Has(a)
}

func (e *Engine) workOnLoadBalancer(tx *store.Tx, call Call, l *cloudsim.LoadBalancer, verb cloudsim.Verb) error {
	return beginWork(e, tx, call, loadBalancers, l, verb, e.cfg.Profile.LoadBalancer, e.settledLoadBalancer)
}

func (e *Engine) settledLoadBalancer(tx *store.Tx, l *cloudsim.LoadBalancer) error {
	if err := l.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, l.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if l.State != cloudsim.LoadBalancerDeleted {
		return loadBalancers.Put(tx, l)
	}
	for _, a := range l.Addresses {
		if err := e.releaseAddress(tx, a); err != nil {
			return err
		}
	}
	return loadBalancers.Delete(tx, l)
}

// GetLoadBalancer returns a load balancer, or NotFound after the load balancer
// is deleted.
func (e *Engine) GetLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancer, error) {
	return read(ctx, e.core, loadBalancers, string(id))
}

// ListLoadBalancers returns one page of load balancers.
func (e *Engine) ListLoadBalancers(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error) {
	return listPage(ctx, e.core, loadBalancers, o, nil)
}

// UpdateLoadBalancer replaces the labels and the spec of a load balancer. If the request has
// families or addresses, UpdateLoadBalancer also changes the addresses. It returns Stale if rev is
// neither 0 nor the load balancer's revision. It returns Invalid if the request changes the scheme.
// A request that changes nothing begins no work.
func (e *Engine) UpdateLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.UpdateLoadBalancer, rev uint64) (cloudsim.LoadBalancer, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	return e.changeLoadBalancer(ctx, id, rev, func(tx *store.Tx, l *cloudsim.LoadBalancer) error {
		if req.Scheme != "" && req.Scheme != l.Scheme {
			return cloudsim.InvalidField("scheme", fmt.Sprintf("is %s and cannot become %s: create another load balancer", l.Scheme, req.Scheme))
		}
		families := req.Families
		if len(families) == 0 {
			families = l.Families()
		}
		for i, ip := range req.Addresses {
			if a, err := netip.ParseAddr(ip); err == nil && !slices.Contains(families, cloudsim.FamilyOf(a)) {
				return cloudsim.InvalidField(fmt.Sprintf("addresses[%d]", i), fmt.Sprintf("is an %s address, but the load balancer does not have this family: also set families", cloudsim.FamilyOf(a)))
			}
		}
		if len(req.Listeners) > len(l.Listeners) {
			if err := e.checkQuotaEach(tx, l.Project, cloudsim.QuotaListeners, len(req.Listeners)); err != nil {
				return err
			}
		}
		l.Labels, l.LoadBalancerSpec = req.Labels, req.LoadBalancerSpec
		l.Listeners = nonNilList(l.Listeners)
		return e.assignAddresses(tx, l, families, req.Addresses)
	})
}

// SetLoadBalancerTargets replaces the targets of a load balancer, but not the targets of its
// listeners. It returns Stale if rev is neither 0 nor the load balancer's revision. A request that
// changes nothing begins no work.
func (e *Engine) SetLoadBalancerTargets(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.SetTargets, rev uint64) (cloudsim.LoadBalancer, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	return e.changeLoadBalancer(ctx, id, rev, func(_ *store.Tx, l *cloudsim.LoadBalancer) error {
		l.Targets = req.Targets
		return l.CheckTotal()
	})
}

func (e *Engine) changeLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, rev uint64, change func(*store.Tx, *cloudsim.LoadBalancer) error) (l cloudsim.LoadBalancer, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if l, err = get(tx, call, loadBalancers, string(id)); err != nil {
			return err
		}
		if rev != 0 && rev != l.Revision {
			return cloudsim.Errorf(cloudsim.Stale, "load balancer %s is at revision %d, not %d: read it again and repeat the change", id, l.Revision, rev)
		}
		before := l
		if err := l.Move(cloudsim.Update); err != nil {
			return err
		}
		if err := change(tx, &l); err != nil {
			return err
		}
		if sameLabels(before.Labels, l.Labels) && before.Same(l.LoadBalancerSpec) && slices.Equal(before.Addresses, l.Addresses) {
			l = before
			return nil
		}
		if err := e.checkTargets(tx, l.Project, l.Region, l.LoadBalancerSpec, before.LoadBalancerSpec); err != nil {
			return err
		}
		if err := e.publish(tx, &l); err != nil {
			return err
		}
		l.Status = l.StatusFor(l.Status)
		return e.workOnLoadBalancer(tx, call, &l, cloudsim.Update)
	})
	return l, err
}

// DeleteLoadBalancer begins to delete a load balancer and returns the load
// balancer. It does not change a load balancer that is already in state deleting.
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

// Meter counts the traffic of load balancers. LoadBalancerStats returns false if the data plane
// does not forward connections of the load balancer with the given id.
type Meter interface {
	LoadBalancerStats(cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, bool)
}

// LoadBalancerStats returns the counters of a load balancer. It returns Unavailable if no data
// plane forwards connections of this load balancer.
func (e *Engine) LoadBalancerStats(ctx context.Context, id cloudsim.LoadBalancerID) (s cloudsim.LoadBalancerStats, err error) {
	l, err := e.GetLoadBalancer(ctx, id)
	if err != nil {
		return s, err
	}
	if e.cfg.Meter == nil {
		return s, cloudsim.Errorf(cloudsim.Unavailable, "this cloud does not forward connections, because it runs without a data plane: start it without --no-data-plane")
	}
	s, ok := e.cfg.Meter.LoadBalancerStats(id)
	if !ok {
		return s, cloudsim.Errorf(cloudsim.Unavailable, "load balancer %s is in state %s, and the data plane does not forward its connections now", id, l.State)
	}
	return s, nil
}

// ListLoadBalancerStats returns the counters of the load balancers of one page.
// It omits load balancers for which the data plane has no counters.
func (e *Engine) ListLoadBalancerStats(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.LoadBalancerTraffic], err error) {
	page, err := e.ListLoadBalancers(ctx, o)
	if err != nil {
		return l, err
	}
	l = cloudsim.List[cloudsim.LoadBalancerTraffic]{Items: []cloudsim.LoadBalancerTraffic{}, Revision: page.Revision, Next: page.Next}
	for _, lb := range page.Items {
		if e.cfg.Meter == nil {
			break // the cloud has no data plane
		}
		if s, ok := e.cfg.Meter.LoadBalancerStats(lb.ID); ok {
			l.Items = append(l.Items, cloudsim.LoadBalancerTraffic{ID: lb.ID, Name: lb.Name, Project: lb.Project, LoadBalancerStats: s})
		}
	}
	return l, nil
}

// ReportLoadBalancer stores a report of the data plane about the status of a load balancer. A
// report without changes writes no event.
func (e *Engine) ReportLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, s cloudsim.LoadBalancerStatus) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		l, err := get(tx, call, loadBalancers, string(id))
		if err != nil {
			return err
		}
		status := l.StatusFor(s)
		if reflect.DeepEqual(l.Status, status) {
			return nil
		}
		l.Status = status
		return loadBalancers.Put(tx, &l)
	})
}

// forgetTarget removes a deleted instance from the targets of all load
// balancers.
func (e *Engine) forgetTarget(tx *store.Tx, id cloudsim.InstanceID) error {
	found, err := loadBalancers.Lookup(tx, byTarget, string(id))
	if err != nil {
		return err
	}
	for _, l := range found {
		gone := func(t cloudsim.Target) bool { return t.Instance == id }
		l.Targets = slices.DeleteFunc(l.Targets, gone)
		for i := range l.Listeners {
			l.Listeners[i].Targets = slices.DeleteFunc(l.Listeners[i].Targets, gone) // an empty list stays non-nil, because with a nil list the listener would use the load balancer's targets
		}
		l.Status = l.StatusFor(l.Status)
		if err := loadBalancers.Put(tx, &l); err != nil {
			return err
		}
	}
	return nil
}
