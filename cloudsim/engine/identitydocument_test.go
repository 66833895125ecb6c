package engine_test

import (
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestInstanceToken proves that an instance gets the same token during the
// first half of the token's lifetime. After this time, or after the deletion of
// the token, the instance gets a new token.
func TestInstanceToken(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, frozen)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	for _, name := range []string{"web", "db"} {
		must(e.CreateServiceAccount(admin, cloudsim.CreateServiceAccount{Name: name}))(t)
		must(e.CreateInstance(admin, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small", ServiceAccount: name}))(t)
	}
	ask := func(id cloudsim.InstanceID) cloudsim.Token {
		t.Helper()
		tok := must(e.CreateInstanceToken(ctx, id))(t)
		if _, err := e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Access: engine.Enter}); err != nil {
			t.Errorf("the token of the document is not valid: %v", err)
		}
		return tok
	}
	first, other := ask("i-000001"), ask("i-000002")
	if other.Secret == first.Secret || other.ServiceAccount == first.ServiceAccount {
		t.Fatal("two instances have the same identity")
	}
	advance(t, e, ctx, cloudsim.InstanceTokenLife/2)
	if repeated := ask("i-000001"); repeated.Secret != first.Secret {
		t.Error("the token changed in the first half of its lifetime")
	}
	advance(t, e, ctx, time.Second)
	second := ask("i-000001")
	if second.Secret == first.Secret {
		t.Error("the token did not change in the second half of its lifetime")
	}
	if err := e.DeleteToken(admin, second.ID); err != nil {
		t.Fatal(err)
	}
	if third := ask("i-000001"); third.Secret == second.Secret {
		t.Error("the document contains a deleted token")
	}
	must(e.DeleteInstance(admin, "i-000001"))(t)
	if tok, err := e.CreateInstanceToken(ctx, "i-000001"); err == nil {
		t.Errorf("a deleted instance got a token: %+v", tok)
	}
}
