package engine_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// shortToken creates a token of a service account. The token expires after 90
// seconds.
func shortToken(t *testing.T, e *engine.Engine, admin context.Context, name string) string {
	t.Helper()
	return must(e.CreateToken(admin, cloudsim.CreateToken{ServiceAccount: name, TTLSeconds: 90}))(t).Secret
}

// workload creates a trust for the Kubernetes service account shop/web. The trust lets the pods of
// this account call the cloud as the cloud's service account with the given name. workload returns
// a token of one of these pods. The token expires after 90 seconds and has a second audience,
// "other".
func workload(t *testing.T, e *engine.Engine, admin context.Context, name string) string {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	keys := must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256"}}}))(t)
	must(e.CreateWorkloadTrust(admin, cloudsim.CreateWorkloadTrust{Name: "pod", Account: name, WorkloadTrustSpec: cloudsim.WorkloadTrustSpec{
		Issuer: "https://k8s", Audience: "cloud", Keys: string(keys), Namespace: "shop", ServiceAccount: "web",
	}}))(t)
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil))(t)
	return must(jwt.Signed(signer).Claims(map[string]any{
		"iss": "https://k8s", "sub": "system:serviceaccount:shop:web", "aud": []string{"cloud", "other"}, "exp": time.Now().Add(90 * time.Second).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]string{"name": "web"}, "pod": map[string]string{"name": "p", "uid": "1"},
		},
	}).Serialize())(t)
}

func unbind(e *engine.Engine, admin context.Context, name string) error {
	l, err := e.ListRoleBindings(admin, cloudsim.ListOptions{Name: name})
	if err != nil || len(l.Items) != 1 {
		return fmt.Errorf("bindings named %s: %+v, %w", name, l.Items, err)
	}
	return e.DeleteRoleBinding(admin, l.Items[0].ID)
}

// watch starts a watch of all events and returns a channel. The channel receives all events except
// bookmarks. If the watch ends with an error, the channel then receives this error. At the end of
// the watch, the channel is closed.
func watch(e *engine.Engine, ctx context.Context) <-chan any {
	events := make(chan any, 1000)
	go func() {
		defer close(events)
		for ev, err := range e.Watch(ctx, cloudsim.WatchOptions{Bookmark: time.Minute}) {
			switch {
			case err != nil:
				events <- err
			case ev.Type != cloudsim.EventBookmark:
				events <- ev
			}
		}
	}()
	return events
}

// TestWatchEndsWithItsPermission proves that a watch ends when its caller may no
// longer watch. If a call revokes the permission, the watch ends at once. If
// the credential expires, the watch ends at the time of the next bookmark.
//
// In most test cases, the caller has role reader for all resources, and role writer for some
// resources. If the caller loses only role reader, the watch also ends, because a watch needs
// permission for all resources.
func TestWatchEndsWithItsPermission(t *testing.T) {
	idle := func(*engine.Engine, context.Context) error { return nil }
	revoke := func(e *engine.Engine, ctx context.Context) error { return e.DeleteToken(ctx, "tok-000003") }
	distrust := func(e *engine.Engine, ctx context.Context) error { return e.DeleteWorkloadTrust(ctx, "trust-000001") }
	disown := func(e *engine.Engine, ctx context.Context) error { return e.DeleteAccessKey(ctx, "ak-000001") }
	remove := func(e *engine.Engine, ctx context.Context) error { return e.DeleteServiceAccount(ctx, "sa-000001") }
	limit := func(e *engine.Engine, ctx context.Context) error { return unbind(e, ctx, "sa-a") }
	strip := func(e *engine.Engine, ctx context.Context) error {
		return errors.Join(unbind(e, ctx, "sa-b"), unbind(e, ctx, "sa-a"))
	}
	rotate := func(e *engine.Engine, _ context.Context) error { return e.EnsureAdmin("another") }
	admins := func(*testing.T, *engine.Engine, context.Context, string) string { return "secret" }
	for name, tc := range map[string]struct {
		secret func(*testing.T, *engine.Engine, context.Context, string) string
		lose   func(*engine.Engine, context.Context) error
		want   error
		after  time.Duration
	}{
		"token deleted":                   {shortToken, revoke, cloudsim.Unauthenticated, 0},
		"token expired":                   {shortToken, idle, cloudsim.Unauthenticated, 2 * time.Minute},
		"token rotated":                   {admins, rotate, cloudsim.Unauthenticated, 0},
		"account deleted":                 {shortToken, remove, cloudsim.Unauthenticated, 0},
		"roles removed":                   {shortToken, strip, cloudsim.Denied, 0},
		"role for some resources remains": {shortToken, limit, cloudsim.Denied, 0},
		"trust deleted":                   {workload, distrust, cloudsim.Unauthenticated, 0},
		"workload's token expired":        {workload, idle, cloudsim.Unauthenticated, 2 * time.Minute},
		"workload's account deleted":      {workload, remove, cloudsim.Unauthenticated, 0},
		"workload's roles removed":        {workload, strip, cloudsim.Denied, 0},
		"access key deleted":              {signedToken, disown, cloudsim.Unauthenticated, 0},
		"signature expired":               {signedToken, idle, cloudsim.Unauthenticated, 16 * time.Minute},
		"signer's account deleted":        {signedToken, remove, cloudsim.Unauthenticated, 0},
		"signer's roles removed":          {signedToken, strip, cloudsim.Denied, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, down := boot(t, file(t), instant)
				defer down()
				admin := enter(t, e, "secret", engine.DefaultProject)
				account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader}, cloudsim.CreateRoleBinding{Role: cloudsim.RoleWriter, Resource: "web-*"})
				ctx, leave := context.WithTimeout(t.Context(), time.Hour)
				defer leave()
				ctx = must(e.Authorize(ctx, engine.Request{Secret: tc.secret(t, e, admin, "sa"), Operation: "events.watch", Access: engine.Read}))(t)
				began, events := time.Now(), watch(e, ctx)
				synctest.Wait()
				if err := tc.lose(e, admin); err != nil {
					t.Fatal(err)
				}
				mustCreate(t, e, admin, "news")
				var err error
				news := 0
				for v := range events {
					if ev, ok := v.(cloudsim.Event); ok && ev.Kind == cloudsim.KindInstance {
						news++
					}
					err, _ = v.(error)
				}
				if tc.after == 0 && news > 0 {
					t.Error("the watch received an event of a time after the loss of the permission")
				}
				if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.after {
					t.Errorf("end of the watch: got %v after %s, want %v after %s", err, took, tc.want, tc.after)
				}
			})
		})
	}
}

