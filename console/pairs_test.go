package console

import (
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestPairs proves that the pairs of instances and Nodes do not depend on the order of the objects.
// If the provider ID and the name of a Node match different instances, the Node belongs to the
// instance with this provider ID.
func TestPairs(t *testing.T) {
	instance := func(id, name, project string) cloudsim.Instance {
		return cloudsim.Instance{
			ID: cloudsim.InstanceID(id), Meta: cloudsim.Meta{Name: name, Project: cloudsim.ProjectID(project)},
			ProviderID: "cloudsim://sim-1/sim-1a/" + id,
		}
	}
	for name, tc := range map[string]struct {
		instances []cloudsim.Instance
		nodes     []Node
		want      []string
	}{
		"two Nodes with one provider ID": {
			[]cloudsim.Instance{instance("i-000001", "a", "p")},
			[]Node{{Name: "a", ProviderID: "cloudsim://sim-1/sim-1a/i-000001"}, {Name: "b", ProviderID: "cloudsim://sim-1/sim-1a/i-000001"}},
			[]string{"i-000001 a", "none b"},
		},
		"one name in two projects": {
			[]cloudsim.Instance{instance("i-000001", "a", "p"), instance("i-000002", "a", "q")},
			[]Node{{Name: "a", ProviderID: "hcloud://2"}},
			[]string{"i-000001 none", "i-000002 a"},
		},
		"a Node without a provider ID": {
			[]cloudsim.Instance{instance("i-000001", "a", "p")}, []Node{{Name: "a"}}, []string{"i-000001 a"},
		},
	} {
		for range 20 { // the order of a map is random
			objects := map[key]entry{}
			for _, i := range tc.instances {
				objects[key{string(cloudsim.KindInstance), string(i.ID)}] = entry{value: i}
			}
			for _, n := range tc.nodes {
				objects[key{KindNode, n.Name}] = entry{value: n}
			}
			pairs, _ := pairsOf(objects)
			var got []string
			for _, p := range pairs {
				i, n := "none", "none"
				if p.instance != nil {
					i = string(p.instance.ID)
				}
				if p.node != nil {
					n = p.node.Name
				}
				got = append(got, i+" "+n)
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Fatalf("%s: got the pairs %q, want %q", name, got, tc.want)
			}
		}
	}
}
