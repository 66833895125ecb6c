package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// A caller has so many watches and no more; another one is not concerned, and the
// first has room again when one of its ends.
func TestManyWatches(t *testing.T) {
	const most = 512
	c := cloudtest.Start(t)
	own, err := c.Token()
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.CreateToken(t.Context(), cloudsim.CreateToken{Name: "other", Role: cloudsim.RoleReader, Project: "proj-000001"})
	if err != nil {
		t.Fatal(err)
	}
	watch := func(secret string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/v1/watch?kind=hold", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := c.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	var last *http.Response
	for n := range most {
		if last = watch(own); last.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", n+1, last.Status)
		}
	}
	more := watch(own)
	if text, _ := io.ReadAll(more.Body); more.StatusCode != http.StatusTooManyRequests || more.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `token \"admin\" has 512 watches open`) {
		t.Fatalf("watch %d: %s: %s", most+1, more.Status, text)
	}
	if resp := watch(other.Secret); resp.StatusCode != http.StatusOK {
		t.Errorf("of another caller: %s", resp.Status)
	}
	last.Body.Close()
	for watch(own).StatusCode != http.StatusOK { // the cloud hears of the end a moment later
		if t.Context().Err() != nil {
			t.Fatal("there is no room again")
		}
	}
}
