package engine

import (
	"context"
	"errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// metadataTrees stores the metadata trees. A metadata tree adds paths to the metadata service, and
// belongs to no project. The name of a tree is its id.
var metadataTrees = store.Table[cloudsim.MetadataTree]{
	Kind: cloudsim.KindMetadataTree,
	ID:   func(t *cloudsim.MetadataTree) string { return t.Name },
	Meta: func(t *cloudsim.MetadataTree) *cloudsim.Meta { return &t.Meta },
}

// SetMetadataTree creates or replaces a metadata tree. It returns Conflict if the paths of the tree
// overlap the paths of another tree, and Exhausted if the cloud has its maximum number of trees. A
// request that changes nothing writes no event.
func (e *Engine) SetMetadataTree(ctx context.Context, name string, req cloudsim.SetMetadataTree) (t cloudsim.MetadataTree, err error) {
	if err := errors.Join(cloudsim.CheckMetadataTreeName(name), req.Validate()); err != nil {
		return t, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		t = cloudsim.MetadataTree{} // the store can run this function again
		others := 0
		for other, err := range metadataTrees.Scan(tx, "", "") {
			switch {
			case err != nil:
				return err
			case other.Name == name:
				t = other
				continue
			case other.Conflicts(req.MetadataTreeSpec):
				return cloudsim.Errorf(cloudsim.Conflict, "the prefix or session path of %q overlaps the paths of metadata tree %q (%s): choose other paths, or delete that tree", name, other.Name, other.Prefix)
			}
			others++
		}
		switch {
		case t.Name != "" && sameLabels(t.Labels, req.Labels) && t.Same(req.MetadataTreeSpec):
			return nil
		case others >= cloudsim.MaxMetadataTrees:
			return cloudsim.Errorf(cloudsim.Exhausted, "the cloud has %d metadata trees, which is the maximum: delete a metadata tree first", others)
		}
		t.Name, t.Labels, t.MetadataTreeSpec = name, req.Labels, req.MetadataTreeSpec
		return metadataTrees.Put(tx, &t)
	})
	return t, err
}

// GetMetadataTree returns a metadata tree by name.
func (e *Engine) GetMetadataTree(ctx context.Context, name string) (cloudsim.MetadataTree, error) {
	return read(ctx, e.core, metadataTrees, name)
}

// ListMetadataTrees returns one page of metadata trees.
func (e *Engine) ListMetadataTrees(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.MetadataTree], error) {
	return listPage(ctx, e.core, metadataTrees, o, nil)
}

// DeleteMetadataTree deletes a metadata tree.
func (e *Engine) DeleteMetadataTree(ctx context.Context, name string) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		t, err := get(tx, call, metadataTrees, name)
		if err != nil {
			return err
		}
		return metadataTrees.Delete(tx, &t)
	})
}
