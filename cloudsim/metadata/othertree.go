package metadata

import (
	"context"
	"net/http"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// isOwnPath reports whether a path is one of the service's own paths. Only a metadata tree can
// contain other paths. These are the paths that software for another cloud uses.
func isOwnPath(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }

// answerTree answers a request for a path of a metadata tree. For each request it reads the
// trees from the cloud, so that a change of a tree takes effect at once.
func (s *service) answerTree(ctx context.Context, w http.ResponseWriter, r *http.Request, i cloudsim.Instance) error {
	path := r.URL.Path
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	trees, err := s.cloud.ListMetadataTrees(ctx, cloudsim.ListOptions{Limit: cloudsim.MaxMetadataTrees})
	if err != nil {
		return err
	}
	for _, t := range trees.Items {
		switch {
		case t.Session != nil && path == t.Session.Path:
			return s.startSession(w, r, i.ID, *t.Session)
		case t.Covers(path):
			return s.answerLeaf(ctx, w, r, i, t, strings.TrimPrefix(path, t.Prefix))
		}
	}
	return errNoPath
}

var errNoPath = &httpError{http.StatusNotFound, "no such path: GET /v1/ lists the paths of this cloud"}

func (s *service) answerLeaf(ctx context.Context, w http.ResponseWriter, r *http.Request, i cloudsim.Instance, t cloudsim.MetadataTree, path string) error {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return &httpError{http.StatusMethodNotAllowed, r.URL.Path + " supports only GET"}
	}
	if t.Session != nil {
		if err := s.sessions.check(r, i.ID, *t.Session); err != nil {
			return err
		}
		run.Authenticated(ctx)
	}
	for _, l := range t.Leaves {
		if l.PathOf(i) != path {
			continue
		}
		var t cloudsim.Token
		if l.Credentials() {
			if err := s.mayHaveSecrets(r); err != nil {
				return err
			}
			var err error
			if t, err = s.cloud.CreateInstanceToken(ctx, i.ID); err != nil {
				return err
			}
		}
		text, err := found(l.Render(i, t), r.URL.Path, nil)
		if err != nil {
			return err
		}
		if l.JSON {
			w.Header().Set("Content-Type", "application/json")
		}
		return writeAnswer(w, text)
	}
	return &httpError{http.StatusNotFound, "metadata tree " + t.Name + " has no such path"}
}
