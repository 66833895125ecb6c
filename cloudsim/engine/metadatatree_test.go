package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestMetadataTreeOfRepeatedBatch proves that the engine stores a new metadata tree even if the
// store runs the transaction function of SetMetadataTree twice. The store runs the transaction
// functions of concurrent calls in one transaction. If one function writes and then fails, the
// store repeats the other functions. In this test, the functions of CreateInstance fail: each takes
// an address, but then finds no free pod range.
func TestMetadataTreeOfRepeatedBatch(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	spec := cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.11.0.0/24"}}
	n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "small", IPv4: "10.10.0.0/16", NetworkSpec: spec}))(t)
	must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "small", Network: n.ID, IPv4: "10.10.0.0/24"}))(t)
	instance := cloudsim.CreateInstance{Name: "first", Zone: "sim-1a", Type: "small", Network: n.ID}
	must(e.CreateInstance(ctx, instance))(t)
	instance.Name = "second"

	for i := range 40 {
		tree := cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{
			Prefix: fmt.Sprintf("/tree-%d", i), Leaves: []cloudsim.MetadataLeaf{{Path: "/id", Text: "${id}"}},
		}}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if _, err := e.CreateInstance(ctx, instance); !errors.Is(err, cloudsim.Exhausted) {
					t.Errorf("instance without a pod range: got error %v, want Exhausted", err)
				}
			})
		}
		calls.Go(func() {
			if _, err := e.SetMetadataTree(ctx, "tree", tree); err != nil {
				t.Error(err)
			}
		})
		calls.Wait()
		if got, err := e.GetMetadataTree(ctx, "tree"); err != nil || got.Prefix != tree.Prefix {
			t.Fatalf("tree %d: got prefix %q, error %v; want %q", i, got.Prefix, err, tree.Prefix)
		}
		if err := e.DeleteMetadataTree(ctx, "tree"); err != nil {
			t.Fatal(err)
		}
	}
}
