package engine_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func prefix(t *testing.T, s string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func enter(t *testing.T, e *engine.Engine, secret, project string) context.Context {
	t.Helper()
	ctx, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Project: project, Access: engine.Write})
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestAuthorization(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "")
	shop, err := e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[cloudsim.RoleName]string{}
	for _, role := range []cloudsim.RoleName{cloudsim.RoleWriter, cloudsim.RoleReader} {
		tok, err := e.CreateToken(admin, cloudsim.CreateToken{Name: string(role), Role: role, Project: shop.ID})
		if err != nil {
			t.Fatal(err)
		}
		secrets[role] = tok.Secret
	}
	for name, tc := range map[string]struct {
		req  engine.Request
		want error
	}{
		"no token":                {engine.Request{}, cloudsim.Unauthenticated},
		"unknown token":           {engine.Request{Secret: "guess"}, cloudsim.Unauthenticated},
		"admin":                   {engine.Request{Secret: "secret", Access: engine.Admin}, nil},
		"admin by project name":   {engine.Request{Secret: "secret", Project: "shop", Access: engine.Write}, nil},
		"admin, no such project":  {engine.Request{Secret: "secret", Project: "nope"}, cloudsim.NotFound},
		"writer writes":           {engine.Request{Secret: secrets["writer"], Access: engine.Write}, nil},
		"writer is no admin":      {engine.Request{Secret: secrets["writer"], Access: engine.Admin}, cloudsim.Denied},
		"writer in own project":   {engine.Request{Secret: secrets["writer"], Project: "shop"}, nil},
		"writer in other project": {engine.Request{Secret: secrets["writer"], Project: "default"}, cloudsim.Denied},
		"writer, no such project": {engine.Request{Secret: secrets["writer"], Project: "nope"}, cloudsim.Denied},
		"reader reads":            {engine.Request{Secret: secrets["reader"], Access: engine.Read}, nil},
		"reader does not write":   {engine.Request{Secret: secrets["reader"], Access: engine.Write}, cloudsim.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := e.Authorize(t.Context(), tc.req); !errors.Is(err, tc.want) {
				t.Errorf("Authorize: got error %v, want %v", err, tc.want)
			}
		})
	}
}

func TestProjectsDoNotSeeEachOther(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "")
	mine := mustCreate(t, e, admin, "a") // the instance of admin is in the default project
	shop, err := e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := e.CreateToken(admin, cloudsim.CreateToken{Name: "shop", Role: cloudsim.RoleWriter, Project: shop.ID})
	if err != nil {
		t.Fatal(err)
	}
	other := enter(t, e, tok.Secret, "")
	if _, err := e.GetInstance(other, mine.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("read of an instance of another project: got error %v, want NotFound", err)
	}
	if _, err := e.StopInstance(other, mine.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("stop of an instance of another project: got error %v, want NotFound", err)
	}
	if _, err := e.CreateLoadBalancer(other, loadBalancer("lb", mine.ID)); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("instance of another project as target: got error %v, want Invalid", err)
	}
	otherInstance := mustCreate(t, e, other, "a") // the same name is free in another project
	if otherInstance.ID == mine.ID || otherInstance.Project != shop.ID {
		t.Errorf("second instance with the same name: got id %s in project %s, want a new id in project %s", otherInstance.ID, otherInstance.Project, shop.ID)
	}
	if l, err := e.ListInstances(other, cloudsim.ListOptions{}); err != nil || len(l.Items) != 1 || l.Items[0].ID != otherInstance.ID {
		t.Errorf("ListInstances of another project: got %+v, error %v, want only %s", l.Items, err, otherInstance.ID)
	}
	if l, err := e.ListZones(other, cloudsim.ListOptions{Name: "sim-1b"}); err != nil || len(l.Items) != 1 {
		t.Errorf("zones of another project: got %+v, error %v", l.Items, err)
	}
	evs, err := e.ListEvents(other, cloudsim.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs.Items {
		if ev.ID == string(mine.ID) || ev.Kind == cloudsim.KindToken {
			t.Errorf("ListEvents of another project: got an event of %s %s, want none", ev.Kind, ev.ID)
		}
	}
	if err := e.DeleteProject(admin, shop.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of a project that owns objects: got error %v, want Conflict", err)
	}
	if _, err := e.DeleteInstance(other, otherInstance.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteProject(admin, shop.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Authorize(t.Context(), engine.Request{Secret: tok.Secret}); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("token of a deleted project: got error %v", err)
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		admin := enter(t, e, "secret", "")
		tok, err := e.CreateToken(admin, cloudsim.CreateToken{Name: "brief", Role: cloudsim.RoleWriter, TTLSeconds: 60})
		if err != nil || tok.Secret == "" || tok.Hash != "" {
			t.Fatalf("new token: got %+v, error %v, want a secret and no hash", tok, err)
		}
		if read, err := e.GetToken(admin, tok.ID); err != nil || read.Secret != "" || read.Hash != "" {
			t.Errorf("GetToken: got %+v, error %v, want no secret and no hash", read, err)
		}
		if _, err := e.CreateToken(admin, cloudsim.CreateToken{Name: "brief", Role: cloudsim.RoleWriter}); !errors.Is(err, cloudsim.Exists) {
			t.Errorf("second token with the same name: got error %v", err)
		}
		time.Sleep(59 * time.Second)
		enter(t, e, tok.Secret, "")
		time.Sleep(time.Second)
		if _, err := e.Authorize(t.Context(), engine.Request{Secret: tok.Secret}); !errors.Is(err, cloudsim.Unauthenticated) {
			t.Errorf("token at its expiry: got error %v", err)
		}
	})
}

func TestIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		with := func(key string) context.Context {
			ctx, err := e.Authorize(t.Context(), engine.Request{Secret: "secret", IdempotencyKey: key, Access: engine.Write})
			if err != nil {
				t.Fatal(err)
			}
			return ctx
		}
		a := mustCreate(t, e, with("k1"), "a")
		if _, err := e.StopInstance(with(""), a.ID); err != nil {
			t.Fatal(err)
		}
		if repeated := mustCreate(t, e, with("k1"), "a"); repeated.ID != a.ID || repeated.State != cloudsim.InstanceStopped {
			t.Errorf("same idempotency key: got %+v, want the stopped instance %s", repeated, a.ID)
		}
		if _, err := e.CreateInstance(with("k1"), cloudsim.CreateInstance{Name: "b", Zone: "sim-1a", Type: "small"}); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("same idempotency key for another request: got error %v, want Conflict", err)
		}
		if _, err := e.DeleteInstance(with(""), a.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.CreateInstance(with("k1"), cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), string(a.ID)) {
			t.Errorf("idempotency key of a deleted object: got error %v, want Conflict with the id %s", err, a.ID)
		}
		for n, name := range []string{"x", "y"} { // two callers can use the same name and the same idempotency key
			tok, err := e.CreateToken(with(""), cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleWriter, Project: []cloudsim.ProjectID{"proj-000001", ""}[n]})
			if n == 1 {
				tok.Secret, err = account(t, e, with(""), "ci", cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter}), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, err := e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, IdempotencyKey: "k2", Access: engine.Write})
			if err != nil {
				t.Fatal(err)
			}
			mustCreate(t, e, ctx, name)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if second := mustCreate(t, e, with("k1"), "a"); second.ID == a.ID {
			t.Error("an idempotency key is valid for more than a day")
		}
	})
}
