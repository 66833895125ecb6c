package httpapi

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/gorilla/mux"
)

// Document returns the OpenAPI document as huma holds it.
func Document() *huma.OpenAPI {
	a := &api{}
	a.huma = huma.NewAPI(openAPI("test"), newRouters(mux.NewRouter))
	a.routes()
	return a.huma.OpenAPI()
}
