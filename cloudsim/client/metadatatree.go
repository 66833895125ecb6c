package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// SetMetadataTree creates or replaces a metadata tree. A tree is a set of additional paths of the
// metadata service. SetMetadataTree returns Conflict if these paths overlap the paths of another
// tree. It returns Exhausted if the cloud has the maximum number of trees. The caller must be an
// admin.
func (c *Client) SetMetadataTree(ctx context.Context, name string, req cloudsim.SetMetadataTree) (cloudsim.MetadataTree, error) {
	return call[cloudsim.MetadataTree](ctx, c, "PUT", "/v1/metadata-trees/"+seg(name), req)
}

// GetMetadataTree returns a metadata tree.
func (c *Client) GetMetadataTree(ctx context.Context, name string) (cloudsim.MetadataTree, error) {
	return call[cloudsim.MetadataTree](ctx, c, "GET", "/v1/metadata-trees/"+seg(name), nil)
}

// ListMetadataTrees returns one page of metadata trees.
func (c *Client) ListMetadataTrees(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.MetadataTree], error) {
	return call[cloudsim.List[cloudsim.MetadataTree]](ctx, c, "GET", "/v1/metadata-trees"+listQuery(o), nil)
}

// DeleteMetadataTree deletes a metadata tree.
func (c *Client) DeleteMetadataTree(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/metadata-trees/"+seg(name), nil)
	return err
}
