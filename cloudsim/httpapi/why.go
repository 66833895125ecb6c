package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) whyRoutes() {
	handle(a, op{id: "why.get", method: http.MethodGet, path: "/v1/why", summary: "Explain the state of an object: its calls, operations and faults, and why it waits", access: engine.Read},
		func(ctx context.Context, in *struct {
			Object string `query:"object" required:"true" maxLength:"200" doc:"Id of the object, or kind/name; also of a deleted object" example:"instance/node-1"`
		}) (*struct{ Body cloudsim.Why }, error) {
			return plain(a.engine.Why(ctx, in.Object))
		})
}
