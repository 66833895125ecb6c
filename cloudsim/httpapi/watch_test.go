package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestManyWatches tests two limits for the number of open watches. One limit applies to each caller
// with a role in all projects. The second limit applies to each project, and all other callers of
// the project share it. The two limits are independent. If the callers of a project have reached
// their limit, a caller with a role in all projects can still open watches, and the reverse is also
// true. When a watch ends, a new watch can begin.
func TestManyWatches(t *testing.T) {
	t.Run("admin", func(t *testing.T) { manyWatches(t, 512, `token \"admin\" has 512 open watches`) })
	t.Run("project", func(t *testing.T) { manyWatches(t, 64, `project proj-000001 has 64 open watches`) })
}

func manyWatches(t *testing.T, most int, refusal string) {
	c := cloudtest.Start(t)
	own, err := c.Token()
	if err != nil {
		t.Fatal(err)
	}
	token := func(name string) string {
		made, err := c.CreateToken(t.Context(), cloudsim.CreateToken{Name: name, Role: cloudsim.RoleReader, Project: "proj-000001"})
		if err != nil {
			t.Fatal(err)
		}
		return made.Secret
	}
	other := token("other")
	if most == 64 {
		own, other = other, own
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
		secret := own
		if most == 64 && n%2 == 0 {
			secret = token(fmt.Sprint("more-", n)) // each token is another caller of the project
		}
		if last = watch(secret); last.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: got status %s, want 200", n+1, last.Status)
		}
	}
	more := watch(own)
	if text, _ := io.ReadAll(more.Body); more.StatusCode != http.StatusTooManyRequests || more.Header.Get("Retry-After") == "" || !strings.Contains(string(text), refusal) {
		t.Fatalf("watch %d: got %s: %s; want 429", most+1, more.Status, text)
	}
	if resp := watch(other); resp.StatusCode != http.StatusOK {
		t.Errorf("watch of another caller: got status %s, want 200", resp.Status)
	}
	last.Body.Close()
	for watch(own).StatusCode != http.StatusOK { // the cloud notices the end a moment later
		if t.Context().Err() != nil {
			t.Fatal("no watch can start after a watch ended")
		}
	}
}
