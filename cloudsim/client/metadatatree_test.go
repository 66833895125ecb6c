package client_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func everyMetadataTreeVerb(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, admin := t.Context(), *c
	admin.Project = ""
	tree := cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{Prefix: "/x", Leaves: []cloudsim.MetadataLeaf{{Path: "/id", Text: "${id}"}}}}
	made := must(admin.SetMetadataTree(ctx, "x", tree))(t)
	if got := must(admin.GetMetadataTree(ctx, "x"))(t); got.Revision != made.Revision || !got.Same(tree.MetadataTreeSpec) {
		t.Errorf("metadata tree: got %+v, want the tree that was set", got)
	}
	if l := must(c.ListMetadataTrees(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 {
		t.Errorf("metadata trees: got %+v, want 1", l.Items)
	}
	if err := admin.DeleteMetadataTree(ctx, "x"); err != nil {
		t.Error(err)
	}
	if err := admin.DeleteMetadataTree(ctx, "x"); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("second deletion: got error %v, want NotFound", err)
	}
}
