package engine_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// TestProjectNames proves that a second request for a project returns the same
// project. A new project cannot have the id of another project as its name,
// because callers select a project by its name or its id.
func TestProjectNames(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "*")
	shop := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t)
	if second := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t); second.ID != shop.ID {
		t.Errorf("the second request returned project %s, want %s", second.ID, shop.ID)
	}
	if p, err := e.CreateProject(admin, cloudsim.CreateProject{Name: string(shop.ID)}); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "shop") {
		t.Errorf("a project with the name %s: got %+v, error %v, want Conflict that names shop", shop.ID, p, err)
	}
}

// TestNamesLikeIDsAreRefused proves that a new project or service account cannot have a name with
// the form of an id. Otherwise a later project or account could have this id, and callers that use
// the name would get the later project or account.
func TestNamesLikeIDsAreRefused(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "")
	_, err := e.CreateProject(admin, cloudsim.CreateProject{Name: "proj-000003"})
	expectError(t, err, cloudsim.Invalid, "name", "proj-000003")
	_, err = e.CreateServiceAccount(admin, cloudsim.CreateServiceAccount{Name: "sa-00000a"})
	expectError(t, err, cloudsim.Invalid, "name", "sa-00000a")
	for _, name := range []string{"proj-3", "proj-00000x", "sa-000003"} {
		must(e.CreateProject(admin, cloudsim.CreateProject{Name: name}))(t)
	}
}

// TestDamagedRecords proves that the engine returns an Internal error if the record of a project,
// token or access key is damaged. The engine must not create a second project, token or access key
// with the name of the damaged one.
func TestDamagedRecords(t *testing.T) {
	path := file(t)
	e, down := boot(t, path, instant)
	admin := enter(t, e, "secret", "*")
	shop := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t)
	token := must(e.ListTokens(admin, cloudsim.ListOptions{Name: engine.AdminToken}))(t).Items[0]
	other := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "other"}))(t)
	reader := must(e.CreateToken(admin, cloudsim.CreateToken{Name: "reader", Role: cloudsim.RoleReader, Project: other.ID}))(t)
	inProject := enter(t, e, "secret", string(other.ID))
	account := must(e.CreateServiceAccount(inProject, cloudsim.CreateServiceAccount{Name: "account"}))(t)
	key := must(e.CreateAccessKey(inProject, cloudsim.CreateAccessKey{Name: "key", ServiceAccount: "account"}))(t)
	down()
	damage(t, path, "object/token", string(reader.ID))
	damage(t, path, "object/accessKey", string(key.ID))
	damage(t, path, "object/project", string(shop.ID))
	damage(t, path, "object/token", string(token.ID))

	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	cfg := engine.Default()
	cfg.Profile = engine.Instant
	e = engine.New(slog.New(slog.DiscardHandler), st, cfg)
	if err := e.EnsureAdmin("another"); err == nil {
		t.Error("EnsureAdmin with a damaged token record: got no error, want one")
	}
	if p, err := e.CreateProject(engine.AsCloud(t.Context()), cloudsim.CreateProject{Name: "shop"}); err == nil {
		t.Errorf("CreateProject returned project %s, want an error", p.ID)
	}
	_, err = e.AuthorizeRegistryPassword(reader.Secret)
	expectDamage(t, "registry password that is a damaged token", err)
	_, err = e.CreateToken(inProject, cloudsim.CreateToken{Name: "reader", Role: cloudsim.RoleReader, Project: other.ID})
	expectDamage(t, "CreateToken with the name of a damaged token", err)
	_, err = e.CreateAccessKey(inProject, cloudsim.CreateAccessKey{Name: "key", ServiceAccount: string(account.ID)})
	expectDamage(t, "CreateAccessKey with the name of a damaged access key", err)
}

func expectDamage(t *testing.T, operation string, err error) {
	t.Helper()
	if err == nil || cloudsim.KindOf(err) != cloudsim.Internal {
		t.Errorf("%s: got error %v, want an Internal error", operation, err)
	}
}

// damage replaces a record in the cloud's file with bytes that are not JSON.
func damage(t *testing.T, path, bucket, key string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b.Get([]byte(key)) == nil {
			t.Errorf("bucket %s has no key %s", bucket, key)
		}
		return b.Put([]byte(key), []byte("damaged"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCallInADeletedProject proves that a call creates nothing if its project is deleted after the
// authorization of the call.
func TestCallInADeletedProject(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "")
	p := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t)
	ctx := enter(t, e, "secret", "shop")
	if err := e.DeleteProject(admin, p.ID); err != nil {
		t.Fatal(err)
	}
	_, err := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "fast", SizeGiB: 10})
	expectRefused(t, "a disk in a deleted project", err, cloudsim.NotFound, "")
	if l := must(e.ListDisks(admin, cloudsim.ListOptions{}))(t); len(l.Items) != 0 {
		t.Errorf("disks: got %+v, want none", l.Items)
	}
}
