package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// In TestRedirectMakesNoFalseSuccess, a redirect replaces the HTTP method of a change with GET, so
// the cloud does not execute the change. The test proves that the client then returns an error. A
// redirected read succeeds.
func TestRedirectMakesNoFalseSuccess(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	i := must(c.CreateInstance(ctx, instance("a")))(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, c.URL+r.URL.Path, http.StatusMovedPermanently)
	}))
	t.Cleanup(proxy.Close)
	through := *c
	through.URL = proxy.URL
	must(through.GetInstance(ctx, i.ID))(t)
	if made, err := through.CreateInstance(ctx, instance("b")); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("redirected create: got instance %q, error %v, want Unavailable", made.ID, err)
	}
	if gone, err := through.DeleteInstance(ctx, i.ID); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("redirected delete: got state %q, error %v, want Unavailable", gone.State, err)
	}
	if err := c.DeleteState(ctx, "."); err == nil {
		t.Error("the deletion of the state . succeeded, but no state has this name")
	}
}

func TestSlashesAtTheEndOfTheURL(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	c.URL += "//"
	if i := must(c.CreateInstance(ctx, instance("a")))(t); i.Name != "a" {
		t.Errorf("created instance: got %+v, want the name a", i)
	}
}
