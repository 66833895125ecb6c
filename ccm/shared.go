package ccm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These labels of a shared load balancer record its members. Members are the Services that use the
// load balancer. The value of LabelShared consists of the namespace of the members and the value of
// their annotation AnnotationLoadBalancerShared. For each member, the load balancer has two more
// labels, with the UID of the Service at the end of the key:
//   - The label with labelMemberPrefix contains the name of the Service. With this label the CCM
//     finds the load balancer after a change of the Service's annotations.
//   - The label with labelPortsPrefix contains the protocols and ports of the Service's listeners.
//     With this label the CCM prevents port conflicts between members.
const (
	LabelShared       = "kubernetes.io/shared-load-balancer" // namespace/name
	labelMemberPrefix = "service.kubernetes.io/"             // + UID: namespace/name
	labelPortsPrefix  = "ports.kubernetes.io/"               // + UID: tcp-80.udp-53
)

// setShared gives the desired load balancer the name and the labels of a shared
// load balancer. If the Service does not have the annotation for a shared load
// balancer, setShared changes nothing. It returns an error if the Service
// cannot use a shared load balancer.
func setShared(desired *cloudsim.CreateLoadBalancer, cluster string, svc *v1.Service) error {
	group, ok := svc.Annotations[AnnotationLoadBalancerShared]
	if !ok {
		return nil
	}
	at := "annotation " + AnnotationLoadBalancerShared
	switch {
	case !nameRE.MatchString(group):
		return fmt.Errorf("%s must consist of 1 to 63 lower-case letters, digits and dashes, and not begin or end with a dash, got %q", at, truncate(group))
	case svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal:
		return fmt.Errorf("%s needs spec.externalTrafficPolicy Cluster, because one health check cannot find the pods of several Services", at)
	case byPods(svc):
		return fmt.Errorf("%s needs node ports (spec.allocateLoadBalancerNodePorts must not be false), because Services that share a load balancer have the same targets", at)
	case svc.Annotations[AnnotationLoadBalancerNodeSelector] != "":
		return errSelectsNodes
	}
	var ports []string
	for _, l := range desired.Listeners {
		ports = append(ports, portName(l))
	}
	slices.Sort(ports)
	value := strings.Join(ports, ".")
	if len(value) > cloudsim.MaxLabelValue {
		return fmt.Errorf("%s: the Service has too many ports for a shared load balancer (%d): distribute the ports over several Services", at, len(ports))
	}
	group = svc.Namespace + "/" + group
	sum := sha256.Sum256([]byte(cluster + "/" + group))
	desired.Name = "k8s-shared-" + hex.EncodeToString(sum[:16])
	desired.Labels = map[string]string{
		LabelCluster:                        cluster,
		LabelShared:                         group,
		labelMemberPrefix + string(svc.UID): name(svc),
		labelPortsPrefix + string(svc.UID):  value,
	}
	return nil
}

var errSelectsNodes = fmt.Errorf("annotation %s and %s exclude each other, because Services that share a load balancer have the same nodes", AnnotationLoadBalancerShared, AnnotationLoadBalancerNodeSelector)

func portName(l cloudsim.Listener) string { return string(l.Protocol) + "-" + strconv.Itoa(l.Port) }

func isShared(lb cloudsim.LoadBalancer) bool { return lb.Labels[LabelShared] != "" }

// member is a Service that uses a load balancer.
type member struct{ uid, namespace, name string }

// membersOf returns the Services that use lb, according to the labels of lb.
func membersOf(lb cloudsim.LoadBalancer) []member {
	if !isShared(lb) {
		return []member{{lb.Labels[LabelServiceUID], lb.Labels[LabelServiceNamespace], lb.Labels[LabelServiceName]}}
	}
	var all []member
	for _, key := range slices.Sorted(maps.Keys(lb.Labels)) {
		if uid, ok := strings.CutPrefix(key, labelMemberPrefix); ok {
			namespace, n, _ := strings.Cut(lb.Labels[key], "/")
			all = append(all, member{uid, namespace, n})
		}
	}
	return all
}

// portsOf returns the names of the listeners on the shared load balancer lb
// that belong to the Service with the given UID.
func portsOf(lb cloudsim.LoadBalancer, uid string) []string {
	return strings.Split(lb.Labels[labelPortsPrefix+uid], ".")
}

