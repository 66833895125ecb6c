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

// instanceDeadline bounds one question about an instance: the framework asks
// without a deadline, and one node after the other.
const instanceDeadline = 10 * time.Second

// instances answers for nodes. It is a cloudprovider.InstancesV2.
type instances struct {
	api      *client.Client
	mirror   *mirror
	events   record.EventRecorder
	settings *Settings

	seen atomic.Pointer[place] // where an instance of this cluster was seen last

	mu     sync.Mutex
	last   sighting
	absent map[nodeKey]absence // only with grace
}

// sighting is what InstanceExists saw last. The framework asks InstanceShutdown
// right after it, for the same node, every few seconds for every node that is
// not ready; answering from here halves the calls. It is used once and for a
// moment, so it cannot tell of a state that is long over.
type sighting struct {
	node     nodeKey
	instance cloudsim.Instance
	at       time.Time
}

const sightingLasts = time.Second

// place is where an instance of this cluster was seen.
type place struct {
	url     string
	project cloudsim.ProjectID
}

// absence is of an instance that the cloud did not have when it was asked: since
// when, and when that was last.
type absence struct{ since, asked time.Time }

// absenceLasts is how long an absence goes on of which nobody asks. Upstream asks
// every few seconds, but only while a Node is not ready: one that is ready again
// has its instance, whatever the cloud said meanwhile.
const absenceLasts = time.Minute

type nodeKey struct{ name, providerID string }

func keyOf(n *v1.Node) nodeKey { return nodeKey{n.Name, n.Spec.ProviderID} }

// InstanceExists reports whether the node's instance is there, in whatever
// state. False, which deletes the Node, needs the cloud's clear word: the
// instance is not found, and a list of the same project does not show it. So a
// URL where no cloud is and a project that does not exist delete no nodes, and
// neither does a provider id that is damaged or of another region: all of these
// are errors. So is a node that no cloud ever initialised and that waits for none:
// its machine may be anywhere. And so is an absence from a project that has not
// shown this process any instance of this cluster: it may be another's, or of
// another cloud with the same zones. The price: if none has an instance any more
// when the manager starts, the Nodes stay until one that has joins.
func (s *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	i, found, err := s.find(ctx, node)
	switch {
	case err != nil:
		return false, err
	case !found && node.Spec.ProviderID == "" && !awaitsCloud(node):
		return false, fmt.Errorf("node %q has no provider id and no instance of its name, and does not wait for a cloud: it is not this cloud's", node.Name)
	case !found:
		return s.forgive(node), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.absent, keyOf(node))
	s.last = sighting{keyOf(node), i, time.Now()}
	return true, nil
}

// forgive reports whether a node whose instance is gone is kept for now: an
// absence is told only when it has lasted for the grace. A restart or another
// leader counts anew, so the Node may stay a little longer, and never shorter.
func (s *instances) forgive(node *v1.Node) bool {
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
		s.events.Eventf(node, v1.EventTypeWarning, "InstanceGone", "The cloud has no instance for this Node; it is deleted in %s unless the instance is there again", grace)
	}
	return true
}

// awaitsCloud reports whether the node still has the taint that kubelet's
// --cloud-provider=external gives it.
func awaitsCloud(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
}

// InstanceShutdown reports whether the node's instance is stopped, or on its
// way there; the node then gets the shutdown taint. An instance that is gone
// is not shut down: InstanceExists says the rest.
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

// sighted takes what InstanceExists just saw of this node.
func (s *instances) sighted(node *v1.Node) (cloudsim.Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last
	s.last = sighting{}
	return l.instance, l.node == keyOf(node) && time.Since(l.at) < sightingLasts
}

// InstanceMetadata returns what only the cloud knows about a node. It returns
// metadata or an error, never neither; an instance that is not there (yet) is
// an error, so that the node keeps its taint and is asked about again. The
// addresses are all that the instance has, in the cloud's order: the framework
// picks from them what the node's provided-node-ip annotation asks for.
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
			return nil, fmt.Errorf("instance %s: its %s %q cannot be a node's label: %v", i.ID, field, value, problems)
		}
	}
	return m, nil
}

