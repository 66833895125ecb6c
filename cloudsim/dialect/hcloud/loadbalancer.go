package hcloud

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// These labels store properties of Hetzner's load balancers. The load balancers of cloudsim do not
// have these properties.
const (
	labelType      = dialect.LabelPrefix + "type"
	labelAlgorithm = dialect.LabelPrefix + "algorithm"
	labelLocation  = dialect.LabelPrefix + "location"
	labelNetwork   = dialect.LabelPrefix + "network" // id of the network to which the load balancer is attached
	labelPublic    = dialect.LabelPrefix + "public"  // "false" if the public interface is disabled
)

const (
	defaultType      = "lb11"
	defaultAlgorithm = "round_robin"
)

// algorithms contains the names of Hetzner's algorithms. This cloud always prefers the target with
// the fewest connections, so the choice of an algorithm has no effect on traffic.
var algorithms = []string{defaultAlgorithm, "least_connections"}

func loadBalancerBusy(l cloudsim.LoadBalancer) bool { return l.State != cloudsim.LoadBalancerActive }

// typeOf returns the type of a load balancer. If a caller created the load balancer without this
// dialect, the label labelType is absent, and typeOf returns the largest type.
func typeOf(l cloudsim.LoadBalancer) loadBalancerType {
	if t, ok := findLoadBalancerType(idOrName{name: l.Labels[labelType]}); ok {
		return t
	}
	all := loadBalancerTypes()
	return all[len(all)-1]
}

func loadBalancerOf(l cloudsim.LoadBalancer) loadBalancer {
	out := loadBalancer{
		ID: dialect.Number(l.ID), Name: dialect.OtherName(l.Meta), Created: l.CreatedAt, Labels: dialect.Visible(l.Labels),
		PublicNet: loadBalancerPublicNet{Enabled: l.Labels[labelPublic] != "false"}, PrivateNet: []loadBalancerPrivateNet{},
		LoadBalancerType: typeOf(l), Algorithm: algorithm{defaultAlgorithm}, Services: []service{}, Targets: []lbTarget{},
		Protection: protection{protected(l.Meta)},
	}
	place := l.Labels[labelLocation]
	if place == "" {
		place = l.Region
	}
	out.Location = locationOf(place, l.Region)
	if s := l.Labels[labelAlgorithm]; s != "" {
		out.Algorithm.Type = s
	}
	for _, a := range l.Addresses {
		ip := loadBalancerIP{ID: dialect.Number(a.ID), IP: &a.IP}
		if a.Family == cloudsim.IPv6 {
			out.PublicNet.IPv6 = ip
		} else {
			out.PublicNet.IPv4 = ip
		}
	}
	if n := l.Labels[labelNetwork]; n != "" {
		out.PrivateNet = append(out.PrivateNet, loadBalancerPrivateNet{Network: dialect.Number(cloudsim.NetworkID(n)), IP: l.IP})
	}
	for _, li := range l.Listeners {
		out.Services = append(out.Services, serviceOf(l.LoadBalancerSpec, li))
	}
	for _, t := range l.Targets {
		out.Targets = append(out.Targets, targetOf(l, t))
	}
	return out
}

func findLoadBalancer(r *dialect.Request) (cloudsim.LoadBalancer, error) {
	id, err := id[cloudsim.LoadBalancerID](r, prefixLoadBalancer)
	if err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	return r.Cloud.GetLoadBalancer(r.Context(), id)
}

func showLoadBalancer(l cloudsim.LoadBalancer, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"load_balancer": loadBalancerOf(l)}, nil
}

func (a *api) getLoadBalancer(r *dialect.Request) (int, any, error) {
	return showLoadBalancer(findLoadBalancer(r))
}

type createLoadBalancer struct {
	Name             string             `json:"name"`
	LoadBalancerType idOrName           `json:"load_balancer_type"`
	Algorithm        *algorithm         `json:"algorithm"`
	Location         idOrName           `json:"location"`
	NetworkZone      string             `json:"network_zone"`
	Labels           *map[string]string `json:"labels"`
	Targets          []targetRequest    `json:"targets"`
	Services         []serviceRequest   `json:"services"`
	PublicInterface  *bool              `json:"public_interface"`
	PublicNet        *struct {
		IPv4 int64 `json:"ipv4"`
		IPv6 int64 `json:"ipv6"`
	} `json:"public_net"`
	Network *int64 `json:"network"`
}

