package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) workloadTrustRoutes() {
	e := a.engine
	handle(a, op{id: "workloadTrusts.create", method: post, path: "/v1/workload-trusts", summary: "Let a Kubernetes service account authenticate as a service account of the cloud", status: http.StatusCreated, access: engine.Manage, idemKey: true},
		func(ctx context.Context, in *create[cloudsim.CreateWorkloadTrust]) (*body[cloudsim.WorkloadTrust], error) {
			v, err := e.CreateWorkloadTrust(ctx, in.Body)
			return answer(v, v.Revision, err)
		})
	lists(a, "workloadTrusts", "/v1/workload-trusts", "workload trusts", engine.Manage, e.ListWorkloadTrusts)
	gets(a, "workloadTrusts", "/v1/workload-trusts/{id}", "a workload trust", engine.Manage, e.GetWorkloadTrust, revOf[cloudsim.WorkloadTrust])
	deletes(a, "workloadTrusts", "/v1/workload-trusts/{id}", "Delete a workload trust. The next call of its callers fails, and their watches end", engine.Manage, e.DeleteWorkloadTrust)
}