// mergeMembers adds the other members of the shared load balancer lb to desired, the load balancer
// that the Service with the given uid requests. The result is a copy of desired with the listeners
// and labels of all members of lb. If lb is not shared, the result is desired. mergeMembers returns
// an error if another member already uses a desired port. It also returns an error if desired and
// lb have different settings, because the settings of lb apply to all members.
func mergeMembers(lb cloudsim.LoadBalancer, desired cloudsim.CreateLoadBalancer, uid string) (cloudsim.CreateLoadBalancer, error) {
	if !isShared(lb) {
		return desired, nil
	}
	var bad []error
	mine := map[string]bool{}
	for _, l := range desired.Listeners {
		mine[portName(l)] = true
	}
	owners := map[string]member{}
	for _, m := range membersOf(lb) {
		if m.uid == uid {
			continue
		}
		for _, p := range portsOf(lb, m.uid) {
			owners[p] = m
			if mine[p] {
				bad = append(bad, portsError{fmt.Errorf("port %s of the shared load balancer %s is in use by Service %s/%s", p, lb.ID, m.namespace, m.name)})
			}
		}
	}
	if len(owners) == 0 {
		return desired, nil
	}
	if names := differentSettings(lb, desired); len(names) > 0 {
		bad = append(bad, fmt.Errorf("other Services that share the load balancer %s have different values of these settings: %s; use the same values in all of them", lb.ID, strings.Join(names, ", ")))
	}
	all := desired
	all.Listeners, all.Labels = slices.Clone(desired.Listeners), maps.Clone(lb.Labels)
	maps.Copy(all.Labels, desired.Labels)
	for _, l := range lb.Listeners {
		if _, ok := owners[portName(l)]; ok {
			all.Listeners = append(all.Listeners, l)
		}
	}
	return all, errors.Join(bad...)
}

// differentSettings returns the names of the settings for which lb and desired
// have different values. It compares only settings that apply to all members of
// a shared load balancer.
func differentSettings(lb cloudsim.LoadBalancer, desired cloudsim.CreateLoadBalancer) (names []string) {
	got, want := normalize(lb.LoadBalancerSpec), normalize(desired.LoadBalancerSpec)
	for _, setting := range []struct {
		name string
		same bool
	}{
		{"scheme", lb.Scheme == desired.Scheme},
		{"addresses or IP families", hasAddressesOf(lb, desired)},
		{"health check", got.HealthCheck == want.HealthCheck},
		{"source ranges", slices.Equal(got.SourceRanges, want.SourceRanges)},
		{"session affinity", got.Affinity == want.Affinity && got.AffinityTimeoutSeconds == want.AffinityTimeoutSeconds},
		{"drain timeout", got.DrainTimeoutSeconds == want.DrainTimeoutSeconds},
	} {
		if !setting.same {
			names = append(names, setting.name)
		}
	}
	return names
}

// partOf returns a copy of lb without the listeners of other members. If svc is
// not a member of lb, partOf returns lb unchanged.
func partOf(lb cloudsim.LoadBalancer, svc *v1.Service) cloudsim.LoadBalancer {
	if _, shares := lb.Labels[labelPortsPrefix+string(svc.UID)]; !shares {
		return lb
	}
	mine := portsOf(lb, string(svc.UID))
	lb.Listeners = slices.DeleteFunc(slices.Clone(lb.Listeners), func(l cloudsim.Listener) bool { return !slices.Contains(mine, portName(l)) })
	lb.Status.Listeners = slices.DeleteFunc(slices.Clone(lb.Status.Listeners), func(l cloudsim.ListenerStatus) bool {
		return !slices.Contains(mine, portName(cloudsim.Listener{Protocol: l.Protocol, Port: l.Port}))
	})
	return lb
}

// removeMember removes the listeners and labels of a member from a shared load balancer. If the
// load balancer has no other member, or if no listener would remain, the method deletes the load
// balancer. The caller must hold the lock of the method lockShared, so that no other goroutine of
// this process adds a member during the call. Another process may add a member just before the
// deletion. This member then loses its load balancer, and a regular repair creates the load
// balancer again.
func (b *loadBalancers) removeMember(ctx context.Context, lb cloudsim.LoadBalancer, uid string) error {
	keep := cloudsim.UpdateLoadBalancer{Labels: maps.Clone(lb.Labels), LoadBalancerSpec: lb.LoadBalancerSpec}
	delete(keep.Labels, labelMemberPrefix+uid)
	delete(keep.Labels, labelPortsPrefix+uid)
	mine := portsOf(lb, uid)
	keep.Listeners = slices.DeleteFunc(slices.Clone(lb.Listeners), func(l cloudsim.Listener) bool { return slices.Contains(mine, portName(l)) })
	if len(membersOf(lb)) > 1 && len(keep.Listeners) > 0 {
		_, err := b.api.UpdateLoadBalancer(ctx, lb.ID, keep, lb.Revision)
		return err
	}
	_, err := b.api.DeleteLoadBalancer(ctx, lb.ID)
	return err
}
