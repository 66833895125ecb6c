package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func withStates(dir string) func(*engine.Config) {
	return func(c *engine.Config) { c.StateDir = dir }
}

// TestLoadState proves that LoadState restores ids, addresses, provider ids,
// open operations, faults and the clock. It also proves that LoadState undoes
// all changes after the save. A restart does not change the result.
func TestLoadState(t *testing.T) {
	path, dir, ctx := file(t), t.TempDir(), engine.AsCloud(t.Context())
	e, stop := boot(t, path, frozen, withStates(dir))
	a := mustCreate(t, e, ctx, "a") // the operation of the instance is open
	_, err1 := e.CreateFault(ctx, cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "zones.get"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultDrop},
	}})
	_, err2 := e.SaveState(ctx, cloudsim.SaveState{Name: "then"})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "then"}); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("second save with the same name: got error %v", err)
	}
	advance(t, e, ctx, time.Hour)
	mustCreate(t, e, ctx, "b")
	err := e.DeleteFault(ctx, "fault-000001")
	_, err2 = e.DeleteInstance(ctx, a.ID)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, time.Hour)
	if err := e.LoadState(ctx, "then", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := e.GetInstance(ctx, a.ID)
		if diff := cmp.Diff(a, got); err != nil || diff != "" {
			t.Errorf("instance after the load: got error %v (-want +got):\n%s", err, diff)
		}
		if l, _ := e.ListInstances(ctx, cloudsim.ListOptions{}); len(l.Items) != 1 {
			t.Errorf("instances after the load: got %d, want 1", len(l.Items))
		}
		if op, err := e.GetOperation(ctx, a.Operation); err != nil || op.Over() {
			t.Errorf("operation of the instance: got %+v, error %v, want it open", op, err)
		}
		if now := e.Now(); !now.Equal(newYear) {
			t.Errorf("time of the clock: got %s, want %s", now, newYear)
		}
		if hit, err := e.Decide(ctx, engine.Subject{Operation: "zones.get"}); err != nil || hit.Fault == nil {
			t.Errorf("zones.get after the load: got error %v, want a hit of the restored fault", err)
		}
		stop()
		e, stop = boot(t, path, withStates(dir))
	}
	defer stop()
	advance(t, e, ctx, time.Hour)
	if i, err := e.GetInstance(ctx, a.ID); err != nil || i.State != cloudsim.InstanceRunning {
		t.Errorf("instance after its due work: got %s, %v", i.State, err)
	}
	if b := mustCreate(t, e, ctx, "c"); b.ID != "i-000002" {
		t.Errorf("next id: got %s", b.ID)
	}
}

// TestLoadKeepsSecrets proves that tokens of the running cloud stay valid when the cloud loads a
// saved state. But a token becomes invalid if its service account does not exist in the saved
// state. A token that exists only in the saved state does not become valid.
func TestLoadKeepsSecrets(t *testing.T) {
	e, down := boot(t, file(t), instant, withStates(t.TempDir()))
	defer down()
	ctx := enter(t, e, "secret", engine.DefaultProject)
	token := func(req cloudsim.CreateToken) cloudsim.Token {
		return must(e.CreateToken(ctx, req))(t)
	}
	was := token(cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleReader})
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "then"}))(t)
	if err := e.DeleteToken(ctx, was.ID); err != nil {
		t.Fatal(err)
	}
	now := token(cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleReader})
	late := token(cloudsim.CreateToken{Name: "late", Role: cloudsim.RoleReader})
	gone := account(t, e, ctx, "gone", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader})
	if err := e.LoadState(ctx, "then", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		secret string
		want   error
	}{
		"token of the running cloud":                     {now.Secret, nil},
		"token of the saved state":                       {was.Secret, cloudsim.Unauthenticated},
		"token that is newer than the saved state":       {late.Secret, nil},
		"token of an account that the saved state lacks": {gone, cloudsim.Unauthenticated},
	} {
		if _, err := e.Authorize(t.Context(), engine.Request{Secret: tc.secret, Operation: "zones.list", Access: engine.Read}); !errors.Is(err, tc.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tc.want)
		}
	}
}

