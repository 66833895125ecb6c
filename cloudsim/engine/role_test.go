package engine_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// account creates a service account with role bindings, and a token of this
// account. It returns the secret of the token.
func account(t *testing.T, e *engine.Engine, ctx context.Context, name string, bindings ...cloudsim.CreateRoleBinding) string {
	t.Helper()
	a, err := e.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range bindings {
		b.Name, b.ServiceAccount = name+"-"+string(rune('a'+i)), name
		if _, err := e.CreateRoleBinding(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := e.CreateToken(ctx, cloudsim.CreateToken{ServiceAccount: string(a.ID)})
	if err != nil {
		t.Fatal(err)
	}
	return tok.Secret
}

// TestServiceAccount proves that the role bindings of a service account
// determine its permissions. A change takes effect with the next call.
func TestServiceAccount(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	if _, err := e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateRole(admin, cloudsim.CreateRole{Name: "keeper", Permissions: []cloudsim.Permission{"disks.*", "tokens.list"}}); err != nil {
		t.Fatal(err)
	}
	secret := account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: "keeper"})
	if _, err := e.CreateRoleBinding(enter(t, e, "secret", "shop"), cloudsim.CreateRoleBinding{Name: "b", Role: cloudsim.RoleReader, ServiceAccount: "sa-000001"}); err != nil {
		t.Fatal(err)
	}
	allows := func(project, operation string, class engine.Access) error {
		_, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Project: project, Operation: operation, Access: class})
		return err
	}
	for name, tc := range map[string]struct {
		project, operation string
		class              engine.Access
		want               error
	}{
		"operation that a pattern permits":                   {"", "disks.create", engine.Write, nil},
		"access operation that a name permits":               {"", "tokens.list", engine.Manage, nil},
		"another operation of the resource":                  {"", "tokens.create", engine.Manage, cloudsim.Denied},
		"another resource":                                   {"", "instances.list", engine.Read, cloudsim.Denied},
		"operation of the role in the other project":         {"shop", "instances.list", engine.Read, nil},
		"operation that the role in the other project lacks": {"shop", "disks.create", engine.Write, cloudsim.Denied},
		"a reader cannot manage tokens":                      {"shop", "tokens.list", engine.Manage, cloudsim.Denied},
		"operation of the whole cloud":                       {"", "faults.create", engine.Admin, cloudsim.Denied},
		"in all projects":                                    {"*", "disks.list", engine.Read, cloudsim.Denied},
		"in a project that does not exist":                   {"nope", "disks.list", engine.Read, cloudsim.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			if err := allows(tc.project, tc.operation, tc.class); !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
		})
	}
	err := allows("", "instances.list", engine.Read)
	for _, word := range []string{`service account "sa" (sa-000001)`, "instances.list", "proj-000001", "keeper", "reader"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got error %v, want it to contain %s", err, word)
		}
	}
	if err := e.DeleteRole(admin, "keeper"); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of a role with a binding: got error %v, want Conflict", err)
	}
	l, err := e.ListRoleBindings(admin, cloudsim.ListOptions{Name: "sa-a"})
	if err != nil || len(l.Items) != 1 {
		t.Fatal(l, err)
	}
	if err := e.DeleteRoleBinding(admin, l.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := allows("", "disks.create", engine.Write); !errors.Is(err, cloudsim.Denied) {
		t.Errorf("operation after the deletion of the role binding: got error %v, want Denied", err)
	}
	if err := e.DeleteServiceAccount(admin, "sa-000001"); err != nil {
		t.Fatal(err)
	}
	if err := allows("", "disks.create", engine.Enter); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("token after the deletion of its account: got error %v, want Unauthenticated", err)
	}
}