func (a *api) createLoadBalancer(r *dialect.Request) (int, any, error) {
	in, err := listZones(r)
	if err != nil {
		return 0, nil, err
	}
	var c createLoadBalancer
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	req, err := newLoadBalancer(r, c, in)
	if err != nil {
		return 0, nil, err
	}
	// Each load balancer of Hetzner has an IPv6 address, so the dialect requests both address
	// families. If this cloud does not support IPv6, it returns Invalid. In this case, the dialect
	// sends the request again without address families.
	req.Families = []cloudsim.IPFamily{cloudsim.IPv4, cloudsim.IPv6}
	l, err := r.Cloud.CreateLoadBalancer(r.Context(), req)
	if errors.Is(err, cloudsim.Invalid) {
		req.Families = nil
		l, err = r.Cloud.CreateLoadBalancer(r.Context(), req)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, map[string]any{
		"load_balancer": loadBalancerOf(l), "action": loadBalancerAction(l, "create_load_balancer"),
	}, nil
}

func newLoadBalancer(r *dialect.Request, c createLoadBalancer, allZones []cloudsim.Zone) (req cloudsim.CreateLoadBalancer, err error) {
	if req.Name, req.Labels, err = newName(r, c.Name, c.Labels); err != nil {
		return req, err
	}
	t, ok := findLoadBalancerType(c.LoadBalancerType)
	if !ok {
		return req, errUnknown("load_balancer_type", c.LoadBalancerType)
	}
	if c.PublicNet != nil && (c.PublicNet.IPv4 != 0 || c.PublicNet.IPv6 != 0) {
		return req, dialect.Unsupported{What: "a choice of primary IPs", Why: "the cloud chooses the addresses"}
	}
	place := ""
	if place, req.Region, err = placeOf(c, allZones); err != nil {
		return req, err
	}
	req.Labels[labelType], req.Labels[labelLocation], req.Labels[labelAlgorithm] = t.Name, place, defaultAlgorithm
	if c.Algorithm != nil {
		if err := setAlgorithm(req.Labels, c.Algorithm.Type); err != nil {
			return req, err
		}
	}
	if c.PublicInterface != nil && !*c.PublicInterface {
		req.Labels[labelPublic] = "false"
	}
	if c.Network != nil && *c.Network != 0 {
		if err := setNetwork(r, req.Labels, *c.Network); err != nil {
			return req, err
		}
	}
	l := cloudsim.LoadBalancer{Meta: cloudsim.Meta{Labels: req.Labels}, Region: req.Region}
	l.HealthCheck.Protocol = cloudsim.HealthTCP
	for i, s := range c.Services {
		if err := addService(&l, s); err != nil {
			return req, prefixFields(fmt.Sprintf("services[%d].", i), err)
		}
	}
	for _, t := range c.Targets {
		if err := addTarget(r, &l, t); err != nil {
			return req, err
		}
	}
	req.LoadBalancerSpec = l.LoadBalancerSpec
	return req, nil
}

// prefixFields adds a prefix to the field names in an Invalid error. It does not change other
// errors.
func prefixFields(prefix string, err error) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid {
		return err
	}
	out := *e
	out.Msg, out.Fields = prefix+e.Msg, slices.Clone(e.Fields)
	for i := range out.Fields {
		out.Fields[i].Field = prefix + out.Fields[i].Field
	}
	return &out
}

// placeOf returns the location and the region of a new load balancer. If the request contains only
// a network zone, placeOf returns the first location in this network zone.
func placeOf(c createLoadBalancer, allZones []cloudsim.Zone) (place, region string, err error) {
	if c.NetworkZone == "" || c.Location != (idOrName{}) {
		if c.NetworkZone != "" {
			return "", "", cloudsim.InvalidField("network_zone", "must be absent if the request has a location")
		}
		return findLocation(allZones, c.Location.String())
	}
	for _, z := range allZones {
		if z.Region == c.NetworkZone {
			return z.Name, z.Region, nil
		}
	}
	return "", "", errUnknown("network_zone", c.NetworkZone)
}

func setAlgorithm(labels map[string]string, s string) error {
	if !slices.Contains(algorithms, s) {
		return cloudsim.InvalidField("algorithm.type", fmt.Sprintf("must be round_robin or least_connections, got %.80q", s))
	}
	labels[labelAlgorithm] = s
	return nil
}

// setNetwork attaches a load balancer to the network with Hetzner's id n: it stores the network in
// labels. If this network does not exist, setNetwork returns an error. The attachment has no effect
// on traffic, because a load balancer of this cloud reaches all networks of its project.
func setNetwork(r *dialect.Request, labels map[string]string, n int64) error {
	id := dialect.ID[cloudsim.NetworkID](prefixNetwork, n)
	_, err := r.Cloud.GetNetwork(r.Context(), id)
	if errors.Is(err, cloudsim.NotFound) {
		return errUnknown("network", n)
	}
	labels[labelNetwork] = string(id)
	return err
}

func (a *api) updateLoadBalancer(r *dialect.Request) (int, any, error) {
	l, err := findLoadBalancer(r)
	if err != nil {
		return 0, nil, err
	}
	var u updateResource
	if err := r.Decode(&u); err != nil {
		return 0, nil, err
	}
	l, err = dialect.ChangeLoadBalancer(r, l, func(l *cloudsim.LoadBalancer) (err error) {
		if err := checkIdle(*l); err != nil {
			return err
		}
		l.Labels, err = u.newLabels(l.Meta)
		return err
	})
	// The answer contains no action, so the client cannot wait until the update ends. Therefore
	// this call waits.
	if err == nil && l.State == cloudsim.LoadBalancerUpdating {
		l, err = finishThen(r, l.Operation, l.ID, r.Cloud.GetLoadBalancer)
	}
	return showLoadBalancer(l, err)
}

