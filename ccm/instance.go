package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// instanceDeadline is the longest time for one call of the framework about an
// instance. The framework sets no deadline, and it makes the calls for all
// Nodes one after the other. So without this limit a slow call would delay the
// calls for all other Nodes.
const instanceDeadline = 10 * time.Second

// instances is a cloudprovider.InstancesV2. The framework calls it to get the
// state and the data of a Node's instance.
type instances struct {
	api      *client.Client
	mirror   *mirror
	events   record.EventRecorder
	settings *Settings

	seen atomic.Pointer[place] // cloud and project in which this process last found an instance of this cluster

	absenceLasts time.Duration // see setMonitorPeriod

	mu     sync.Mutex
	last   observation
	absent map[nodeKey]absenceRecord // empty if NodeDeletionGrace is 0
}

// observation stores the instance that the last call of InstanceExists found. For every Node that
// is not ready, the framework calls InstanceExists every few seconds. The framework then calls
// InstanceShutdown for the same Node. InstanceShutdown uses the observation instead of a call to
// the cloud. InstanceShutdown uses an observation only once, and only if the observation is less
// than one second old.
type observation struct {
	node     nodeKey
	instance cloudsim.Instance
	at       time.Time
}

const observationTTL = time.Second

// place identifies a cloud and a project in which this process has found an instance of this
// cluster.
type place struct {
	url     string
	project cloudsim.ProjectID
}

// absenceRecord records that the cloud does not have a Node's instance. It contains the times of
// the first and of the last answer that did not contain the instance.
type absenceRecord struct{ firstMissed, lastMissed time.Time }

// minAbsenceLasts is the shortest lifetime of an absenceRecord. Each call of InstanceExists for an
// absent instance begins the lifetime again. Upstream calls InstanceExists every few seconds while
// a Node is not ready, and never for a ready Node. A ready Node has an instance, but no call tells
// the CCM that the Node is ready. So the record must expire.
const minAbsenceLasts = time.Minute

// setMonitorPeriod sets the lifetime of an absenceRecord. The parameter period is the time between
// two calls of InstanceExists for a Node (--node-monitor-period). The lifetime must be longer than
// period. Otherwise the time NodeDeletionGrace would begin again at each call, and the CCM would
// never delete the Node.
func (s *instances) setMonitorPeriod(period time.Duration) {
	s.absenceLasts = minAbsenceLasts + period
}

type nodeKey struct{ name, providerID string }

func keyOf(n *v1.Node) nodeKey { return nodeKey{n.Name, n.Spec.ProviderID} }

// InstanceExists reports whether the Node's instance exists, in any state except terminated. The
// framework deletes the Node if the result is false. InstanceExists therefore returns false only in
// two cases:
//   - The Node has a provider id, and the cloud reports that the instance is terminated.
//   - The cloud does not have the instance, and a list of instances confirms the absence.
//
// In both cases, the result becomes false only after the time NodeDeletionGrace (see the method
// inDeletionGrace).
//
// In all unclear cases InstanceExists returns an error, so that the framework keeps the Node:
//   - The URL does not lead to a cloud, or the project does not exist.
//   - The Node's provider id is invalid.
//   - The instance in the cloud does not have the provider id of the Node.
//   - No instance has the Node's name, and the Node has neither a provider id nor the taint of an
//     uninitialized Node. The machine of the Node may be outside of this cloud.
//   - This process has not yet found an instance of this cluster in the current cloud and project.
//     The URL or the project may be wrong.
//
// The last case has a disadvantage. If no Node has an instance when the CCM starts, the CCM keeps
// all Nodes until a Node with an instance joins.
func (s *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	i, found, err := s.find(ctx, node)
	switch {
	case err != nil:
		return false, err
	case !found && node.Spec.ProviderID == "" && !awaitsCloud(node):
		return false, fmt.Errorf("node %q does not belong to this cloud: it has no provider ID, no instance has its name, and it does not have the taint of an uninitialized node", node.Name)
	case !found:
		return s.inDeletionGrace(node), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.absent, keyOf(node))
	s.last = observation{keyOf(node), i, time.Now()}
	return true, nil
}

// inDeletionGrace reports whether the CCM must keep a Node without an instance. It returns true
// until the instance has been absent for NodeDeletionGrace. At the beginning of this time, it emits
// an event on the Node. After a restart or a change of the leader, this time begins again, so a
// Node may stay longer than NodeDeletionGrace.
func (s *instances) inDeletionGrace(node *v1.Node) bool {
	grace := s.settings.Get().NodeDeletionGrace.Duration
	if grace <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := time.Now(), keyOf(node)
	maps.DeleteFunc(s.absent, func(_ nodeKey, a absenceRecord) bool { return now.Sub(a.lastMissed) > s.absenceLasts })
	a, known := s.absent[key]
	switch {
	case known && now.Sub(a.firstMissed) >= grace:
		delete(s.absent, key)
		return false
	case known:
		s.absent[key] = absenceRecord{a.firstMissed, now}
	default:
		s.absent[key] = absenceRecord{now, now}
		s.events.Eventf(node, v1.EventTypeWarning, "InstanceGone", "The cloud has no instance for this Node. The cloud controller manager deletes the Node in %s unless the instance exists again", grace)
	}
	return true
}