// TestCallersGrantOnlyTheirPermissions proves that a caller cannot grant
// permissions that the caller does not have. The caller also cannot get
// additional permissions for itself.
func TestCallersGrantOnlyTheirPermissions(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	if _, err := e.CreateRole(admin, cloudsim.CreateRole{Name: "steward", Permissions: []cloudsim.Permission{"@read", "tokens.*", "roleBindings.*", "serviceAccounts.*", "instances.*"}}); err != nil {
		t.Fatal(err)
	}
	account(t, e, admin, "strong", cloudsim.CreateRoleBinding{Role: cloudsim.RoleAdmin, AllProjects: true})
	secret := account(t, e, admin, "steward", cloudsim.CreateRoleBinding{Role: "steward"})
	partly := account(t, e, admin, "partly", cloudsim.CreateRoleBinding{Role: "steward"}, cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, Resource: "web-*"})
	ctx, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "tokens.create", Access: engine.Manage})
	if err != nil {
		t.Fatal(err)
	}
	bind := func(role cloudsim.RoleName, all bool) error {
		_, err := e.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "b-" + string(role), Role: role, ServiceAccount: "steward", AllProjects: all})
		return err
	}
	some, err := e.Authorize(t.Context(), engine.Request{Secret: partly, Operation: "roleBindings.create", Access: engine.Manage})
	if err != nil {
		t.Fatal(err)
	}
	_, passOn := e.CreateRoleBinding(some, cloudsim.CreateRoleBinding{Name: "all", Role: cloudsim.RoleWriter, ServiceAccount: "partly"})
	token := func(req cloudsim.CreateToken) error {
		_, err := e.CreateToken(ctx, req)
		return err
	}
	accessKey := func(req cloudsim.CreateAccessKey) error {
		_, err := e.CreateAccessKey(ctx, req)
		return err
	}
	instance := func(account string) error {
		_, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "as-" + account, Zone: "sim-1a", Type: "small", ServiceAccount: account})
		return err
	}
	for name, tc := range map[string]struct{ got, want error }{
		"bind a role that the steward has":                    {bind(cloudsim.RoleReader, false), nil},
		"bind a role that the steward lacks":                  {bind(cloudsim.RoleWriter, false), cloudsim.Denied},
		"bind a role that the steward has for some resources": {passOn, cloudsim.Denied},
		"bind a role in all projects":                         {bind(cloudsim.RoleReader, true), cloudsim.Denied},
		"create a token with a role that the steward has":     {token(cloudsim.CreateToken{Name: "r", Role: cloudsim.RoleReader}), nil},
		"create a token with a role that the steward lacks":   {token(cloudsim.CreateToken{Name: "w", Role: cloudsim.RoleAdmin}), cloudsim.Denied},
		"create a token of a stronger account":                {token(cloudsim.CreateToken{ServiceAccount: "strong"}), cloudsim.Denied},
		"create an access key of a stronger account":          {accessKey(cloudsim.CreateAccessKey{ServiceAccount: "strong"}), cloudsim.Denied},
		"create an instance as the steward":                   {instance("steward"), nil},
		"create an instance as a stronger account":            {instance("strong"), cloudsim.Denied},
		"delete the token of the admin":                       {e.DeleteToken(ctx, "tok-000001"), cloudsim.Denied},
		"delete an account that an instance uses":             {e.DeleteServiceAccount(ctx, "sa-000002"), cloudsim.Conflict},
	} {
		if !errors.Is(tc.got, tc.want) {
			t.Errorf("%s: %v; want %v", name, tc.got, tc.want)
		}
	}
}

func TestPredefinedRolesStay(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	for _, r := range cloudsim.PredefinedRoles() {
		if err := e.DeleteRole(admin, cloudsim.RoleName(r.Name)); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("deletion of the predefined role %s: got error %v, want Conflict", r.Name, err)
		}
	}
}

