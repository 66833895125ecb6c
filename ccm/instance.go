package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// instanceDeadline limits a question about an instance. The framework sets no
// deadline and asks for all Nodes one after the other.
const instanceDeadline = 10 * time.Second

// instances is a cloudprovider.InstancesV2. It answers questions about Nodes.
type instances struct {
	api      *client.Client
	mirror   *mirror
	events   record.EventRecorder
	settings *Settings

	seen atomic.Pointer[place] // where an instance of this cluster was found last

	mu     sync.Mutex
	last   sighting
	absent map[nodeKey]absence // only used with NodeDeletionGrace
}

// sighting is the last result of InstanceExists. For every Node that is not
// ready, the framework calls InstanceExists every few seconds, and then
// InstanceShutdown for the same Node. With the sighting the second call needs no
// call to the cloud. A sighting is used only once and expires after a second, so
// it never reports an old state.
type sighting struct {
	node     nodeKey
	instance cloudsim.Instance
	at       time.Time
}

const sightingLasts = time.Second

// place is a cloud and a project with an instance of this cluster.
type place struct {
	url     string
	project cloudsim.ProjectID
}

// absence records an instance that the cloud did not have. It contains the time
// of the first and of the last question.
type absence struct{ since, asked time.Time }

// absenceLasts is the time after which an absence is forgotten if upstream does
// not ask again. Upstream asks every few seconds, but only while a Node is not
// ready. A Node that became ready again has its instance, so the earlier absence
// does not count.
const absenceLasts = time.Minute

type nodeKey struct{ name, providerID string }

func keyOf(n *v1.Node) nodeKey { return nodeKey{n.Name, n.Spec.ProviderID} }

// InstanceExists reports whether the Node's instance exists, in any state. The
// framework deletes the Node if the result is false. InstanceExists therefore
// returns false only if the cloud does not find the instance and a list of the
// same project does not contain it.
//
// All unclear cases are errors, so that they delete no Node:
//
//   - The URL does not lead to a cloud, or the project does not exist.
//   - The provider id is damaged or belongs to another region.
//   - The Node was never initialised by a cloud and does not wait for a cloud. Its
//     machine may be anywhere.
//   - This process has not yet seen an instance of this cluster in the project. The
//     project may be wrong, or the URL may lead to another cloud with the same zones.
//
// The last rule has a cost. If no Node has an instance when the CCM starts, the
// Nodes stay until a Node with an instance joins.
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
	s.last = sighting{keyOf(node), i, time.Now()}
	return true, nil
}

// inDeletionGrace reports whether to keep a Node without an instance. It returns true
// until the absence has lasted for NodeDeletionGrace. A restart or a new
// leader starts the time again, so a Node may stay longer than the grace, but
// never shorter.
func (s *instances) inDeletionGrace(node *v1.Node) bool {
	grace := s.settings.Get().NodeDeletionGrace.Duration
	if grace <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := time.Now(), keyOf(node)
	maps.DeleteFunc(s.absent, func(_ nodeKey, a absence) bool { return now.Sub(a.asked) > absenceLasts })
	a, known := s.absent[key]
	switch {
	case known && now.Sub(a.since) >= grace:
		delete(s.absent, key)
		return false
	case known:
		s.absent[key] = absence{a.since, now}
	default:
		s.absent[key] = absence{now, now}
		s.events.Eventf(node, v1.EventTypeWarning, "InstanceGone", "The cloud has no instance for this Node. The Node is deleted in %s unless the instance exists again", grace)
	}
	return true
}

// awaitsCloud reports whether the Node still has the taint that the kubelet sets
// with --cloud-provider=external.
func awaitsCloud(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
}

// InstanceShutdown reports whether the Node's instance is stopped or stopping.
// The framework then adds the shutdown taint to the Node. For an absent instance
// the result is false, because InstanceExists handles that case.
func (s *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	i, found := s.sighted(node)
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

// sighted returns and removes the last sighting, if it is recent and about this
// Node.
func (s *instances) sighted(node *v1.Node) (cloudsim.Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last
	s.last = sighting{}
	return l.instance, l.node == keyOf(node) && time.Since(l.at) < sightingLasts
}

// InstanceMetadata returns the data about a Node that only the cloud knows. It
// returns either metadata or an error. An absent instance is an error, so that
// the Node keeps its taint and the framework asks again. The addresses are all
// addresses of the instance, in the cloud's order. The framework selects from
// them according to the Node's provided-node-ip annotation.
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
		if problems := validation.IsValidLabelValue(value); value == "" || len(problems) > 0 {
			return nil, fmt.Errorf("instance %s: its %s %q is not a valid label value of a node: %v", i.ID, field, value, problems)
		}
	}
	return m, nil
}

