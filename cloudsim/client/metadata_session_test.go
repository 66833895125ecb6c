package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// TestClientRenewsMetadataSession proves that a client starts a new session if its session has
// ended. A session ends after 60 s, or when the metadata service restarts.
func TestClientRenewsMetadataSession(t *testing.T) {
	sessions := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			sessions++
			_, _ = io.WriteString(w, strconv.Itoa(sessions))
		case r.Header.Get("Metadata-Token") != strconv.Itoa(sessions):
			http.Error(w, "the session token is invalid or expired", http.StatusUnauthorized)
		default:
			_, _ = io.WriteString(w, "i-000001")
		}
	}))
	t.Cleanup(srv.Close)
	m := client.NewMetadata(srv.URL)
	t.Cleanup(m.Close)
	for range 2 {
		if id, err := m.Get(t.Context(), "/v1/instance/id"); err != nil || string(id) != "i-000001" {
			t.Errorf("read: got %q, error %v, want i-000001", id, err)
		}
		sessions++ // all tokens become invalid
	}
}