// TestBindingForResources proves that a role binding can select resources by name or id. A binding
// for some resources does not permit list calls.
func TestBindingForResources(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	secret := account(t, e, admin, "ci",
		cloudsim.CreateRoleBinding{Role: cloudsim.RoleRegistryReader, Resource: "team-a/*"}, cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, Resource: "web-*"})
	web, db := mustCreate(t, e, admin, "web-1"), mustCreate(t, e, admin, "db")
	ctx, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "instances.stop", Access: engine.Write})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		got, want error
	}{
		"pull":                                 {engine.Allowed(ctx, "registry.pull", engine.Read, "team-a/x/y"), nil},
		"pull another repository":              {engine.Allowed(ctx, "registry.pull", engine.Read, "team-b/x"), cloudsim.Denied},
		"push":                                 {engine.Allowed(ctx, "registry.push", engine.Write, "team-a/x"), cloudsim.Denied},
		"stop":                                 {e.MayTouch(ctx, engine.Subject{Operation: "instances.stop", Target: string(web.ID)}), nil},
		"stop another instance":                {e.MayTouch(ctx, engine.Subject{Operation: "instances.stop", Target: string(db.ID)}), cloudsim.Denied},
		"create":                               {e.MayTouch(ctx, engine.Subject{Operation: "instances.create", Body: cloudsim.CreateInstance{Name: "web-2"}}), nil},
		"create an instance with another name": {e.MayTouch(ctx, engine.Subject{Operation: "instances.create", Body: cloudsim.CreateInstance{Name: "db-2"}}), cloudsim.Denied},
		"list instances":                       {e.MayTouch(ctx, engine.Subject{Operation: "instances.list"}), cloudsim.Denied},
	} {
		if !errors.Is(tc.got, tc.want) {
			t.Errorf("permission to %s: got error %v, want %v", name, tc.got, tc.want)
		}
	}
}

// TestBindingForRecords proves that a role binding can limit the names of records to a pattern. The
// caller cannot change a record's name to a name that does not match this pattern. If a role
// binding contains the id of a record instead, the caller can give this record any name.
func TestBindingForRecords(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	r := must(e.CreateRecord(admin, record("k", "web-1", "{}")))(t)
	secret := account(t, e, admin, "ci", cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, Resource: "web-*"})
	ctx := must(e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "records.update", Access: engine.Write}))(t)
	must(e.CreateRecord(admin, record("k", "db", "{}")))(t)
	for name, want := range map[string]error{"db": cloudsim.Denied, "web-2": nil} {
		if _, err := e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Name: name, Document: r.Document}, 0); !errors.Is(err, want) {
			t.Errorf("new name %s: got error %v, want %v", name, err, want)
		}
	}
	byID := account(t, e, admin, "id", cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, Resource: string(r.ID)})
	ctx = must(e.Authorize(t.Context(), engine.Request{Secret: byID, Operation: "records.update", Access: engine.Write}))(t)
	if _, err := e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Name: "other", Document: r.Document}, 0); err != nil {
		t.Errorf("UpdateRecord with a role for the id of the record: got error %v, want none", err)
	}
}

// TestEventsOfAdminTokens proves that an administrator of one project receives no events of tokens
// without a project.
func TestEventsOfAdminTokens(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	secret := account(t, e, admin, "boss", cloudsim.CreateRoleBinding{Role: cloudsim.RoleAdmin})
	ctx := must(e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "events.list", Access: engine.Read}))(t)
	of := cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindToken}}
	hears := func(ctx context.Context) (own, global bool) {
		for _, ev := range must(e.ListEvents(ctx, of))(t).Items {
			own, global = own || ev.Project != "", global || ev.Project == ""
		}
		return own, global
	}
	if own, global := hears(ctx); !own || global {
		t.Errorf("administrator of one project: received events of own tokens: %v, of tokens without a project: %v; want only own tokens", own, global)
	}
	if _, global := hears(admin); !global {
		t.Error("the administrator received no event of a token without a project")
	}
}

// TestEventsNeedPermission proves that a caller gets only events of resources
// that the caller may read.
func TestEventsNeedPermission(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	secret := account(t, e, admin, "hypervisor", cloudsim.CreateRoleBinding{Role: cloudsim.RoleHypervisor})
	mustCreate(t, e, admin, "a")
	ctx, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "events.watch", Access: engine.Read})
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.ListEvents(ctx, cloudsim.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[cloudsim.ResourceKind]bool{}
	for _, ev := range l.Items {
		kinds[ev.Kind] = true
	}
	if !kinds[cloudsim.KindInstance] || kinds[cloudsim.KindOperation] || kinds[cloudsim.KindToken] || kinds[cloudsim.KindServiceAccount] {
		t.Errorf("kinds of the received events: got %v, want instance and no operation, token or serviceAccount", kinds)
	}
}