// TestLoadKeepsIdentityOfTokens proves that LoadState never changes the identity of a
// token. After the load, a token of the running cloud has the same project and
// account as before, or is invalid. This is true even if the ids of this project
// and account belong to other resources in the saved state.
func TestLoadKeepsIdentityOfTokens(t *testing.T) {
	const writes, reads, none = cloudsim.RoleWriter, cloudsim.RoleReader, ""
	// cloudContent describes the content of a cloud. The last project in the field projects
	// contains an account and a token:
	//   - If only the field account is set, the project contains a service account with this name.
	//   - If only the field role is set, the project contains the token "ci" with this role.
	//   - If both fields are set, the service account has the role, and the token "ci" belongs to
	//     the account.
	type cloudContent struct {
		projects []string
		account  string
		role     cloudsim.RoleName
	}
	a, b := []string{"a"}, []string{"b"}
	fill := func(t *testing.T, e *engine.Engine, s cloudContent) (secret string) {
		t.Helper()
		ctx, req := enter(t, e, "secret", engine.DefaultProject), cloudsim.CreateToken{Name: "ci", Role: s.role}
		for _, name := range s.projects {
			p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: name}))(t)
			ctx = enter(t, e, "secret", string(p.ID))
		}
		if s.account != "" {
			must(e.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: s.account}))(t)
			req = cloudsim.CreateToken{Name: "ci", ServiceAccount: s.account}
		}
		if s.role == none {
			return ""
		}
		if s.account != "" {
			must(e.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "may", ServiceAccount: s.account, Role: s.role}))(t)
		}
		return must(e.CreateToken(ctx, req))(t).Secret
	}
	unknown := cloudsim.Unauthenticated
	for name, tc := range map[string]struct {
		then, now   cloudContent
		read, write error
	}{
		"same project":                                         {cloudContent{a, "", none}, cloudContent{a, "", writes}, nil, nil},
		"project that the state lacks":                         {cloudContent{}, cloudContent{a, "", writes}, unknown, unknown},
		"another project with the same id":                     {cloudContent{a, "", none}, cloudContent{b, "", writes}, unknown, unknown},
		"token of another project":                             {cloudContent{a, "", writes}, cloudContent{b, "", writes}, unknown, unknown},
		"same account":                                         {cloudContent{a, "x", writes}, cloudContent{a, "x", writes}, nil, nil},
		"same account with fewer roles in the state":           {cloudContent{a, "x", reads}, cloudContent{a, "x", writes}, nil, cloudsim.Denied},
		"account that the state lacks":                         {cloudContent{a, "", none}, cloudContent{a, "x", writes}, unknown, unknown},
		"another account with the same id":                     {cloudContent{a, "y", writes}, cloudContent{a, "x", writes}, unknown, unknown},
		"account that belongs to another project in the state": {cloudContent{[]string{"a", "b"}, "x", writes}, cloudContent{a, "x", writes}, unknown, unknown},
		"reader token, and a writer token in the state":        {cloudContent{a, "", writes}, cloudContent{a, "", reads}, nil, cloudsim.Denied},
		"writer token, and a reader token in the state":        {cloudContent{a, "", reads}, cloudContent{a, "", writes}, nil, nil},
		"reader token, and an account's token in the state":    {cloudContent{a, "x", writes}, cloudContent{a, "", reads}, nil, cloudsim.Denied},
		"account's token, and no account in the state":         {cloudContent{a, "", writes}, cloudContent{a, "x", reads}, unknown, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := engine.AsCloud(t.Context())
			e, down := boot(t, file(t), instant, withStates(t.TempDir()))
			defer down()
			must(e.SaveState(ctx, cloudsim.SaveState{Name: "empty"}))(t)
			fill(t, e, tc.then)
			must(e.SaveState(ctx, cloudsim.SaveState{Name: "then"}))(t)
			if err := e.LoadState(ctx, "empty", cloudsim.LoadState{}); err != nil {
				t.Fatal(err)
			}
			secret := fill(t, e, tc.now)
			if err := e.LoadState(ctx, "then", cloudsim.LoadState{}); err != nil {
				t.Fatal(err)
			}
			for _, call := range []struct {
				name   string
				access engine.Access
				want   error
			}{{"read", engine.Read, tc.read}, {"write", engine.Write, tc.write}} {
				if _, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Access: call.access}); !errors.Is(err, call.want) {
					t.Errorf("%s call with the token after the load: got error %v, want %v", call.name, err, call.want)
				}
			}
		})
	}
}

