package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) serviceAccountRoutes() {
	e := a.engine
	handle(a, op{id: "serviceAccounts.create", method: post, path: "/v1/service-accounts", summary: "Create a service account without permissions", status: http.StatusCreated, access: engine.Manage, idemKey: true}, a.createServiceAccount)
	lists(a, "serviceAccounts", "/v1/service-accounts", "service accounts", engine.Manage, e.ListServiceAccounts)
	gets(a, "serviceAccounts", "/v1/service-accounts/{id}", "a service account", engine.Manage, e.GetServiceAccount, revOf[cloudsim.ServiceAccount])
	deletes(a, "serviceAccounts", "/v1/service-accounts/{id}", "Delete a service account and its tokens, access keys, role bindings and workload trusts", engine.Manage, e.DeleteServiceAccount)
}

func (a *api) createServiceAccount(ctx context.Context, in *create[cloudsim.CreateServiceAccount]) (*body[cloudsim.ServiceAccount], error) {
	v, err := a.engine.CreateServiceAccount(ctx, in.Body)
	return answer(v, v.Revision, err)
}
