package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"
	"github.com/gorilla/mux"
)

// routerTable has one router for each noun. A noun is the first path segment after /v1, such as
// disks in /v1/disks. A router compares a path with the patterns of its routes, one by one. The API
// has about 150 routes, so with a single router, this search would take longer than the work of
// most requests.
type routerTable struct {
	routers map[string]*mux.Router // by noun; "" is the router for paths outside the API
	make    func() *mux.Router
}

func newRouters(newRouter func() *mux.Router) routerTable {
	return routerTable{map[string]*mux.Router{"": newRouter()}, newRouter}
}

func (n routerTable) otherPaths() *mux.Router { return n.routers[""] }

// routerOf returns the router for a path. For a path that is not clean, such as //v1/disks,
// routerOf may return any router, because every router redirects the client to the clean path.
func (n routerTable) routerOf(path string) *mux.Router {
	if r, ok := n.routers[nounOf(path)]; ok {
		return r
	}
	return n.otherPaths()
}

// Handle adds a route. Huma calls this method.
func (n routerTable) Handle(op *huma.Operation, handler func(huma.Context)) {
	noun := nounOf(op.Path)
	if n.routers[noun] == nil {
		n.routers[noun] = n.make()
	}
	humamux.NewAdapter(n.routers[noun]).Handle(op, handler)
}

func (n routerTable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.routerOf(r.URL.Path).ServeHTTP(w, r)
}

func (n routerTable) allowedMethods(r *http.Request) (methods []string) {
	router := n.routerOf(r.URL.Path)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		as := *r
		as.Method = method
		if m := (mux.RouteMatch{}); router.Match(&as, &m) && m.MatchErr == nil {
			methods = append(methods, method)
		}
	}
	return methods
}

// nounOf returns the first segment of a path of the API, such as disks for /v1/disks/{id}.
// For other paths it returns "".
func nounOf(path string) string {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return ""
	}
	noun, _, _ := strings.Cut(rest, "/")
	return noun
}
