package cloudcli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// TestFollowResumesAfterBookmark proves that the function follow continues after the last bookmark
// if the connection ends. The last event has a lower revision than this bookmark. If follow
// continued after the last event, the cloud could return Gone, because the journal may no longer
// contain the next revisions.
func TestFollowResumesAfterBookmark(t *testing.T) {
	var since []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since = append(since, r.URL.Query().Get("since"))
		switch len(since) {
		case 1:
			fmt.Fprintln(w, `{"rev":7,"type":"put","kind":"fault","id":"fault-000001"}`+"\n"+`{"rev":9000,"type":"bookmark"}`)
		default:
			fmt.Fprintln(w, `{"problem":{"status":410,"kind":"gone","detail":"end of the test"}}`)
		}
	}))
	t.Cleanup(srv.Close)
	cl := &client.Client{URL: srv.URL, HTTP: srv.Client()}
	var got []uint64
	err := follow(t.Context(), &cli.Connection{Env: cli.Env{Stderr: io.Discard}}, cl, cloudsim.WatchOptions{Since: 5}, func(e cloudsim.Event) error {
		got = append(got, e.Rev)
		return nil
	})
	if cloudsim.KindOf(err) != cloudsim.Gone {
		t.Errorf("got error %v, want Gone", err)
	}
	if d := cmp.Diff([]uint64{7}, got); d != "" {
		t.Errorf("handled events: %s", d)
	}
	if d := cmp.Diff([]string{"5", "9000"}, since); d != "" {
		t.Errorf("starts of the watches: %s", d)
	}
}
