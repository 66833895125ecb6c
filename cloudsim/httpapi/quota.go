package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) quotaRoutes() {
	handle(a, op{id: "quotas.list", method: http.MethodGet, path: "/v1/quotas", summary: "List the quotas of a project and their current use", access: engine.Read}, a.listQuotas)
	handle(a, op{id: "quotas.set", method: http.MethodPut, path: "/v1/quotas/{id}", summary: "Set a quota of a project", access: engine.Admin}, a.setQuota)
}

func (a *api) listQuotas(ctx context.Context, _ *none) (*struct{ Body cloudsim.Quotas }, error) {
	v, err := a.engine.ListQuotas(ctx)
	return &struct{ Body cloudsim.Quotas }{v}, err
}

func (a *api) setQuota(ctx context.Context, in *struct {
	ByID
	Body cloudsim.SetQuota
}) (*struct{ Body cloudsim.Quota }, error) {
	v, err := a.engine.SetQuota(ctx, cloudsim.QuotaName(in.ID), in.Body)
	return &struct{ Body cloudsim.Quota }{v}, err
}
