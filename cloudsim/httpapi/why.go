package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) whyRoutes() {
	handle(a, op{id: "why.get", method: http.MethodGet, path: "/v1/why", summary: "Explain the state of an object and why the object waits, or the effects of a request: calls, operations and faults", access: engine.Read},
		func(ctx context.Context, in *struct {
			Object  string `query:"object" maxLength:"200" doc:"Id of the object, or kind/name; also of a deleted object. Send either object or request" example:"instance/node-1"`
			Request string `query:"request" maxLength:"64" doc:"Id of a request, from the header X-Request-Id of its answer" example:"req-0123456789abcdef"`
		}) (*struct{ Body cloudsim.Why }, error) {
			switch {
			case in.Request == "":
				return withoutETag(a.engine.Why(ctx, in.Object))
			case in.Object != "":
				return nil, cloudsim.InvalidField("query.request", "cannot be used with object: send only one of them")
			}
			return withoutETag(a.engine.WhyRequest(ctx, in.Request))
		})
}
