package hcloud

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// A request for a target can contain the field use_private_ip. If this field is true, the dialect
// stores the internal address of the instance in the field IP of the target. This value has no
// effect on traffic: without it, the load balancer connects to the same address.

var healthOf = map[cloudsim.TargetHealth]string{
	cloudsim.TargetHealthy: "healthy", cloudsim.TargetUnhealthy: "unhealthy", cloudsim.TargetInitial: "unknown", cloudsim.TargetDraining: "unknown",
}

func targetOf(l cloudsim.LoadBalancer, t cloudsim.Target) lbTarget {
	out := lbTarget{Type: "server", Server: &targetServer{dialect.Number(t.Instance)}, UsePrivateIP: t.IP != "", HealthStatus: []targetHealth{}}
	for _, li := range l.Listeners {
		status := "unknown"
		for _, s := range l.Status.Targets {
			if s.Instance == t.Instance && s.IP == t.IP && (s.Listener == "" || s.Listener == fmt.Sprintf("%s/%d", li.Protocol, li.Port)) {
				status = healthOf[s.Health]
			}
		}
		out.HealthStatus = append(out.HealthStatus, targetHealth{ListenPort: li.Port, Status: status})
	}
	return out
}

type targetRequest struct {
	Type          string          `json:"type"`
	Server        *targetServer   `json:"server"`
	LabelSelector *targetSelector `json:"label_selector"`
	IP            *targetIP       `json:"ip"`
	UsePrivateIP  *bool           `json:"use_private_ip"`
}

func (t targetRequest) instance() (cloudsim.InstanceID, error) {
	switch t.Type {
	case "server":
		if t.Server == nil {
			return "", cloudsim.InvalidField("server", "is required for a target of the type server")
		}
		return dialect.ID[cloudsim.InstanceID](prefixInstance, t.Server.ID), nil
	case "label_selector", "ip":
		return "", dialect.Unsupported{What: "a target of the type " + t.Type, Why: "add servers as targets"}
	}
	return "", cloudsim.InvalidField("type", fmt.Sprintf("must be server, got %.20q", t.Type))
}

func addTarget(r *dialect.Request, l *cloudsim.LoadBalancer, in targetRequest) error {
	id, err := in.instance()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(l.Targets, func(t cloudsim.Target) bool { return t.Instance == id }) {
		return coded("target_already_defined", "the server is already a target of the load balancer")
	}
	if t := typeOf(*l); len(l.Targets) >= t.MaxTargets {
		return cloudsim.Errorf(cloudsim.Exhausted, "a load balancer of the type %s has at most %d targets", t.Name, t.MaxTargets)
	}
	i, err := r.Cloud.GetInstance(r.Context(), id)
	if errors.Is(err, cloudsim.NotFound) {
		return errUnknown("server.id", in.Server.ID)
	}
	if err != nil {
		return err
	}
	t := cloudsim.Target{Instance: id}
	if in.UsePrivateIP != nil && *in.UsePrivateIP {
		if l.Labels[labelNetwork] == "" {
			return coded("load_balancer_not_attached_to_network", "the load balancer is not attached to a network: attach it to a network first, or set use_private_ip to false")
		}
		if !isPrivate(i, cloudsim.NetworkID(l.Labels[labelNetwork])) {
			return coded("server_not_attached_to_network", "the server is not in the network of the load balancer: attach the server to this network first, or set use_private_ip to false")
		}
		t.IP = i.InternalIP()
	}
	l.Targets = append(l.Targets, t)
	return nil
}

func removeTarget(_ *dialect.Request, l *cloudsim.LoadBalancer, in targetRequest) error {
	id, err := in.instance()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(l.Targets, func(t cloudsim.Target) bool { return t.Instance == id })
	if i < 0 {
		return cloudsim.Errorf(cloudsim.NotFound, "the server is not a target of the load balancer")
	}
	l.Targets = slices.Delete(l.Targets, i, i+1)
	return nil
}
