package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) whyRoutes() {
	handle(a, op{id: "why.get", method: http.MethodGet, path: "/v1/why", summary: "Tell what brought an object where it is, and what it waits for", access: engine.Read},
		func(ctx context.Context, in *struct {
			Object string `query:"object" required:"true" maxLength:"200" doc:"Its id, or kind/name; also of what is gone" example:"instance/node-1"`
		}) (*struct{ Body cloudsim.Why }, error) {
			return plain(a.engine.Why(ctx, in.Object))
		})
}