// TestReadersGetNoEventsOfCredentials proves that a caller with role reader gets no
// events of tokens, access keys, service accounts, role bindings and workload
// trusts.
func TestReadersGetNoEventsOfCredentials(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	reader := must(e.Authorize(t.Context(), engine.Request{Secret: account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader}), Operation: "events.list", Access: engine.Read}))(t)
	createTrust(t, e, admin, "sa")
	must(e.CreateAccessKey(admin, cloudsim.CreateAccessKey{ServiceAccount: "sa"}))(t)
	for _, kind := range []cloudsim.ResourceKind{cloudsim.KindToken, cloudsim.KindServiceAccount, cloudsim.KindRoleBinding, cloudsim.KindWorkloadTrust, cloudsim.KindAccessKey} {
		of := cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{kind}}
		if l := must(e.ListEvents(admin, of))(t); len(l.Items) == 0 {
			t.Errorf("the admin received no event of kind %s", kind)
		}
		if l, err := e.ListEvents(reader, of); len(l.Items) != 0 {
			t.Errorf("a reader received objects of kind %s: %+v, %v", kind, l.Items, err)
		}
	}
}

// keySet returns a JSON Web Key Set with one public key, as a Kubernetes cluster publishes it.
func keySet(t *testing.T) string {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return string(must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}}))(t))
}

// createTrust creates a workload trust. With this trust, a pod of a Kubernetes cluster can call the
// cloud as the service account.
func createTrust(t *testing.T, e *engine.Engine, ctx context.Context, account string) cloudsim.WorkloadTrust {
	t.Helper()
	return must(e.CreateWorkloadTrust(ctx, cloudsim.CreateWorkloadTrust{Name: "trust", Account: account, WorkloadTrustSpec: cloudsim.WorkloadTrustSpec{
		Issuer: "https://kubernetes.default.svc", Audience: "registry.cloudsim", Keys: keySet(t), Namespace: "shop", ServiceAccount: "web",
	}}))(t)
}

// TestDeletedProjectLeavesNothing proves that a caller cannot delete the project shop while an
// instance of the default project uses a service account of shop. After the deletion of this
// instance, the caller can delete shop. The deletion of shop also deletes its workload trusts, and
// ends unfinished operations on its network.
func TestDeletedProjectLeavesNothing(t *testing.T) {
	e, down := boot(t, file(t), instant, frozen, func(c *engine.Config) { c.Profile.Network = time.Hour })
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	shop := must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t)
	in := enter(t, e, "secret", "shop")
	sa := must(e.CreateServiceAccount(in, cloudsim.CreateServiceAccount{Name: "theirs"}))(t)
	mine := must(e.CreateServiceAccount(admin, cloudsim.CreateServiceAccount{Name: "mine"}))(t)
	carrier := must(e.CreateInstance(admin, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small", ServiceAccount: string(sa.ID)}))(t)
	createTrust(t, e, in, string(mine.ID))
	l := must(e.ListNetworks(in, cloudsim.ListOptions{Name: cloudsim.DefaultNetwork}))(t)
	n := l.Items[0]
	n.PodRanges.IPv4 = "10.245.0.0/16"
	n = must(e.UpdateNetwork(in, n.ID, cloudsim.UpdateNetwork{NetworkSpec: n.NetworkSpec}, 0))(t)
	everywhere := enter(t, e, "secret", "*")
	if err := e.DeleteProject(everywhere, shop.ID); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), string(carrier.ID)) {
		t.Errorf("deletion of a project whose account an instance uses: got error %v", err)
	}
	must(e.DeleteInstance(admin, carrier.ID))(t)
	advance(t, e, admin, time.Minute)
	if err := e.DeleteProject(everywhere, shop.ID); err != nil {
		t.Fatal(err)
	}
	if l := must(e.ListWorkloadTrusts(everywhere, cloudsim.ListOptions{}))(t); len(l.Items) != 0 {
		t.Errorf("remaining trusts: got %+v", l.Items)
	}
	if op, err := e.GetOperation(everywhere, n.Operation); err != nil || !op.Over() {
		t.Errorf("operation on the network: got %+v, %v", op, err)
	}
}

