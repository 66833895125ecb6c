package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/console"
)

// TestStateAfterObjects proves that Run reports a working watch only after the console has all
// objects of the first list.
func TestStateAfterObjects(t *testing.T) {
	const nodes = 150
	var items []string
	for n := range nodes {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":"n%d","uid":"u%d","resourceVersion":"1"}}`, n, n))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/readyz":
			fmt.Fprint(w, "ok")
		case r.URL.Query().Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // the server has no streaming lists
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			time.Sleep(1500 * time.Millisecond) // after the first probe of the API server
			fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
		default:
			fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}))
	defer srv.CloseClientConnections()
	file := filepath.Join(t.TempDir(), "k")
	if err := os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"`+srv.URL+`"}}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}],"current-context":"a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := New(slog.New(slog.DiscardHandler), file, "t")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var puts atomic.Int32
	w.Run(ctx, console.Sink{
		Put:    func(string, string, any) { time.Sleep(20 * time.Millisecond); puts.Add(1) }, // slow, so that the next probe comes earlier
		Delete: func(string, string) {},
		State: func(problem string) {
			if problem == "" {
				if n := puts.Load(); n != nodes {
					t.Errorf("the watch works, but the console has got only %d of %d Nodes", n, nodes)
				}
				cancel()
			}
		},
	})
	if n := puts.Load(); n != nodes {
		t.Errorf("the console has got %d of %d Nodes", n, nodes)
	}
}