// mirrored returns the node's instance if the mirror knows it. It costs no call.
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

// find returns the node's instance: what the mirror holds, else what the cloud
// says. False without an error is the clear word of the right cloud that it has
// none.
func (s *instances) find(ctx context.Context, node *v1.Node) (cloudsim.Instance, bool, error) {
	url := s.settings.Get().URL
	i, err := s.look(ctx, node)
	switch {
	case err != nil:
		return cloudsim.Instance{}, false, err
	case i.ID == "":
		return cloudsim.Instance{}, false, s.rightPlace(ctx, node.Name, url)
	case node.Spec.ProviderID != "" || awaitsCloud(node): // else only a name is the same
		if at, was := (place{url, i.Project}), s.seen.Load(); was == nil || *was != at {
			s.seen.Store(&at)
		}
	}
	return i, i.State != cloudsim.InstanceTerminated || node.Spec.ProviderID == "", nil
}

// rightPlace is nil if the cloud at url, and the project that it is asked about
// now, showed an instance of this cluster before. Settings and tokens may have
// changed since; a token of all projects sees that one, too.
func (s *instances) rightPlace(ctx context.Context, name, url string) error {
	seen := s.seen.Load()
	if seen == nil || seen.url != url {
		return fmt.Errorf("node %q: the cloud has no instance of it, but may be the wrong one, or the project may: no instance of this cluster has been seen there since this manager began to ask", name)
	}
	switch me, err := s.api.WhoAmI(ctx); {
	case err != nil:
		return fmt.Errorf("node %q: its instance is not found, but in which project is not known: %w", name, err)
	case me.Project != "" && me.Project != seen.project:
		return fmt.Errorf("node %q: its instance is not found in project %s, but instances of this cluster were seen in %s", name, me.Project, seen.project)
	}
	return nil
}

// look returns the node's instance, which may be terminated, or one without an
// id if the cloud has none.
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
		// Ids count from 1 in every cloud: this is another cloud's node.
		return none, fmt.Errorf("node %q has the provider id %s, but this cloud's %s is %s", node.Name, node.Spec.ProviderID, i.ID, i.ProviderID)
	}
	return i, nil
}

// confirmAbsent is nil when the cloud answers a list of the project, and the
// instance is not in it. An answer without it proves that the first NotFound
// was about the instance, not about the URL or the project.
func (s *instances) confirmAbsent(ctx context.Context, name string, id cloudsim.InstanceID) error {
	l, err := s.api.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	if err != nil {
		return fmt.Errorf("node %q: instance %s is not found, but that cannot be confirmed: %w", name, id, err)
	}
	for _, i := range l.Items {
		if i.ID == id {
			return fmt.Errorf("node %q: instance %s is both listed and not found", name, id)
		}
	}
	return nil
}

// findByName is for a node that was never initialised. Names are unique in a
// project, so a second one means that the answer is not about one project.
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

// nodeAddresses are the instance's addresses in Kubernetes' words. A type from
// a newer cloud is left out.
func nodeAddresses(i cloudsim.Instance) []v1.NodeAddress {
	var as []v1.NodeAddress
	for _, a := range i.Addresses {
		if t, ok := nodeAddressTypes[a.Type]; ok {
			as = append(as, v1.NodeAddress{Type: t, Address: a.Address})
		}
	}
	return as
}

// nodeLabels are those labels of the instance that can be labels of a Node:
// one that cannot would keep the node from being registered at all. Labels of
// kubernetes.io and k8s.io are the framework's to drop.
func nodeLabels(i cloudsim.Instance) map[string]string {
	labels := map[string]string{}
	for k, v := range i.Labels {
		if len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0 {
			labels[k] = v
		}
	}
	return labels
}