// TestServiceAccountTokenExpires proves that a token expires on the cloud's
// clock, and that the cloud deletes the token a day later.
func TestServiceAccountTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		admin := enter(t, e, "secret", engine.DefaultProject)
		account(t, e, admin, "sa")
		tok, err := e.CreateToken(admin, cloudsim.CreateToken{ServiceAccount: "sa", TTLSeconds: 60})
		if err != nil || tok.Name != string(tok.ID) {
			t.Fatalf("new token without a name: got %+v, error %v, want its id as its name", tok, err)
		}
		admit := func() error {
			_, err := e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Access: engine.Enter})
			return err
		}
		if err := admit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := admit(); !errors.Is(err, cloudsim.Unauthenticated) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("token at its expiry: got error %v, want Unauthenticated with \"expired\"", err)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if _, err := e.GetToken(admin, tok.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("token a day after its expiry: got error %v, want NotFound", err)
		}
	})
}

// TestProjectAdminInOtherProjects proves that a role in one project gives no permissions in other
// projects, even if the caller has another role in all projects. The caller is a reader of all
// projects and an administrator of the project "shop". The caller cannot delete a token or a
// binding that applies to all projects. The caller cannot use accounts of the project "bank".
func TestProjectAdminInOtherProjects(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	for _, name := range []string{"shop", "bank"} {
		must(e.CreateProject(admin, cloudsim.CreateProject{Name: name}))(t)
	}
	shop, bank := enter(t, e, "secret", "shop"), enter(t, e, "secret", "bank")
	secret := account(t, e, shop, "ops", cloudsim.CreateRoleBinding{Role: cloudsim.RoleAdmin}, cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader, AllProjects: true})
	bankAccount := must(e.CreateServiceAccount(bank, cloudsim.CreateServiceAccount{Name: "theirs"}))(t)
	as := func(secret, operation string, class engine.Access) context.Context {
		return must(e.Authorize(t.Context(), engine.Request{Secret: secret, Project: "shop", Operation: operation, Access: class}))(t)
	}
	tok := must(e.ListTokens(enter(t, e, "secret", "*"), cloudsim.ListOptions{Name: engine.AdminToken}))(t).Items[0]
	bound := must(e.ListRoleBindings(enter(t, e, "secret", "*"), cloudsim.ListOptions{Name: "ops-b"}))(t).Items[0]
	for name, err := range map[string]error{
		"a token":   e.DeleteToken(as(secret, "tokens.delete", engine.Manage), tok.ID),
		"a binding": e.DeleteRoleBinding(as(secret, "roleBindings.delete", engine.Manage), bound.ID),
	} {
		if !errors.Is(err, cloudsim.Denied) {
			t.Errorf("deletion of %s of all projects: got error %v, want Denied", name, err)
		}
	}
	_, err1 := e.CreateToken(as(secret, "tokens.create", engine.Manage), cloudsim.CreateToken{ServiceAccount: string(bankAccount.ID)})
	_, err2 := e.CreateInstance(as(secret, "instances.create", engine.Write), cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small", ServiceAccount: string(bankAccount.ID)})
	for name, err := range map[string]error{"a token": err1, "an instance": err2} {
		if !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("creation of %s with an account of another project: got error %v, want Invalid", name, err)
		}
	}
	writer := account(t, e, shop, "writer", cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, AllProjects: true})
	if _, err := e.CreateInstance(as(writer, "instances.create", engine.Write), cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small", ServiceAccount: string(bankAccount.ID)}); !errors.Is(err, cloudsim.Denied) {
		t.Errorf("creation of an instance with an account that has more permissions than the caller: got error %v, want Denied", err)
	}
	err1 = e.DeleteRoleBinding(as("secret", "roleBindings.delete", engine.Manage), bound.ID)
	second := must(e.CreateToken(enter(t, e, "secret", "*"), cloudsim.CreateToken{Name: "second", Role: cloudsim.RoleAdmin}))(t)
	err2 = e.DeleteToken(as(second.Secret, "tokens.delete", engine.Manage), tok.ID) // the admin token cannot delete itself, so this call uses another token
	if err := errors.Join(err1, err2); err != nil {
		t.Errorf("an admin of all projects could not delete the binding or the token of all projects: %v", err)
	}
}

