package console

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestTooManyLinksLeaveNoToken proves that a refused request for a link leaves no token in the
// cloud. The console refuses the request because there are too many unused links.
func TestTooManyLinksLeaveNoToken(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	all := *cloud
	all.Project = "*"
	count := func() int {
		tokens, _, err := cloudsim.All(t.Context(), all.ListTokens, cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(tokens)
	}
	c := New(slog.New(slog.DiscardHandler), Config{Cloud: cloud})
	for i := range maxCodes {
		c.codes.open[[32]byte([]byte("code-"+strconv.Itoa(10000+i)+"0123456789012345678901"))] = pending{until: time.Now().Add(time.Hour)}
	}
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	before := count()
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(t.Context())
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	c.createLink(w, r)
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("got the status %d, want 429: %s", w.Code, w.Body)
	}
	if after := count(); after != before {
		t.Errorf("got %d tokens, want %d as before the request", after, before)
	}
}