// awaitsCloud reports whether the Node still waits for initialization by a
// cloud. Such a Node has the taint that a kubelet with
// --cloud-provider=external sets.
func awaitsCloud(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
}

// InstanceShutdown reports whether the Node's instance is stopped or stopping.
// If the result is true, the framework adds the shutdown taint to the Node. For
// an absent instance the result is false, because InstanceExists handles absent
// instances.
func (s *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	i, found := s.lastObservation(node)
	if !found {
		ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
		defer cancel()
		var err error
		if i, found, err = s.find(ctx, node); err != nil || !found {
			return false, err
		}
	}
	return i.State == cloudsim.InstanceStopping || i.State == cloudsim.InstanceStopped, nil
}

// lastObservation returns the instance of the last observation. The second result is false if the
// observation is too old or belongs to another Node. In all cases lastObservation removes the
// observation.
func (s *instances) lastObservation(node *v1.Node) (cloudsim.Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last
	s.last = observation{}
	return l.instance, l.node == keyOf(node) && time.Since(l.at) < observationTTL
}

// InstanceMetadata returns the cloud's data about the Node's instance. If the
// instance is absent, it returns an error, so that the Node keeps the taint of
// an uninitialized Node and the framework calls InstanceMetadata again. The
// result contains all addresses of the instance, in the cloud's order. The
// framework selects addresses according to the Node's provided-node-ip
// annotation.
func (s *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	i, found, err := s.find(ctx, node)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("node %q: %w", node.Name, cloudprovider.InstanceNotFound)
	}
	m := &cloudprovider.InstanceMetadata{
		ProviderID:       i.ProviderID,
		InstanceType:     i.Type,
		Zone:             i.Zone,
		Region:           i.Region,
		NodeAddresses:    nodeAddresses(i),
		AdditionalLabels: nodeLabels(i),
	}
	if _, err := providerid.Parse(m.ProviderID); err != nil {
		return nil, fmt.Errorf("instance %s: %w", i.ID, err)
	}
	for field, value := range map[string]string{"type": m.InstanceType, "zone": m.Zone, "region": m.Region} {
		if value == "" {
			return nil, fmt.Errorf("instance %s: %s is empty", i.ID, field)
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return nil, fmt.Errorf("instance %s: %s %q is not a valid value of a label: %s", i.ID, field, value, strings.Join(problems, "; "))
		}
	}
	return m, nil
}

// fromMirror returns the Node's instance from the mirror, without a call to the cloud. The second
// result is false if the mirror does not have the instance, or if the instance is terminated. It is
// also false if the instance in the mirror does not have the provider id of the Node.
func (s *instances) fromMirror(node *v1.Node) (cloudsim.Instance, bool) {
	if node.Spec.ProviderID == "" {
		i, ok := s.mirror.instanceNamed(node.Name)
		return i, ok && i.State != cloudsim.InstanceTerminated
	}
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		return cloudsim.Instance{}, false
	}
	i, ok := s.mirror.instance(cloudsim.InstanceID(id.Instance))
	return i, ok && i.ProviderID == node.Spec.ProviderID && i.State != cloudsim.InstanceTerminated
}

// find returns the Node's instance, from the mirror or from the cloud. The second result is false
// in two cases:
//   - The cloud does not have the instance. The error is the result of rightPlace.
//   - The Node has a provider id, and its instance is terminated. The error is nil.
func (s *instances) find(ctx context.Context, node *v1.Node) (cloudsim.Instance, bool, error) {
	url := s.settings.Get().URL
	i, err := s.findAnyState(ctx, node)
	switch {
	case err != nil:
		return cloudsim.Instance{}, false, err
	case i.ID == "":
		return cloudsim.Instance{}, false, s.rightPlace(ctx, node.Name, url)
	case node.Spec.ProviderID != "" || awaitsCloud(node): // for any other Node, find used only the Node's name, and a name does not prove that the Node belongs to this cloud
		if at, was := (place{url, i.Project}), s.seen.Load(); was == nil || *was != at {
			s.seen.Store(&at)
		}
	}
	return i, i.State != cloudsim.InstanceTerminated || node.Spec.ProviderID == "", nil
}

