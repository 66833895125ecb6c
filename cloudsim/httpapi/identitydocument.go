package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// identityRoutes adds the routes that the metadata service calls for an instance. A caller
// that can get identity documents or tokens can pose as any instance. Therefore the
// permission classes PermitRead and PermitWrite do not contain instances.identity and
// instances.token. A role permits these two operations only by name or with a pattern.
func (a *api) identityRoutes() {
	handle(a, op{id: "instances.userData", method: http.MethodGet, path: "/v1/instances/{id}/user-data", summary: "Read the user data of an instance", access: engine.Write},
		func(ctx context.Context, in *ByID) (*struct{ Body cloudsim.UserData }, error) {
			return withoutETag(a.engine.GetUserData(ctx, cloudsim.InstanceID(in.ID)))
		})
	handle(a, op{id: "instances.identity", method: post, path: "/v1/instances/{id}/identity", summary: "Sign an identity document of an instance", access: engine.Manage},
		func(ctx context.Context, in *askInput[cloudsim.CreateIdentityDocument]) (*struct{ Body cloudsim.IdentityDocument }, error) {
			return withoutETag(a.engine.CreateIdentityDocument(ctx, cloudsim.InstanceID(in.ID), in.Body))
		})
	handle(a, op{id: "instances.token", method: post, path: "/v1/instances/{id}/token", summary: "Create a short-lived token of an instance's service account", status: http.StatusCreated, access: engine.Manage},
		func(ctx context.Context, in *ByID) (*body[cloudsim.Token], error) {
			v, err := a.engine.CreateInstanceToken(ctx, cloudsim.InstanceID(in.ID))
			return answer(v, v.Revision, err)
		})
}