// TestWatchFollowsPermissions proves that a watch yields only events that the
// caller may read at the time of the delivery. If the caller is the cloud itself
// (AsCloud), a watch yields all events.
func TestWatchFollowsPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		admin := enter(t, e, "secret", engine.DefaultProject)
		secret := account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader}, cloudsim.CreateRoleBinding{Role: cloudsim.RoleHypervisor})
		ctx, leave := context.WithCancel(t.Context())
		accountEvents := watch(e, must(e.Authorize(ctx, engine.Request{Secret: secret, Operation: "events.watch", Access: engine.Read}))(t))
		cloudEvents := watch(e, engine.AsCloud(ctx))
		mustCreate(t, e, admin, "a")
		synctest.Wait()
		if err := unbind(e, admin, "sa-a"); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, e, admin, "b")
		synctest.Wait()
		leave()
		idsOf := func(events <-chan any) (of []string) {
			for v := range events {
				if ev, ok := v.(cloudsim.Event); !ok {
					t.Errorf("the watch received %v, want only events", v)
				} else if ev.Type == cloudsim.EventPut && (ev.Kind == cloudsim.KindInstance || ev.Kind == cloudsim.KindOperation) {
					of = append(of, ev.ID)
				}
			}
			slices.Sort(of)
			return slices.Compact(of)
		}
		if got := idsOf(accountEvents); !slices.Equal(got, []string{"i-000001", "i-000002", "op-000001"}) {
			t.Errorf("events of the watch that lost a role: got ids %v, want i-000001, i-000002 and op-000001", got)
		}
		if got := idsOf(cloudEvents); !slices.Equal(got, []string{"i-000001", "i-000002", "op-000001", "op-000002"}) {
			t.Errorf("events of the cloud's watch: got ids %v, want i-000001, i-000002, op-000001 and op-000002", got)
		}
	})
}