// rightPlace returns nil if this process has found an instance of this cluster in the current cloud
// and project. Otherwise the URL or the project may be wrong, and rightPlace returns an error. It
// compares the cloud and the project at each call, because the settings and the token may have
// changed. If the token is for all projects and the configuration contains no project, rightPlace
// compares only the cloud.
//
// The parameter url is the URL that the method find used. If the URL in the settings has changed
// since the call of find, rightPlace returns an error.
func (s *instances) rightPlace(ctx context.Context, name, url string) error {
	if s.settings.Get().URL != url {
		return fmt.Errorf("node %q: the Node stays, because the URL of the cloud changed during the search for its instance", name)
	}
	seen := s.seen.Load()
	if seen == nil || seen.url != url {
		return fmt.Errorf("node %q: the Node stays, because the cloud controller manager has found neither its instance nor another instance of this cluster in this cloud and project: check the URL and the project of the cloud", name)
	}
	switch me, err := s.api.WhoAmI(ctx); {
	case err != nil:
		return fmt.Errorf("node %q: its instance was not found, but the Node stays, because the project of the cloud controller manager is unknown: %w", name, err)
	case me.Project != "" && me.Project != seen.project:
		return fmt.Errorf("node %q: its instance was not found in project %s, but the Node stays, because earlier instances of this cluster were found in project %s: check the project in the configuration of the cloud controller manager", name, me.Project, seen.project)
	}
	return nil
}

// findAnyState returns the Node's instance, which may be terminated. If the cloud does not have
// the instance, the result has an empty id.
func (s *instances) findAnyState(ctx context.Context, node *v1.Node) (none cloudsim.Instance, err error) {
	if i, ok := s.fromMirror(node); ok {
		return i, nil
	}
	if node.Spec.ProviderID == "" {
		return s.findByName(ctx, node.Name)
	}
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		return none, fmt.Errorf("node %q: %w", node.Name, err)
	}
	i, err := s.api.GetInstance(ctx, cloudsim.InstanceID(id.Instance))
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return none, s.confirmAbsent(ctx, node.Name, cloudsim.InstanceID(id.Instance))
	case err != nil:
		return none, fmt.Errorf("node %q: instance %s: %w", node.Name, id.Instance, err)
	case i.ProviderID != node.Spec.ProviderID:
		// Every cloud numbers its instances from 1, so two clouds can have an
		// instance with the same id. The provider id shows that the Node
		// belongs to another cloud.
		return none, fmt.Errorf("spec.providerID of node %q is %s, but instance %s of this cloud has the provider ID %s: if the node belongs to this cloud, delete the Node object and restart the kubelet", node.Name, node.Spec.ProviderID, i.ID, i.ProviderID)
	}
	return i, nil
}

// confirmAbsent lists the instances with the Node's name. It returns nil if the list does not
// contain the instance. A successful list proves that the URL leads to a cloud, and that the
// project exists. So neither the URL nor the project caused the NotFound error of the caller.
func (s *instances) confirmAbsent(ctx context.Context, name string, id cloudsim.InstanceID) error {
	l, err := s.api.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	if err != nil {
		return fmt.Errorf("node %q: instance %s was not found, but the Node stays, because the list of instances that must confirm this failed: %w", name, id, err)
	}
	for _, i := range l.Items {
		if i.ID == id {
			return fmt.Errorf("node %q: instance %s is in the list of instances, but reading it by its id returned not found", name, id)
		}
	}
	return nil
}

// findByName returns the instance with the given name. The caller passes the
// name of a Node without a provider id. findByName returns an error if two
// instances have this name. Names are unique in a project, so the two instances
// belong to different projects.
func (s *instances) findByName(ctx context.Context, name string) (none cloudsim.Instance, err error) {
	l, err := s.api.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	switch {
	case err != nil:
		return none, fmt.Errorf("node %q: looking for an instance with this name: %w", name, err)
	case len(l.Items) == 0:
		return none, nil
	case len(l.Items) > 1:
		return none, fmt.Errorf("node %q: instances %s and %s both have this name: choose a project in the cloud configuration", name, l.Items[0].ID, l.Items[1].ID)
	case l.Items[0].Name != name:
		return none, fmt.Errorf("node %q: looking for an instance with this name: the cloud returned instance %q, which has another name", name, l.Items[0].Name)
	}
	return l.Items[0], nil
}

var nodeAddressTypes = map[cloudsim.InstanceAddressType]v1.NodeAddressType{
	cloudsim.AddressInternal: v1.NodeInternalIP,
	cloudsim.AddressExternal: v1.NodeExternalIP,
	cloudsim.AddressHostname: v1.NodeHostName,
}

// nodeAddresses converts the instance's addresses to the address types of
// Kubernetes. A newer cloud may have addresses of other types. nodeAddresses
// omits these addresses.
func nodeAddresses(i cloudsim.Instance) []v1.NodeAddress {
	var as []v1.NodeAddress
	for _, a := range i.Addresses {
		if t, ok := nodeAddressTypes[a.Type]; ok {
			as = append(as, v1.NodeAddress{Type: t, Address: a.Address})
		}
	}
	return as
}

// nodeLabels returns the labels of the instance that are valid on a Node. With an invalid label the
// API server would refuse the update that initializes the Node. The result may contain labels with
// the prefix kubernetes.io or k8s.io. Upstream's framework and this package's labeler ignore these
// labels.
func nodeLabels(i cloudsim.Instance) map[string]string {
	labels := map[string]string{}
	for k, v := range i.Labels {
		if len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0 {
			labels[k] = v
		}
	}
	return labels
}