// mirrored returns the Node's instance if the mirror has it. It makes no call to
// the cloud.
func (s *instances) mirrored(node *v1.Node) (cloudsim.Instance, bool) {
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

// find returns the Node's instance, from the mirror or from the cloud. The result
// false without an error means that the correct cloud has no such instance. A
// terminated instance counts as absent if the Node has a provider id.
func (s *instances) find(ctx context.Context, node *v1.Node) (cloudsim.Instance, bool, error) {
	url := s.settings.Get().URL
	i, err := s.look(ctx, node)
	switch {
	case err != nil:
		return cloudsim.Instance{}, false, err
	case i.ID == "":
		return cloudsim.Instance{}, false, s.rightPlace(ctx, node.Name, url)
	case node.Spec.ProviderID != "" || awaitsCloud(node): // otherwise only the name matches
		if at, was := (place{url, i.Project}), s.seen.Load(); was == nil || *was != at {
			s.seen.Store(&at)
		}
	}
	return i, i.State != cloudsim.InstanceTerminated || node.Spec.ProviderID == "", nil
}

// rightPlace returns nil if this process has seen an instance of this cluster in
// the current cloud and project. It checks again each time, because the settings
// and the token may have changed since. A token for all projects also sees the
// earlier project.
func (s *instances) rightPlace(ctx context.Context, name, url string) error {
	seen := s.seen.Load()
	if seen == nil || seen.url != url {
		return fmt.Errorf("not deleting node %q: its instance was not found, and this project has not shown an instance of this cluster since the start of this manager (wrong cloud or project?)", name)
	}
	switch me, err := s.api.WhoAmI(ctx); {
	case err != nil:
		return fmt.Errorf("not deleting node %q: its instance was not found, and the project of this manager is unknown: %w", name, err)
	case me.Project != "" && me.Project != seen.project:
		return fmt.Errorf("not deleting node %q: its instance was not found in project %s, but instances of this cluster were in project %s", name, me.Project, seen.project)
	}
	return nil
}

// look returns the Node's instance, which may be terminated. If the cloud has
// none, the result has an empty id.
func (s *instances) look(ctx context.Context, node *v1.Node) (none cloudsim.Instance, err error) {
	if i, ok := s.mirrored(node); ok {
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
		// Ids count from 1 in every cloud, so this is a Node of another cloud.
		return none, fmt.Errorf("node %q has the provider id %s, but this cloud's %s is %s", node.Name, node.Spec.ProviderID, i.ID, i.ProviderID)
	}
	return i, nil
}

// confirmAbsent returns nil if the cloud returns a list of the project without
// the instance. This list proves that the earlier NotFound was about the
// instance, not about the URL or the project.
func (s *instances) confirmAbsent(ctx context.Context, name string, id cloudsim.InstanceID) error {
	l, err := s.api.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	if err != nil {
		return fmt.Errorf("not deleting node %q: instance %s was not found, but the confirmation failed: %w", name, id, err)
	}
	for _, i := range l.Items {
		if i.ID == id {
			return fmt.Errorf("node %q: instance %s is both listed and not found", name, id)
		}
	}
	return nil
}

// findByName returns the instance of a Node that was never initialised. Names are
// unique in a project. Two results mean that the answer covers several projects,
// and this is an error.
func (s *instances) findByName(ctx context.Context, name string) (none cloudsim.Instance, err error) {
	l, err := s.api.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	switch {
	case err != nil:
		return none, fmt.Errorf("node %q: looking for its instance: %w", name, err)
	case len(l.Items) == 0:
		return none, nil
	case len(l.Items) > 1:
		return none, fmt.Errorf("node %q: %s and %s both have its name: choose a project in the cloud configuration", name, l.Items[0].ID, l.Items[1].ID)
	case l.Items[0].Name != name:
		return none, fmt.Errorf("node %q: the cloud answered with instance %q", name, l.Items[0].Name)
	}
	return l.Items[0], nil
}

var nodeAddressTypes = map[cloudsim.InstanceAddressType]v1.NodeAddressType{
	cloudsim.AddressInternal: v1.NodeInternalIP,
	cloudsim.AddressExternal: v1.NodeExternalIP,
	cloudsim.AddressHostname: v1.NodeHostName,
}

// nodeAddresses converts the instance's addresses to the types of Kubernetes. It
// omits types that it does not know, for example from a newer cloud.
func nodeAddresses(i cloudsim.Instance) []v1.NodeAddress {
	var as []v1.NodeAddress
	for _, a := range i.Addresses {
		if t, ok := nodeAddressTypes[a.Type]; ok {
			as = append(as, v1.NodeAddress{Type: t, Address: a.Address})
		}
	}
	return as
}

// nodeLabels returns the labels of the instance that are valid on a Node. An
// invalid label would prevent the registration of the Node. The framework itself
// drops labels of kubernetes.io and k8s.io.
func nodeLabels(i cloudsim.Instance) map[string]string {
	labels := map[string]string{}
	for k, v := range i.Labels {
		if len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0 {
			labels[k] = v
		}
	}
	return labels
}
