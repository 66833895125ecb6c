package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) metadataTreeRoutes() {
	e := a.engine
	lists(a, "metadataTrees", "/v1/metadata-trees", "metadata trees (additional paths of the metadata service)", engine.Read, e.ListMetadataTrees)
	gets(a, "metadataTrees", "/v1/metadata-trees/{id}", "a metadata tree by name", engine.Read, e.GetMetadataTree, revOf[cloudsim.MetadataTree])
	handle(a, op{id: "metadataTrees.set", method: http.MethodPut, path: "/v1/metadata-trees/{id}", summary: "Create or replace a metadata tree", access: engine.Admin}, a.setMetadataTree)
	deletes(a, "metadataTrees", "/v1/metadata-trees/{id}", "Delete a metadata tree", engine.Admin, e.DeleteMetadataTree)
}

func (a *api) setMetadataTree(ctx context.Context, in *struct {
	ByID
	Body cloudsim.SetMetadataTree
}) (*body[cloudsim.MetadataTree], error) {
	v, err := a.engine.SetMetadataTree(ctx, in.ID, in.Body)
	return answer(v, v.Revision, err)
}
