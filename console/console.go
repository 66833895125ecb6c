package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Config configures a console.
type Config struct {
	// Cloud is a client whose token may read all projects. The hub, which watches the cloud for all
	// viewers, uses this client.
	Cloud *client.Client
	// Cluster watches a cluster until ctx ends, and calls the functions of sink for each change.
	// The hub calls Cluster when the first viewer connects. If no viewer is connected for some
	// time, ctx ends, and the hub calls Cluster again for the next viewer. If Cluster is nil, the
	// console shows only the cloud.
	Cluster func(ctx context.Context, sink Sink)
	// Logs returns the logs. Only viewers that may read all projects can read the logs. If Logs is
	// nil, the console shows no logs.
	Logs func() ([]Log, error)
	// Name is the name of the cloud in the header of the page.
	Name string
}

// Console serves the console. Call Run, and use the Console as an http.Handler for the paths below
// /console/.
type Console struct {
	log   *slog.Logger
	cfg   Config
	codes codeStore
	hub   *hub
	mux   *http.ServeMux
}

// New returns a console. New does not call the cloud.
func New(log *slog.Logger, cfg Config) *Console {
	c := &Console{
		log: log, cfg: cfg, hub: newHub(log, cfg), mux: http.NewServeMux(),
		codes: codeStore{open: map[[32]byte]pending{}, wrong: make(chan struct{}, maxWrong)},
	}
	c.mux.HandleFunc("GET /console/", c.serveAsset)
	c.mux.HandleFunc("GET /console", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/console/", http.StatusMovedPermanently)
	})
	c.mux.HandleFunc("POST /console/session", c.createSession)
	c.mux.HandleFunc("POST /console/links", c.createLink)
	c.mux.HandleFunc("GET /console/scene", c.serveScene)
	if cfg.Logs != nil {
		c.mux.HandleFunc("GET /console/logs", c.serveLogs)
		c.mux.HandleFunc("GET /console/logs/{name}", c.serveLog)
		c.mux.HandleFunc("GET /console/logs/{instance}/{name}", c.serveLog)
	}
	return c
}

// Run watches the cloud and the cluster for the viewers, and returns when ctx ends. When no viewer
// has been connected for 30 s, Run makes no calls until a viewer connects.
func (c *Console) Run(ctx context.Context) error { return c.hub.run(ctx) }

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

// Standalone returns a handler that serves the console and /readyz. It passes the calls below /v1/
// to the cloud with the caller's own token.
func (c *Console) Standalone() (http.Handler, error) {
	u, err := url.Parse(c.cfg.Cloud.URL)
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "cloud URL %q: %w", c.cfg.Cloud.URL, err)
	}
	if u.Scheme == "unix" {
		u = &url.URL{Scheme: "http", Host: "cloud"}
	}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Header.Del("Cookie")
		},
		Transport:     c.cfg.Cloud.HTTP.Transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeRefusal(w, cloudsim.Unavailable, "the cloud does not answer: "+err.Error())
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", c)
	mux.Handle("/v1/", pass)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	return mux, nil
}

// access contains the rights of a viewer. These rights decide which objects and logs the viewer
// gets.
type access struct {
	project             cloudsim.ProjectID // "": all projects
	read                bool               // may read all resources of the project
	faults, holds, logs bool               // need a grant for all projects, because faults, holds and logs belong to the whole cloud
}

// accessOf returns the rights of an identity in the project me.Project. It ignores grants for other
// projects. If me.Project is empty, it uses only grants for all projects. It always ignores grants
// for single resources, because the console shows lists.
func accessOf(me cloudsim.Identity) access {
	a := access{project: me.Project}
	for _, g := range me.Grants {
		if g.Resource != "" || g.Project != "" && g.Project != me.Project {
			continue
		}
		everywhere := g.Project == ""
		for _, p := range g.Permissions {
			read := p == cloudsim.PermitRead || p == cloudsim.PermitAll
			a.read = a.read || read
			a.logs = a.logs || everywhere && read
			a.faults = a.faults || everywhere && p.Names("faults.list")
			a.holds = a.holds || everywhere && p.Names("holds.list")
		}
	}
	return a
}

// canSee reports whether a viewer may see an object of the given kind in the given project. To see
// a fault or a hold, a viewer needs a separate right. Every viewer may see the other objects that
// belong to no project, for example the objects of the cluster.
func (a access) canSee(kind string, project cloudsim.ProjectID) bool {
	switch cloudsim.ResourceKind(kind) {
	case cloudsim.KindFault:
		return a.faults
	case cloudsim.KindHold:
		return a.holds
	}
	return a.project == "" || project == "" || project == a.project
}
