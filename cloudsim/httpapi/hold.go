package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) holdRoutes() {
	e := a.engine
	handle(a, op{id: "holds.create", method: post, path: "/v1/holds", summary: "Create a hold, which keeps matching operations unfinished until the hold is deleted", status: http.StatusCreated, access: engine.Admin, idemKey: true},
		func(ctx context.Context, in *create[cloudsim.CreateHold]) (*body[cloudsim.Hold], error) {
			v, err := e.CreateHold(ctx, in.Body)
			return answer(v, v.Revision, err)
		})
	lists(a, "holds", "/v1/holds", "holds", engine.Admin, e.ListHolds)
	gets(a, "holds", "/v1/holds/{id}", "a hold", engine.Admin, e.GetHold, revOf[cloudsim.Hold])
	deletes(a, "holds", "/v1/holds/{id}", "Delete a hold; the held operations can then end", engine.Admin, e.DeleteHold)
	handle(a, op{id: "holds.release", method: post, path: "/v1/operations/{id}/release", summary: "Release one operation from all holds, and from a fault that keeps the operation unfinished", status: http.StatusAccepted, access: engine.Admin},
		func(ctx context.Context, in *ByID) (*body[cloudsim.Operation], error) {
			v, err := e.ReleaseOperation(ctx, cloudsim.OperationID(in.ID))
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "durations.get", method: http.MethodGet, path: "/v1/durations", summary: "Read the durations, which replace delays of the cloud's profile", access: engine.Read},
		func(ctx context.Context, _ *none) (*struct{ Body cloudsim.WorkDurations }, error) {
			return withoutETag(e.GetDurations(ctx))
		})
	handle(a, op{id: "durations.set", method: http.MethodPut, path: "/v1/durations", summary: "Replace the durations. The new durations apply to operations that begin after this call", access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.WorkDurations]) (*struct{ Body cloudsim.WorkDurations }, error) {
			return withoutETag(e.SetDurations(ctx, in.Body))
		})
}
