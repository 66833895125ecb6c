package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) routeRoutes() {
	e := a.engine
	handle(a, op{id: "routes.create", method: post, path: "/v1/routes", summary: "Create a route with an instance as its next hop", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createRoute)
	lists(a, "routes", "/v1/routes", "routes", engine.Read, e.ListRoutes)
	gets(a, "routes", "/v1/routes/{id}", "a route", engine.Read, e.GetRoute, revOf[cloudsim.Route])
	act(a, "routes.delete", http.MethodDelete, "/v1/routes/{id}", "Begin to delete a route", e.DeleteRoute)
}

func (a *api) createRoute(ctx context.Context, in *create[cloudsim.CreateRoute]) (*body[cloudsim.Route], error) {
	v, err := a.engine.CreateRoute(ctx, in.Body)
	return answer(v, v.Revision, err)
}