// TestLoadKeepsTheEndOfTokens proves that LoadState does not change the expiry
// of the running cloud's tokens. This is true even if the saved state has a
// token with the same name and another expiry. The cloud deletes a token a day
// after its expiry.
func TestLoadKeepsTheEndOfTokens(t *testing.T) {
	const none, brief, long, forever = -1, 3600, 72 * 3600, 0 // seconds
	for name, tc := range map[string]struct {
		then, now    int64
		opens, stays bool // whether the token is valid after two days, and exists after ten days
	}{
		"short expiry, no token in the state":    {none, brief, false, false},
		"long expiry, no token in the state":     {none, long, true, false},
		"short expiry, no expiry in the state":   {forever, brief, false, false},
		"long expiry, short expiry in the state": {brief, long, true, false},
		"short expiry, long expiry in the state": {long, brief, false, false},
		"no expiry, short expiry in the state":   {brief, forever, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, down := boot(t, file(t), instant, frozen, withStates(t.TempDir()))
			defer down()
			ctx := enter(t, e, "secret", engine.DefaultProject)
			create := func(ttl int64) cloudsim.Token {
				return must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleReader, TTLSeconds: ttl}))(t)
			}
			var was cloudsim.Token
			if tc.then != none {
				was = create(tc.then)
			}
			must(e.SaveState(ctx, cloudsim.SaveState{Name: "then"}))(t)
			if err := e.DeleteToken(ctx, was.ID); tc.then != none && err != nil {
				t.Fatal(err)
			}
			now := create(tc.now)
			if err := e.LoadState(ctx, "then", cloudsim.LoadState{}); err != nil {
				t.Fatal(err)
			}
			opens := func() bool {
				_, err := e.Authorize(t.Context(), engine.Request{Secret: now.Secret, Access: engine.Read})
				return err == nil
			}
			if !opens() {
				t.Error("the token is not valid after the load")
			}
			advance(t, e, ctx, 48*time.Hour)
			if opens() != tc.opens {
				t.Errorf("token after two days: got valid %t, want %t", !tc.opens, tc.opens)
			}
			advance(t, e, ctx, 8*24*time.Hour)
			l := must(e.ListTokens(ctx, cloudsim.ListOptions{}))(t)
			if stays := slices.ContainsFunc(l.Items, func(t cloudsim.Token) bool { return t.Name == "ci" }); stays != tc.stays || opens() != tc.stays {
				t.Errorf("token after ten days: got exists %t and valid %t, want both %t", stays, opens(), tc.stays)
			}
		})
	}
}

// TestWatchesEndWithALoad proves that LoadState ends all open watches with
// Gone, even if the saved state does not contain the token of the caller. A new
// watch from a revision before the load also ends with Gone. A new watch from a
// revision after the load continues.
func TestWatchesEndWithALoad(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	mustCreate(t, e, ctx, "a")
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	late := account(t, e, enter(t, e, "secret", engine.DefaultProject), "late", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader})
	before, err := e.ListInstances(ctx, cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	soon, leave := context.WithTimeout(t.Context(), 10*time.Second)
	defer leave()
	running := make(chan error, 2)
	for _, ctx := range []context.Context{engine.AsCloud(soon), must(e.Authorize(soon, engine.Request{Secret: late, Access: engine.Read}))(t)} {
		go func() {
			var last error
			for _, err := range e.Watch(ctx, cloudsim.WatchOptions{Since: before.Revision}) {
				last = err
			}
			running <- last
		}()
	}
	if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-running; !errors.Is(err, cloudsim.Gone) {
			t.Errorf("running watch: got error %v, want Gone", err)
		}
	}
	after, err := e.ListInstances(ctx, cloudsim.ListOptions{})
	if err != nil || after.Revision <= before.Revision {
		t.Errorf("revision after the load: got %d, error %v, want more than %d", after.Revision, err, before.Revision)
	}
	mustCreate(t, e, ctx, "b")
	for _, err := range e.Watch(ctx, cloudsim.WatchOptions{Since: before.Revision}) {
		if !errors.Is(err, cloudsim.Gone) {
			t.Errorf("watch from a revision before the load: got error %v, want Gone", err)
		}
		break
	}
	for ev, err := range e.Watch(ctx, cloudsim.WatchOptions{Since: after.Revision, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}}) {
		if err != nil || ev.ID != "i-000002" {
			t.Errorf("watch from the revision after the load: got %+v, error %v, want an event of i-000002", ev, err)
		}
		break
	}
}