// TestEventsEndWithALoad proves that after LoadState or ResetState, ListEvents returns Gone for
// all earlier revisions except 0. After Gone, a client can list the events from revision 0. With
// the revision in this list, the client can then list the later events.
func TestEventsEndWithALoad(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	mustCreate(t, e, ctx, "a")
	saved := must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t).Revision
	mustCreate(t, e, ctx, "b")
	last := must(e.ListInstances(ctx, cloudsim.ListOptions{}))(t).Revision
	for operation, replace := range map[string]func() error{
		"a load":  func() error { return e.LoadState(ctx, "s", cloudsim.LoadState{}) },
		"a reset": func() error { return e.ResetState(ctx) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		now := must(e.ListInstances(ctx, cloudsim.ListOptions{}))(t).Revision
		for since, want := range map[uint64]error{1: cloudsim.Gone, saved: cloudsim.Gone, last: cloudsim.Gone, 0: nil, now: nil} {
			if _, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: since}); !errors.Is(err, want) {
				t.Errorf("ListEvents since revision %d after %s: got error %v, want %v", since, operation, err, want)
			}
		}
		l := must(e.ListEvents(ctx, cloudsim.WatchOptions{}))(t)
		if l.Revision != now {
			t.Errorf("list of events after %s: got revision %d, want %d", operation, l.Revision, now)
		}
		if _, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: l.Revision}); err != nil {
			t.Errorf("ListEvents since revision %d of the list of events after %s: got error %v", l.Revision, operation, err)
		}
	}
}

// TestWatchReadsLoadedState proves that a watch which begins at revision 0
// reads all pages of loaded events, and then the later events.
func TestWatchReadsLoadedState(t *testing.T) {
	ctx, leave := context.WithTimeout(engine.AsCloud(t.Context()), time.Minute)
	defer leave()
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	for rev := uint64(0); rev <= cloudsim.DefaultPageSize; {
		rev = must(e.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", rev)}))(t).Revision
	}
	saved := must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t).Revision
	if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	a := mustCreate(t, e, ctx, "news")
	read := uint64(0)
	for ev, err := range e.Watch(ctx, cloudsim.WatchOptions{}) {
		if err != nil {
			t.Fatalf("after %d events: %v", read, err)
		}
		if ev.Rev <= saved {
			read++
		}
		if ev.ID == string(a.ID) {
			break
		}
	}
	if read != saved {
		t.Errorf("events of the watch: got %d, want %d", read, saved)
	}
}

// TestNewestEvents proves that ListNewestEvents returns the same events as
// ListEvents, but the newest events first. Filters and permissions apply to each
// page.
func TestNewestEvents(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	cloud := engine.AsCloud(t.Context())
	must(e.CreateProject(cloud, cloudsim.CreateProject{Name: "shop"}))(t)
	ctx, other := enter(t, e, "secret", engine.DefaultProject), enter(t, e, "secret", "shop")
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
	must(e.DeleteInstance(ctx, a.ID))(t)

	want := must(e.ListEvents(ctx, cloudsim.WatchOptions{}))(t).Items
	slices.Reverse(want)
	var got []cloudsim.Event
	for o := (cloudsim.EventOptions{Limit: 3}); ; {
		page := must(e.ListNewestEvents(ctx, o))(t)
		if got = append(got, page.Items...); page.Next == "" {
			break
		}
		o.Before = must(strconv.ParseUint(page.Next, 10, 64))(t)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, tc := range map[string]struct {
		o    cloudsim.EventOptions
		want func(cloudsim.Event) bool
	}{
		"resource": {cloudsim.EventOptions{ID: string(a.ID)}, func(ev cloudsim.Event) bool { return ev.ID == string(a.ID) }},
		"kind":     {cloudsim.EventOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindOperation}}, func(ev cloudsim.Event) bool { return ev.Kind == cloudsim.KindOperation }},
		"request":  {cloudsim.EventOptions{RequestID: "none"}, func(cloudsim.Event) bool { return false }},
		"beyond":   {cloudsim.EventOptions{Before: 1 << 60}, func(cloudsim.Event) bool { return true }},
	} {
		got := must(e.ListNewestEvents(ctx, tc.o))(t)
		expected := slices.DeleteFunc(slices.Clone(want), func(ev cloudsim.Event) bool { return !tc.want(ev) })
		if d := cmp.Diff(expected, got.Items, cmpopts.EquateEmpty()); d != "" || got.Next != "" {
			t.Errorf("ListNewestEvents with filter %s: got next %q, want none; events (-want +got):\n%s", name, got.Next, d)
		}
	}
	if l := must(e.ListNewestEvents(other, cloudsim.EventOptions{ID: string(b.ID)}))(t); len(l.Items) != 0 {
		t.Errorf("another project sees %+v", l.Items)
	}
	if l := must(e.ListEvents(ctx, cloudsim.WatchOptions{ID: string(b.ID)}))(t); len(l.Items) == 0 || l.Items[0].ID != string(b.ID) {
		t.Errorf("events of one resource: %+v", l.Items)
	}
	if _, err := e.ListNewestEvents(ctx, cloudsim.EventOptions{Kinds: []cloudsim.ResourceKind{"cow"}}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("unknown kind: %v, want Invalid", err)
	}
}
