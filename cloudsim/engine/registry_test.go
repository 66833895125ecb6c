package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestRegistryTokenValidity proves that the cloud refuses a registry token of another registry
// or another issuer. The cloud also refuses a password in place of a bearer token, and a bearer
// token in place of a password. A registry token becomes invalid exactly at its expiry
// time on the cloud's clock, with no tolerance.
func TestRegistryTokenValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := file(t)
		of := func(issuer, registry string) func(*engine.Config) {
			return func(c *engine.Config) { c.Issuer, c.Registry = issuer, registry }
		}
		e, down := boot(t, path, instant, of("http://one", "one:5000"))
		c, err := e.CreateRegistryCredential(enter(t, e, "secret", ""), cloudsim.CreateRegistryCredential{TTLSeconds: 900})
		if err != nil {
			t.Fatal(err)
		}
		caller, err := e.AuthorizeRegistryPassword(c.Password)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.CreateRegistryBearer(caller, "", nil)
		if err != nil || b.Life != 5*time.Minute {
			t.Fatal(b.Life, err)
		}
		refused := func(condition string, err error, word string) {
			t.Helper()
			if cloudsim.KindOf(err) != cloudsim.Unauthenticated || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v; want %q", condition, err, word)
			}
		}
		_, err = e.AuthorizeRegistryBearer(c.Password)
		refused("a password for a bearer", err, "got a registry password, but a bearer token is needed")
		_, err = e.AuthorizeRegistryPassword(b.Token)
		refused("a bearer for a password", err, "got a bearer token, but a registry password is needed")
		down()

		e, down = boot(t, path, instant, of("http://one", "two:5000"))
		_, err = e.AuthorizeRegistryPassword(c.Password)
		refused("another registry", err, `the registry password is for "one:5000"`)
		down()
		e, down = boot(t, path, instant, of("http://two", "one:5000"))
		_, err = e.AuthorizeRegistryPassword(c.Password)
		refused("another issuer", err, `the registry password was issued by "http://one"`)
		down()

		e, down = boot(t, path, instant, of("http://one", "one:5000"))
		defer down()
		time.Sleep(time.Until(c.ExpiresAt) - time.Second)
		if _, err := e.AuthorizeRegistryPassword(c.Password); err != nil {
			t.Errorf("a second before the expiry: got error %v", err)
		}
		time.Sleep(time.Second)
		_, err = e.AuthorizeRegistryPassword(c.Password)
		refused("at its end", err, "the registry password expired at")
	})
}