// TestOneTrustForAWorkload proves that a workload's token is valid for one account only. If a trust
// exists in one project, another project cannot create a trust for the same workload, audience and
// keys. Trusts with different keys do not conflict. So a trust with wrong keys cannot
// block another project's trust.
func TestOneTrustForAWorkload(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	must(e.CreateProject(admin, cloudsim.CreateProject{Name: "bank"}))(t)
	bank := enter(t, e, "secret", "bank")
	mine := must(e.CreateServiceAccount(admin, cloudsim.CreateServiceAccount{Name: "mine"}))(t)
	bankAccount := must(e.CreateServiceAccount(bank, cloudsim.CreateServiceAccount{Name: "theirs"}))(t)
	first := createTrust(t, e, admin, string(mine.ID))
	second := cloudsim.CreateWorkloadTrust{Name: "again", Account: string(bankAccount.ID), WorkloadTrustSpec: first.WorkloadTrustSpec}
	second.UID = "another"
	if _, err := e.CreateWorkloadTrust(bank, second); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("second trust for a workload: got error %v", err)
	}
	second.Audience = "another"
	must(e.CreateWorkloadTrust(bank, second))(t)
	other := cloudsim.CreateWorkloadTrust{Name: "other-keys", Account: string(bankAccount.ID), WorkloadTrustSpec: first.WorkloadTrustSpec}
	other.Keys = keySet(t)
	must(e.CreateWorkloadTrust(bank, other))(t)
}

// TestTokenOfTwoWorkloads proves that the engine refuses a token with two
// audiences if the token matches two trusts with different accounts.
func TestTokenOfTwoWorkloads(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	for _, name := range []string{"one", "two"} {
		must(e.CreateServiceAccount(admin, cloudsim.CreateServiceAccount{Name: name}))(t)
		must(e.CreateRoleBinding(admin, cloudsim.CreateRoleBinding{Name: name, Role: cloudsim.RoleReader, ServiceAccount: name}))(t)
	}
	token := workload(t, e, admin, "one")
	request := engine.Request{Secret: token, Operation: "instances.list", Access: engine.Read}
	must(e.Authorize(t.Context(), request))(t)
	spec := must(e.ListWorkloadTrusts(admin, cloudsim.ListOptions{}))(t).Items[0].WorkloadTrustSpec
	spec.Audience = "other"
	must(e.CreateWorkloadTrust(admin, cloudsim.CreateWorkloadTrust{Name: "second", Account: "two", WorkloadTrustSpec: spec}))(t)
	if _, err := e.Authorize(t.Context(), request); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("token of two accounts: got error %v", err)
	}
}

// TestKeysWithTheSameID proves that the engine tries all keys of a trust that have the key ID of the
// token.
func TestKeysWithTheSameID(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader})
	request := engine.Request{Secret: workload(t, e, admin, "sa"), Operation: "instances.list", Access: engine.Read}
	trust := must(e.ListWorkloadTrusts(admin, cloudsim.ListOptions{}))(t).Items[0]
	var own, all jose.JSONWebKeySet
	if err := errors.Join(json.Unmarshal([]byte(trust.Keys), &own), json.Unmarshal([]byte(keySet(t)), &all), e.DeleteWorkloadTrust(admin, trust.ID)); err != nil {
		t.Fatal(err)
	}
	all.Keys = append(all.Keys, own.Keys...)
	spec := trust.WorkloadTrustSpec
	spec.Keys = string(must(json.Marshal(all))(t))
	must(e.CreateWorkloadTrust(admin, cloudsim.CreateWorkloadTrust{Name: "second", Account: "sa", WorkloadTrustSpec: spec}))(t)
	if _, err := e.Authorize(t.Context(), request); err != nil {
		t.Errorf("token of the second key: got error %v, want none", err)
	}
}

