package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// The CCM adds taintShutdown to the Node of a stopped instance. It removes taintUninitialized from
// a Node after it has initialized the Node. It sets labelServiceUID on the load balancer of a
// Service.
const (
	taintShutdown      = "node.cloudprovider.kubernetes.io/shutdown"
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	labelServiceUID    = "kubernetes.io/service-uid"
)

// Difference is a difference between the cloud and the cluster.
type Difference struct {
	Rule     string    `json:"rule"`
	Kind     string    `json:"kind"` // kind of the object: instance, node, loadBalancer or disk
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Node     string    `json:"node,omitempty"`     // name of the Node of the pair
	Label    string    `json:"label"`              // a few words for the map
	Text     string    `json:"text"`               // the facts in a sentence
	Expected string    `json:"expected,omitempty"` // the next step that ends the difference
	Missing  bool      `json:"missing,omitempty"`  // the cloud or the cluster does not have the object
	Since    time.Time `json:"since"`              // first observation, on the machine's clock
	project  cloudsim.ProjectID
}

// pair is an instance and its Node. The instance or the Node can be absent.
type pair struct {
	instance *cloudsim.Instance
	node     *Node
}

// A rule finds one kind of difference in a pair. The function check returns false if the pair does
// not have this difference.
type rule struct {
	id    string
	check func(pair) (Difference, bool)
}

// pairRules are the rules for instances and Nodes.
var pairRules = []rule{
	{"no-node", func(p pair) (d Difference, ok bool) {
		if p.node != nil || p.instance.State != cloudsim.InstanceRunning {
			return d, false
		}
		return Difference{
			Label: "no Node", Missing: true, Text: "The cloud runs this instance, but the cluster has no Node for it.",
			Expected: "The kubelet of the instance registers a Node.",
		}, true
	}},
	{"no-instance", func(p pair) (d Difference, ok bool) {
		if p.instance != nil {
			return d, false
		}
		d = Difference{Label: "no instance", Missing: true, Text: "The cluster has this Node, but the cloud has no instance for it.", Expected: "The CCM deletes the Node when its kubelet no longer reports."}
		if p.node.ProviderID == "" {
			d.Text, d.Expected = "The cluster has this Node without a provider id, and the cloud has no instance with its name.", "If the Node waits for its initialization, the CCM deletes the Node when its kubelet no longer reports. Otherwise a person deletes the Node, or creates an instance with this name."
		}
		return d, true
	}},
	{"uninitialized", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || !p.node.hasTaint(taintUninitialized) {
			return d, false
		}
		return Difference{Label: "uninitialized", Text: "The Node still has the taint " + taintUninitialized + ".", Expected: "The CCM reads the instance, sets the provider id and the addresses, and removes the taint."}, true
	}},
	{"stopped-without-taint", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.instance.State != cloudsim.InstanceStopped || p.node.hasTaint(taintShutdown) {
			return d, false
		}
		return Difference{Label: "differs", Text: "The instance is stopped, but the Node has no shutdown taint.", Expected: "The CCM adds the taint " + taintShutdown + " when the kubelet no longer reports."}, true
	}},
	{"taint-without-stop", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.instance.State != cloudsim.InstanceRunning || !p.node.hasTaint(taintShutdown) {
			return d, false
		}
		return Difference{Label: "differs", Text: "The instance runs, but the Node still has the shutdown taint.", Expected: "The CCM removes the taint when the kubelet reports again."}, true
	}},
	{"crashed-but-ready", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.node.Ready != "True" || p.instance.Crashed == nil {
			return d, false
		}
		return Difference{Label: "differs", Text: "The instance has crashed, but the Node is still Ready.", Expected: "The node lifecycle controller marks the Node NotReady when its Lease is too old: after 30 s in a lab, and after 50 s by default."}, true
	}},
	{"running-not-ready", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.instance.State != cloudsim.InstanceRunning || p.instance.Crashed != nil || p.node.Ready == "True" || p.node.hasTaint(taintShutdown) {
			return d, false
		}
		return Difference{Label: "NotReady", Text: "The instance runs, but its Node is not Ready.", Expected: "The kubelet reports again, or a person repairs the instance."}, true
	}},
	{"provider-id", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.node.ProviderID == "" || providerid.Same(p.node.ProviderID, p.instance.ProviderID) {
			return d, false
		}
		return Difference{Label: "provider id", Text: fmt.Sprintf("The Node has the provider id %q, but the instance with its name has %q.", p.node.ProviderID, p.instance.ProviderID), Expected: "The CCM deletes the Node, and the kubelet registers it again."}, true
	}},
	{"zone", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.node.Zone == "" || p.node.Zone == p.instance.Zone {
			return d, false
		}
		return Difference{Label: "zone", Text: fmt.Sprintf("The zone label of the Node is %q, but the instance is in %q.", p.node.Zone, p.instance.Zone), Expected: "The CCM corrects the label."}, true
	}},
	{"address", func(p pair) (d Difference, ok bool) {
		if p.instance == nil || p.node == nil || p.node.hasTaint(taintUninitialized) {
			return d, false
		}
		want := p.instance.InternalIP()
		have := slices.IndexFunc(p.node.Addresses, func(a NodeAddress) bool { return a.Type == "InternalIP" && a.Address == want })
		if want == "" || have >= 0 || len(p.node.Addresses) == 0 {
			return d, false
		}
		return Difference{Label: "address", Text: "The Node does not have the internal address " + want + " of the instance.", Expected: "The CCM corrects the addresses within five minutes."}, true
	}},
}

