package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) accessKeyRoutes() {
	e := a.engine
	handle(a, op{id: "accessKeys.create", method: post, path: "/v1/access-keys", summary: "Create an access key, with which a service account signs requests. Only this response contains the secret", status: http.StatusCreated, access: engine.Manage},
		func(ctx context.Context, in *create[cloudsim.CreateAccessKey]) (*body[cloudsim.AccessKey], error) {
			v, err := e.CreateAccessKey(ctx, in.Body)
			return answer(v, v.Revision, err)
		})
	lists(a, "accessKeys", "/v1/access-keys", "access keys, without their secrets", engine.Manage, e.ListAccessKeys)
	gets(a, "accessKeys", "/v1/access-keys/{id}", "an access key, without its secret", engine.Manage, e.GetAccessKey, revOf[cloudsim.AccessKey])
	deletes(a, "accessKeys", "/v1/access-keys/{id}", "Revoke an access key at once", engine.Manage, e.DeleteAccessKey)
}
