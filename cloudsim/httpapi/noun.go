package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"
	"github.com/gorilla/mux"
)

// nouns keeps the routes of each noun in a router of its own. A router asks the
// pattern of one route after the other, and there are some 150, so that finding
// the route took longer than most of what it leads to.
type nouns struct {
	routers map[string]*mux.Router // "" has what is not of the API
	make    func() *mux.Router
}

// newNouns has no routes yet. make makes the router of one noun.
func newNouns(make func() *mux.Router) nouns {
	return nouns{map[string]*mux.Router{"": make()}, make}
}

// others is the router for what is not of the API.
func (n nouns) others() *mux.Router { return n.routers[""] }

// routerOf is the router that a path is looked for in. A path that is not clean,
// such as //v1/disks, is redirected by any of them.
func (n nouns) routerOf(path string) *mux.Router {
	if r, ok := n.routers[nounOf(path)]; ok {
		return r
	}
	return n.others()
}

// Handle adds a route, as huma asks for it.
func (n nouns) Handle(op *huma.Operation, handler func(huma.Context)) {
	noun := nounOf(op.Path)
	if n.routers[noun] == nil {
		n.routers[noun] = n.make()
	}
	humamux.NewAdapter(n.routers[noun]).Handle(op, handler)
}

func (n nouns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.routerOf(r.URL.Path).ServeHTTP(w, r)
}

// allowed lists the methods that the route of r answers.
func (n nouns) allowed(r *http.Request) (methods []string) {
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

// nounOf is the segment of a path that says what it is about: disks of
// /v1/disks/{id}. Of a path that is none of the API's it is "".
func nounOf(path string) string {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return ""
	}
	noun, _, _ := strings.Cut(rest, "/")
	return noun
}