// TestResetState proves that tokens stay valid after LoadState and after ResetState. It also proves
// that ResetState keeps access keys and workload trusts, but deletes all instances. The next
// instance gets the first id again.
func TestResetState(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	mustCreate(t, e, ctx, "a")
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	tok, err := e.CreateToken(ctx, cloudsim.CreateToken{Name: "late", Role: cloudsim.RoleReader})
	if err != nil {
		t.Fatal(err)
	}
	may := func(when string) {
		t.Helper()
		for _, secret := range []string{"secret", tok.Secret} {
			if _, err := e.Authorize(t.Context(), engine.Request{Secret: secret, Access: engine.Read}); err != nil {
				t.Errorf("token %s: got error %v, want none", when, err)
			}
		}
	}
	if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	may("after a load")
	sa := must(e.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "web"}))(t)
	trust := createTrust(t, e, ctx, string(sa.ID))
	key := must(e.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: string(sa.ID)}))(t)
	if err := e.ResetState(ctx); err != nil {
		t.Fatal(err)
	}
	may("after a reset")
	if _, err := e.Authorize(t.Context(), engine.Request{Secret: signatureNow(key), Access: engine.Enter}); err != nil {
		t.Errorf("access key after the reset: got error %v, want none", err)
	}
	if _, err := e.GetWorkloadTrust(ctx, trust.ID); err != nil {
		t.Errorf("GetWorkloadTrust after the reset: got error %v, want none", err)
	}
	if l, err := e.ListInstances(ctx, cloudsim.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("instances after a reset: %+v, %v", l.Items, err)
	}
	if i := mustCreate(t, e, ctx, "b"); i.ID != "i-000001" || i.State != cloudsim.InstanceRunning {
		t.Errorf("the first instance after a reset: %+v", i)
	}
}

