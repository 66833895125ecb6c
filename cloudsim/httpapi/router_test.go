package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestPaths proves that the API gives the same answers as a single router with all routes.
// The API has one router for each noun. A noun is the first path segment after /v1, such as disks
// in /v1/disks.
func TestPaths(t *testing.T) {
	c := cloudtest.Start(t)
	secret, err := c.Token()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		status int
		says   string // Location
	}{
		"/v1/disks":          {200, ""},
		"//v1/disks":         {301, "/v1/disks"},
		"/v1//disks?limit=1": {301, "/v1/disks?limit=1"},
		"/v1/disks/":         {404, ""},
		"/v1/disks/../zones": {301, "/v1/zones"},
		"/v1/%64isks":        {200, ""},
		"/v1":                {404, ""},
		"/v1/":               {404, ""},
		"/v1/discs":          {404, ""},
		"/v2/disks":          {404, ""},
		"/disks":             {404, ""},
		"/":                  {302, "/docs"},
		"/version":           {200, ""},
		"/openapi.json":      {200, ""},
		"/readyz":            {200, ""},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := c.HTTP.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want.status || resp.Header.Get("Location") != want.says {
			t.Errorf("%s: got status %s and location %q, want %d and %q", path, resp.Status, resp.Header.Get("Location"), want.status, want.says)
		}
	}
}
