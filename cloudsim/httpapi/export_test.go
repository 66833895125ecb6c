package httpapi

import (
	"log/slog"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gorilla/mux"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// Document returns the OpenAPI document as a huma value.
func Document() *huma.OpenAPI {
	a := &api{engine: engine.New(slog.New(slog.DiscardHandler), nil, engine.Config{})} // no test calls the handlers
	a.huma = huma.NewAPI(openAPI("test"), newRouters(mux.NewRouter))
	a.registerRoutes()
	return a.huma.OpenAPI()
}