// TestExportImport proves that another cloud can import an exported state. The
// cloud refuses to import a damaged file, an incomplete file, and a file that
// is not a saved state. A refused import leaves no file.
func TestExportImport(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	a := mustCreate(t, e, ctx, "a")
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
	f := must(e.ExportState(ctx, "s"))(t)
	defer f.Close()
	whole := must(io.ReadAll(f))(t)
	dir := filepath.Join(t.TempDir(), "states")
	other, stopOther := boot(t, file(t), instant, withStates(dir))
	defer stopOther()
	noise := bytes.Clone(whole)
	for i := len(noise) / 2; i < len(noise)/2+64; i++ {
		noise[i] ^= 0xa5
	}
	for name, bad := range map[string][]byte{"an empty file": nil, "a text": []byte("hello"), "half of a file": whole[:len(whole)/2], "a damaged file": noise} {
		if _, err := other.ImportState(ctx, "bad", bytes.NewReader(bad)); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("import of %s: got error %v, want Invalid", name, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("remaining files: got %v, want none", left)
	}
	if _, err := other.ImportState(ctx, "moved", bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if d, err := other.DiffStates(ctx, "moved", ""); err != nil || len(d.Items) == 0 {
		t.Errorf("diff before the load of the imported state: got %+v, error %v, want differences", d, err)
	}
	if err := other.LoadState(ctx, "moved", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	if got, err := other.GetInstance(ctx, a.ID); err != nil || got.ProviderID != a.ProviderID {
		t.Errorf("instance of an imported state: got %+v, error %v", got, err)
	}
	if d, err := other.DiffStates(ctx, "moved", ""); err != nil || len(d.Items) != 0 {
		t.Errorf("diff after the load of the imported state: got %+v, error %v, want none", d, err)
	}
	if err := errors.Join(other.DeleteState(ctx, "moved")); err != nil {
		t.Error(err)
	}
	if err := other.LoadState(ctx, "moved", cloudsim.LoadState{}); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("load of a deleted state: got error %v, want NotFound", err)
	}
}

// TestDamagedState proves that the cloud does not load a saved state if its file is damaged. A
// client can delete a damaged saved state. ListStates reports damage of the header.
func TestDamagedState(t *testing.T) {
	dir, ctx := t.TempDir(), engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(dir))
	defer stop()
	a := mustCreate(t, e, ctx, "a")
	for name, part := range map[string]int{"good": -1, "head": 0, "middle": 2} {
		must(e.SaveState(ctx, cloudsim.SaveState{Name: name}))(t)
		if part < 0 {
			continue
		}
		path := filepath.Join(dir, name+".state")
		raw := must(os.ReadFile(path))(t)
		raw[len(raw)*part/4] ^= 0xff
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := e.LoadState(ctx, name, cloudsim.LoadState{}); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("load %s: %v; want Invalid", name, err)
		}
	}
	l := must(e.ListStates(ctx))(t)
	if len(l.Items) != 3 || l.Items[0].Damage != "" || l.Items[1].Damage == "" || l.Items[0].Revision == 0 {
		t.Errorf("ListStates: got %+v, want 3 states: good without damage and with a revision, head with damage", l.Items)
	}
	if err := errors.Join(e.DeleteState(ctx, "head"), e.LoadState(ctx, "good", cloudsim.LoadState{})); err != nil {
		t.Error(err)
	}
	if got, err := e.GetInstance(ctx, a.ID); err != nil || got.Name != "a" {
		t.Errorf("instance after the load of a good state: got %+v, error %v", got, err)
	}
}

// TestStartRemovesUnfinishedFiles proves that a start removes the unfinished files of a killed
// cloud. The directory of this cloud is "lab[1]". As a file name pattern, this name would match
// "lab1", the directory of another cloud. The start must not remove files in "lab1".
func TestStartRemovesUnfinishedFiles(t *testing.T) {
	parent, ctx := t.TempDir(), engine.AsCloud(t.Context())
	dir, others := filepath.Join(parent, "lab[1]"), filepath.Join(parent, "lab1")
	for _, d := range []string{dir, others} {
		if err := errors.Join(os.MkdirAll(filepath.Join(d, ".making-1"), 0o700), os.WriteFile(filepath.Join(d, ".making-2"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	e, stop := boot(t, file(t), instant, withStates(dir))
	defer stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("unfinished files of the started cloud: got %v, error %v, want none", left, err)
	}
	if left, err := os.ReadDir(others); err != nil || len(left) != 2 {
		t.Errorf("files of another cloud: got %v, error %v, want 2", left, err)
	}
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	if l, err := e.ListStates(ctx); err != nil || len(l.Items) != 1 || l.Items[0].Name != "s" {
		t.Errorf("ListStates: got %+v, error %v, want only s", l, err)
	}
}

// TestLoadRefusesOtherRanges proves that the cloud refuses to load a saved state with address
// ranges that differ from the configured ranges. The refused call changes no records. The saved
// state also has a zone that the running cloud does not have. During the load, the test tries to
// create instances in this zone. The cloud must refuse these calls, because no call may use the
// records of a refused state.
func TestLoadRefusesOtherRanges(t *testing.T) {
	dir, ctx := t.TempDir(), engine.AsCloud(context.Background())
	withMarsZone := func(c *engine.Config) {
		c.Catalogue.Zones = append(slices.Clip(c.Catalogue.Zones), cloudsim.Zone{Meta: cloudsim.Meta{Name: "mars-1a"}, Region: "mars-1"})
		c.Catalogue.Regions = append(slices.Clip(c.Catalogue.Regions), cloudsim.Region{Meta: cloudsim.Meta{Name: "mars-1"}})
	}
	e, stop := boot(t, file(t), instant, withStates(dir), withMarsZone)
	must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "mars-1a", Type: "small"}))(t)
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
	stop()
	e, stop = boot(t, file(t), instant, withStates(dir), func(c *engine.Config) { c.Instances = netip.MustParsePrefix("127.70.0.0/16") })
	defer stop()
	b := mustCreate(t, e, ctx, "b")
	for range 5 {
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); !errors.Is(err, cloudsim.Conflict) {
				t.Errorf("load of a state with other address ranges: got error %v, want Conflict", err)
			}
		}()
		for isLoading := true; isLoading; {
			select {
			case <-loaded:
				isLoading = false
			default:
			}
			if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "c", Zone: "mars-1a", Type: "small"}); !errors.Is(err, cloudsim.Invalid) {
				t.Fatalf("instance in a zone of the state: got error %v, want Invalid", err)
			}
		}
	}
	if got, err := e.GetInstance(ctx, b.ID); err != nil || got.Name != "b" {
		t.Errorf("existing instance: got %+v, %v", got, err)
	}
	mustCreate(t, e, ctx, "d")
}