func (n *Node) hasTaint(key string) bool {
	return slices.ContainsFunc(n.Taints, func(t string) bool { return strings.HasPrefix(t, key+":") })
}

// pairsOf returns a pair for each instance and its Node, and a map with the same pairs by the ID of
// the instance. A Node belongs to the instance that its provider ID names. If this instance does
// not exist or already has a Node, pairsOf searches for instances that have the Node's name and no
// Node. The Node then belongs to the instance with the lowest ID. A Node without an instance has
// its own pair. The order of the objects does not change the result.
func pairsOf(objects map[key]entry) (pairs []*pair, byID map[string]*pair) {
	byID = map[string]*pair{}
	byName := map[string][]*pair{} // several projects can use one name
	var nodes []*Node
	for _, k := range sortedKeys(objects) {
		switch o := objects[k].value.(type) {
		case cloudsim.Instance:
			p := &pair{instance: &o}
			pairs = append(pairs, p)
			byID[string(o.ID)], byName[o.Name] = p, append(byName[o.Name], p)
		case Node:
			nodes = append(nodes, &o)
		}
	}
	firstFree := func(name string, isMatch func(*pair) bool) *pair {
		for _, p := range byName[name] {
			if p.node == nil && isMatch(p) {
				return p
			}
		}
		return nil
	}
	var others []*Node
	for _, n := range nodes {
		var p *pair
		if id, err := providerid.Parse(n.ProviderID); err == nil {
			p = byID[id.Instance]
		} else {
			p = firstFree(n.Name, func(p *pair) bool { return providerid.Same(n.ProviderID, p.instance.ProviderID) })
		}
		if p == nil || p.node != nil {
			others = append(others, n)
			continue
		}
		p.node = n
	}
	for _, n := range others {
		if p := firstFree(n.Name, func(*pair) bool { return true }); p != nil {
			p.node = n
			continue
		}
		pairs = append(pairs, &pair{node: n})
	}
	return pairs, byID
}

// compare returns the differences between the cloud and the cluster, sorted by the kind of the
// object, the ID of the object, and the rule.
func compare(objects map[key]entry) []Difference {
	pairs, byID := pairsOf(objects)
	services := map[string]bool{}
	attached := map[string][]string{} // names of Nodes, by the ID of the disk
	for _, e := range objects {
		switch o := e.value.(type) {
		case Service:
			services[o.UID] = true
		case VolumeAttachment:
			if o.Attached && o.Disk != "" {
				attached[o.Disk] = append(attached[o.Disk], o.Node)
			}
		}
	}
	var all []Difference
	for _, p := range pairs {
		all = append(all, p.differences()...)
	}
	for _, e := range objects {
		switch o := e.value.(type) {
		case cloudsim.LoadBalancer:
			if uid := o.Labels[labelServiceUID]; uid != "" && !services[uid] && o.State != cloudsim.LoadBalancerDeleting {
				all = append(all, Difference{
					Rule: "no-service", Kind: string(cloudsim.KindLoadBalancer), ID: string(o.ID), Name: o.Name, project: o.Project, Label: "no Service", Missing: true,
					Text: "The Service of this load balancer does not exist.", Expected: "The CCM deletes the load balancer.",
				})
			}
		case cloudsim.Disk:
			all = append(all, diskDifferences(o, byID, attached[string(o.ID)])...)
		}
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

func (p *pair) differences() (found []Difference) {
	for _, r := range pairRules {
		if p.node == nil && r.id != "no-node" {
			continue
		}
		d, ok := r.check(*p)
		if !ok {
			continue
		}
		d.Rule = r.id
		if p.node != nil {
			d.Kind, d.ID, d.Name, d.Node = KindNode, p.node.Name, p.node.Name, p.node.Name
		}
		if i := p.instance; i != nil {
			d.Kind, d.ID, d.Name, d.project = string(cloudsim.KindInstance), string(i.ID), i.Name, i.Project
		}
		found = append(found, d)
	}
	return found
}

// diskDifferences compares the attachments of a disk in the cloud with the Nodes to which the disk
// is attached in the cluster.
func diskDifferences(disk cloudsim.Disk, instances map[string]*pair, nodes []string) (found []Difference) {
	for _, node := range nodes {
		if !slices.ContainsFunc(disk.Attachments, func(a cloudsim.Attachment) bool {
			p := instances[string(a.Instance)]
			return p != nil && (p.instance.Name == node || p.node != nil && p.node.Name == node)
		}) {
			found = append(found, Difference{
				Rule: "attachment", Kind: string(cloudsim.KindDisk), ID: string(disk.ID), Name: disk.Name, project: disk.Project, Label: "not attached",
				Text: "In the cluster, this disk is attached to the Node " + node + ", but in the cloud, the disk is not attached to the instance of this Node.", Expected: "The attach/detach controller calls the CSI driver again.",
			})
		}
	}
	return found
}
