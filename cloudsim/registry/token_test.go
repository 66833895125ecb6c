package registry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// TestPasswordCannotBeChecked proves that the token endpoint answers 503 if the cloud cannot read
// the file of its store. If the answer were 401, the client would report a
// wrong password.
func TestPasswordCannotBeChecked(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(slog.New(slog.DiscardHandler), st, engine.Default())
	s, err := newServer(slog.New(slog.DiscardHandler), Config{Dir: t.TempDir(), URL: "https://registry", Name: "registry"}, e)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{engine.NewSecret(), "header.claims.signature"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tokenPath+"?scope=repository:team-a/web:pull", http.NoBody)
		r.SetBasicAuth("cloud", password)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("password %.8s…: got status %d, WWW-Authenticate %q, body %s; want 503 without a challenge", password, w.Code, w.Header().Get("WWW-Authenticate"), w.Body)
		}
	}
}