// TestCancelledReset proves that ResetState changes nothing if the caller has cancelled ctx.
func TestCancelledReset(t *testing.T) {
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	ctx, cancel := context.WithCancel(engine.AsCloud(t.Context()))
	a := mustCreate(t, e, ctx, "a")
	cancel()
	if err := e.ResetState(ctx); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("cancelled reset: got error %v", err)
	}
	if _, err := e.GetInstance(engine.AsCloud(t.Context()), a.ID); err != nil {
		t.Errorf("instance after a cancelled reset: got error %v", err)
	}
}

// TestDiffStates proves that a diff lists added, removed and changed resources. For a changed
// resource, it also lists the fields that differ. The diff omits the fields that always differ
// between two saved states, even if no user changed the resource. An example is the revision.
func TestDiffStates(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	same, grown, gone := mustCreate(t, e, ctx, "same"), mustCreate(t, e, ctx, "grown"), mustCreate(t, e, ctx, "gone")
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "then"}))(t)
	must(e.UpdateInstance(ctx, grown.ID, cloudsim.UpdateInstance{Labels: map[string]string{"a": "b"}}, 0))(t)
	must(e.DeleteInstance(ctx, gone.ID))(t)
	come := mustCreate(t, e, ctx, "come")
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "now"}))(t)
	instancesIn := func(from, to string) map[string]cloudsim.StateChange {
		t.Helper()
		d := must(e.DiffStates(ctx, from, to))(t)
		all := map[string]cloudsim.StateChange{}
		for _, c := range d.Items {
			if c.Kind == cloudsim.KindInstance {
				all[c.ID] = c
			}
		}
		return all
	}
	of := func(i cloudsim.Instance, change string, fields ...string) cloudsim.StateChange {
		return cloudsim.StateChange{Kind: cloudsim.KindInstance, ID: string(i.ID), Name: i.Name, Change: change, Fields: fields}
	}
	for _, to := range []string{"now", ""} {
		want := map[string]cloudsim.StateChange{
			string(grown.ID): of(grown, "changed", "labels"), string(gone.ID): of(gone, "removed"), string(come.ID): of(come, "added"),
		}
		if diff := cmp.Diff(want, instancesIn("then", to)); diff != "" {
			t.Errorf("diff without the unchanged %s to %q (-want +got):\n%s", same.ID, to, diff)
		}
	}
	if d := must(e.DiffStates(ctx, "now", "now"))(t); len(d.Items) != 0 {
		t.Errorf("diff of a state with itself: got %+v", d.Items)
	}
}

// TestResetKeepsTheEndOfTokens proves that tokens still expire after a reset.
func TestResetKeepsTheEndOfTokens(t *testing.T) {
	e, down := boot(t, file(t), instant, frozen, withStates(t.TempDir()))
	defer down()
	ctx := enter(t, e, "secret", engine.DefaultProject)
	brief := must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleReader, TTLSeconds: 3600}))(t)
	if err := e.ResetState(ctx); err != nil {
		t.Fatal(err)
	}
	must(e.GetToken(ctx, brief.ID))(t)
	advance(t, e, ctx, 48*time.Hour)
	if have, err := e.GetToken(ctx, brief.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("token two days later: got %+v, %v; want NotFound", have, err)
	}
}