// checkIdle returns an error if an action runs on a load balancer. If the action is a creation or
// deletion, the error has the code "locked". If the action is an update, the error has the code
// "conflict", and Hetzner's Go library repeats the call. So several updates that a client sends at
// the same time succeed one after the other.
func checkIdle(l cloudsim.LoadBalancer) error {
	switch {
	case !loadBalancerBusy(l):
		return nil
	case l.State == cloudsim.LoadBalancerUpdating:
		return cloudsim.Errorf(cloudsim.Stale, "another action is changing the load balancer: repeat the call when this action has ended")
	}
	return errLocked("load balancer", string(l.State))
}

func (a *api) deleteLoadBalancer(r *dialect.Request) (int, any, error) {
	l, err := findLoadBalancer(r)
	if err != nil {
		return 0, nil, err
	}
	if err := checkIdle(l); err != nil {
		return 0, nil, err
	}
	if err := checkDeletable(l.Meta); err != nil {
		return 0, nil, err
	}
	if l, err = r.Cloud.DeleteLoadBalancer(r.Context(), l.ID); err != nil {
		return 0, nil, err
	}
	// Versions of hcloud-go that were released before October 2026 do not wait for the action in
	// the answer. Therefore this call waits until the cloud has deleted the load balancer.
	op, err := retrying(r).Cloud.WaitOperation(r.Context(), l.Operation)
	if err != nil {
		return 0, nil, err
	}
	act, err := actionOf(r, op)
	if err != nil {
		return 0, nil, err
	}
	return actionStarted(act)
}

func loadBalancerAction(l cloudsim.LoadBalancer, command string) action {
	return lastAction(l.Meta, command, loadBalancerBusy(l), resource{dialect.Number(l.ID), "load_balancer"})
}

// loadBalancerCall returns a call that changes a load balancer and answers with an
// action. The call decodes the body into a value of type T. While another action runs on
// the load balancer, the call returns the error of checkIdle.
func loadBalancerCall[T any](command string, fn func(*dialect.Request, *cloudsim.LoadBalancer, T) error) call {
	return func(r *dialect.Request) (int, any, error) {
		l, err := findLoadBalancer(r)
		if err != nil {
			return 0, nil, err
		}
		var in T
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		l, err = dialect.ChangeLoadBalancer(r, l, func(l *cloudsim.LoadBalancer) error {
			if err := checkIdle(*l); err != nil {
				return err
			}
			return fn(r, l, in)
		})
		if err != nil {
			return 0, nil, err
		}
		return actionStarted(loadBalancerAction(l, command))
	}
}

func changeAlgorithm(_ *dialect.Request, l *cloudsim.LoadBalancer, in algorithm) error {
	return setAlgorithm(l.Labels, in.Type)
}

type changeTypeRequest struct {
	LoadBalancerType idOrName `json:"load_balancer_type"`
}

func changeType(_ *dialect.Request, l *cloudsim.LoadBalancer, in changeTypeRequest) error {
	t, ok := findLoadBalancerType(in.LoadBalancerType)
	switch {
	case !ok:
		return errUnknown("load_balancer_type", in.LoadBalancerType)
	case len(l.Listeners) > t.MaxServices || len(l.Targets) > t.MaxTargets:
		return coded("invalid_load_balancer_type", fmt.Sprintf("the type %s has at most %d services and %d targets, and this load balancer has more: remove services or targets first", t.Name, t.MaxServices, t.MaxTargets))
	}
	l.Labels[labelType] = t.Name
	return nil
}

type attachRequest struct {
	Network int64   `json:"network"`
	IP      *string `json:"ip"`
	IPRange *string `json:"ip_range"`
}

func attachToNetwork(r *dialect.Request, l *cloudsim.LoadBalancer, in attachRequest) error {
	switch {
	case l.Labels[labelNetwork] != "":
		return coded("load_balancer_already_attached", "the load balancer is already attached to a network")
	case in.IP != nil && *in.IP != "" && *in.IP != l.IP:
		return dialect.Unsupported{What: "a private address of the caller's choice", Why: "omit ip: the private address is " + l.IP}
	case in.IPRange != nil && *in.IPRange != "":
		return dialect.Unsupported{What: "ip_range", Why: "omit ip_range: the private address is " + l.IP}
	}
	return setNetwork(r, l.Labels, in.Network)
}

func detachFromNetwork(_ *dialect.Request, l *cloudsim.LoadBalancer, in struct {
	Network int64 `json:"network"`
},
) error {
	if l.Labels[labelNetwork] != string(dialect.ID[cloudsim.NetworkID](prefixNetwork, in.Network)) {
		return coded("load_balancer_not_attached_to_network", "the load balancer is not attached to this network")
	}
	delete(l.Labels, labelNetwork)
	return nil
}

func enablePublic(_ *dialect.Request, l *cloudsim.LoadBalancer, _ struct{}) error {
	delete(l.Labels, labelPublic)
	return nil
}

func disablePublic(_ *dialect.Request, l *cloudsim.LoadBalancer, _ struct{}) error {
	l.Labels[labelPublic] = "false"
	return nil
}