// TestIrregularPluralsInPermissions proves that the engine finds the resource kind of an operation
// id with an irregular plural. For example, the kind of "repositories.get" is repository.
func TestIrregularPluralsInPermissions(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	must(e.CreateRole(admin, cloudsim.CreateRole{Name: "images", Permissions: []cloudsim.Permission{"repositories.*", "events.*", "addresses.*"}}))(t)
	secret := account(t, e, admin, "ci", cloudsim.CreateRoleBinding{Role: "images"})
	must(e.CreateRepository(admin, cloudsim.CreateRepository{Name: "team-a/web"}))(t)
	must(e.CreateAddress(admin, cloudsim.CreateAddress{Name: "a"}))(t)
	ctx := must(e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "events.list", Access: engine.Read}))(t)
	kinds := map[cloudsim.ResourceKind]bool{}
	for _, ev := range must(e.ListEvents(ctx, cloudsim.WatchOptions{}))(t).Items {
		kinds[ev.Kind] = true
	}
	if !kinds[cloudsim.KindRepository] || !kinds[cloudsim.KindAddress] || len(kinds) != 2 {
		t.Errorf("kinds of the received events: got %v, want only repository and address", kinds)
	}
	one := account(t, e, admin, "one", cloudsim.CreateRoleBinding{Role: "images", Resource: "team-a/*"})
	ctx = must(e.Authorize(t.Context(), engine.Request{Secret: one, Operation: "repositories.get", Access: engine.Read}))(t)
	repo := must(e.ListRepositories(admin, cloudsim.ListOptions{}))(t).Items[0]
	if err := e.MayTouch(ctx, engine.Subject{Operation: "repositories.get", Target: string(repo.ID)}); err != nil {
		t.Error(err)
	}
}

// TestAdminTokenStays proves that a caller with the administrator's token cannot delete this token.
// An administrator of only one project cannot read this token.
func TestAdminTokenStays(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "*")
	tok := must(e.ListTokens(admin, cloudsim.ListOptions{Name: engine.AdminToken}))(t).Items[0]
	if err := e.DeleteToken(admin, tok.ID); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "--admin-token-file") {
		t.Errorf("deletion of the administrator's token: got error %v", err)
	}
	must(e.CreateProject(admin, cloudsim.CreateProject{Name: "shop"}))(t)
	owner := account(t, e, enter(t, e, "secret", "shop"), "owner", cloudsim.CreateRoleBinding{Role: cloudsim.RoleAdmin})
	ctx := must(e.Authorize(t.Context(), engine.Request{Secret: owner, Project: "shop", Operation: "tokens.get", Access: engine.Manage}))(t)
	if got, err := e.GetToken(ctx, tok.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetToken of the admin token by a project owner: got %+v, error %v, want NotFound", got, err)
	}
	if l := must(e.ListTokens(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 || l.Items[0].Project == "" {
		t.Errorf("ListTokens of a project owner: got %+v, want only the token of the project", l.Items)
	}
	if got, err := e.GetToken(admin, tok.ID); err != nil || got.ID != tok.ID {
		t.Errorf("the administrator's token: got %+v, %v", got, err)
	}
}

// TestViewer proves that the role viewer permits all reads of a cloud, except
// reads of secrets. The role permits no changes.
func TestViewer(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", engine.DefaultProject)
	secret := account(t, e, admin, "screen", cloudsim.CreateRoleBinding{Role: cloudsim.RoleViewer, AllProjects: true})
	for operation, tc := range map[string]struct {
		class engine.Access
		may   bool
	}{
		"instances.list":     {engine.Read, true},
		"events.watch":       {engine.Read, true},
		"faults.list":        {engine.Admin, true},
		"holds.get":          {engine.Admin, true},
		"states.list":        {engine.Admin, true},
		"audit.list":         {engine.Admin, true},
		"audit.watch":        {engine.Admin, true},
		"bill.get":           {engine.Admin, true},
		"instances.stop":     {engine.Write, false},
		"instances.userData": {engine.Write, false},
		"faults.create":      {engine.Admin, false},
		"states.export":      {engine.Admin, false},
		"bill.reset":         {engine.Admin, false},
		"tokens.list":        {engine.Manage, false},
		"metadataTrees.set":  {engine.Admin, false},
	} {
		_, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: operation, Access: tc.class})
		if tc.may && err != nil || !tc.may && !errors.Is(err, cloudsim.Denied) {
			t.Errorf("%s: %v, want permitted: %v", operation, err, tc.may)
		}
	}
	ctx := must(e.Authorize(t.Context(), engine.Request{Secret: secret, Operation: "events.list", Access: engine.Read}))(t)
	must(e.CreateFault(admin, cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "zones.get"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}}))(t)
	if l := must(e.ListEvents(ctx, cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindFault}}))(t); len(l.Items) != 1 {
		t.Errorf("events of faults: got %d, want 1", len(l.Items))
	}
}
