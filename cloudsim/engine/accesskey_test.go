package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func signatureNow(k cloudsim.AccessKey) string { return signatureAt(k, time.Now()).Token() }

func signatureAt(k cloudsim.AccessKey, at time.Time) cloudsim.Signature {
	s := cloudsim.Signature{AccessKey: k.ID, Time: at.UTC().Truncate(time.Second), Region: "sim-1", Service: "ec2", Hash: strings.Repeat("0a", 32)}
	s.Signature = s.Sign(k.Secret)
	return s
}

func signedToken(t *testing.T, e *engine.Engine, admin context.Context, name string) string {
	t.Helper()
	return signatureNow(must(e.CreateAccessKey(admin, cloudsim.CreateAccessKey{ServiceAccount: name}))(t))
}

// TestAccessKey proves that a caller with a valid signature has the permissions of the access key's
// service account. The engine refuses a changed signature and a signature of an unknown key. It
// also refuses a signature if the signature's time differs from the cloud's time by more than 15
// minutes.
func TestAccessKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		admin := enter(t, e, "secret", engine.DefaultProject)
		account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader})
		k := must(e.CreateAccessKey(admin, cloudsim.CreateAccessKey{Name: "k", ServiceAccount: "sa"}))(t)
		if k.Secret == "" || k.StoredSecret != "" || k.ServiceAccount != "sa-000001" || k.Project != "proj-000001" {
			t.Fatalf("created access key: got %+v, want a secret, the account and its project", k)
		}
		if _, err := e.CreateAccessKey(admin, cloudsim.CreateAccessKey{Name: "k", ServiceAccount: "sa"}); !errors.Is(err, cloudsim.Exists) {
			t.Errorf("second access key with the name: got error %v, want Exists", err)
		}
		if got := must(e.GetAccessKey(admin, k.ID))(t); got.Secret != "" || got.StoredSecret != "" {
			t.Errorf("read access key: got %+v, want no secret", got)
		}
		for _, ev := range must(e.ListEvents(admin, cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindAccessKey}}))(t).Items {
			if strings.Contains(string(ev.Object), k.Secret) || strings.Contains(string(ev.Object), "ecret") {
				t.Errorf("event with a secret: %s", ev.Object)
			}
		}
		authorize := func(s cloudsim.Signature) error {
			ctx, err := e.Authorize(t.Context(), engine.Request{Secret: s.Token(), Operation: "instances.list", Access: engine.Read})
			if err != nil {
				return err
			}
			if me := must(e.WhoAmI(ctx))(t); me.Caller != "sa" || me.ServiceAccount != "sa-000001" || me.Project != "proj-000001" {
				t.Errorf("caller: got %+v, want the account of the access key", me)
			}
			return nil
		}
		now := time.Now()
		for name, tc := range map[string]struct {
			change func(*cloudsim.Signature)
			field  string
		}{
			"valid":           {func(*cloudsim.Signature) {}, ""},
			"other hash":      {func(s *cloudsim.Signature) { s.Hash = strings.Repeat("0b", 32) }, cloudsim.SignatureValueField},
			"other region":    {func(s *cloudsim.Signature) { s.Region = "sim-2" }, cloudsim.SignatureValueField},
			"other service":   {func(s *cloudsim.Signature) { s.Service = "sts" }, cloudsim.SignatureValueField},
			"other time":      {func(s *cloudsim.Signature) { s.Time = s.Time.Add(time.Second) }, cloudsim.SignatureValueField},
			"other signature": {func(s *cloudsim.Signature) { s.Signature = strings.Repeat("0", 64) }, cloudsim.SignatureValueField},
			"other secret":    {func(s *cloudsim.Signature) { s.Signature = s.Sign(k.Secret + "x") }, cloudsim.SignatureValueField},
			"unknown key":     {func(s *cloudsim.Signature) { s.AccessKey = "ak-000002" }, cloudsim.SignatureKeyField},
			"token's id":      {func(s *cloudsim.Signature) { s.AccessKey = "tok-000001" }, cloudsim.SignatureKeyField},
			"oldest":          {func(s *cloudsim.Signature) { *s = signatureAt(k, now.Add(-15*time.Minute)) }, ""},
			"too old":         {func(s *cloudsim.Signature) { *s = signatureAt(k, now.Add(-15*time.Minute-time.Second)) }, cloudsim.SignatureTimeField},
			"newest":          {func(s *cloudsim.Signature) { *s = signatureAt(k, now.Add(15*time.Minute)) }, ""},
			"too new":         {func(s *cloudsim.Signature) { *s = signatureAt(k, now.Add(15*time.Minute+time.Second)) }, cloudsim.SignatureTimeField},
		} {
			s := signatureAt(k, now)
			tc.change(&s)
			err := authorize(s)
			if tc.field == "" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			refused, ok := errors.AsType[*cloudsim.Error](err)
			if !ok || refused.Kind != cloudsim.Unauthenticated || len(refused.Fields) != 1 || refused.Fields[0].Field != tc.field {
				t.Errorf("%s: got error %#v, want Unauthenticated with the field %s", name, err, tc.field)
			}
		}
		for _, text := range []string{"sigv4.", "sigv4.x", signatureAt(k, now).Token() + "0", strings.ToUpper(signatureAt(k, now).Token())} {
			if _, err := e.Authorize(t.Context(), engine.Request{Secret: text, Access: engine.Enter}); !errors.Is(err, cloudsim.Unauthenticated) {
				t.Errorf("token %q: got error %v, want Unauthenticated", text, err)
			}
		}
		if err := e.DeleteAccessKey(admin, k.ID); err != nil {
			t.Fatal(err)
		}
		if err := authorize(signatureAt(k, now)); !errors.Is(err, cloudsim.Unauthenticated) {
			t.Errorf("signature of a deleted access key: got error %v, want Unauthenticated", err)
		}
	})
}

// TestSessionToken signs requests with an access key and a session token. The session token is the
// secret of a token that the cloud issued. Token.AccessKey derives the access key from this token.
// The test proves that a signed request has the permissions of the issued token. The engine refuses
// the request if this token has expired or is deleted. It also refuses the request if the access
// key and the session token belong to different issued tokens.
func TestSessionToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		admin := enter(t, e, "secret", engine.DefaultProject)
		account(t, e, admin, "sa", cloudsim.CreateRoleBinding{Role: cloudsim.RoleReader})
		token := must(e.CreateToken(admin, cloudsim.CreateToken{ServiceAccount: "sa", TTLSeconds: 600}))(t)
		other := must(e.CreateToken(admin, cloudsim.CreateToken{ServiceAccount: "sa"}))(t)
		authorize := func(s cloudsim.Signature) (context.Context, error) {
			return e.Authorize(t.Context(), engine.Request{Secret: s.Token(), Operation: "instances.list", Access: engine.Read})
		}
		session := func(of cloudsim.Token) cloudsim.Signature {
			s := signatureAt(of.AccessKey(), time.Now())
			s.SessionToken = of.Secret
			return s
		}
		fails := func(name string, s cloudsim.Signature, field string) {
			t.Helper()
			_, err := authorize(s)
			refused, ok := errors.AsType[*cloudsim.Error](err)
			if !ok || refused.Kind != cloudsim.Unauthenticated || len(refused.Fields) != 1 || refused.Fields[0].Field != field {
				t.Errorf("%s: got error %#v, want Unauthenticated with the field %s", name, err, field)
			}
		}
		ctx, err := authorize(session(token))
		if err != nil {
			t.Fatal(err)
		}
		if me := must(e.WhoAmI(ctx))(t); me.Caller != "sa" || me.ServiceAccount != "sa-000001" || me.Project != "proj-000001" || me.Token != token.ID {
			t.Errorf("caller: got %+v, want the account of the token", me)
		}
		valid := session(token)
		for name, tc := range map[string]struct {
			change func(*cloudsim.Signature)
			field  string
		}{
			"no session token":           {func(s *cloudsim.Signature) { s.SessionToken = "" }, cloudsim.SignatureKeyField},
			"altered session token":      {func(s *cloudsim.Signature) { s.SessionToken += "A" }, cloudsim.SignatureSessionField},
			"session token of another":   {func(s *cloudsim.Signature) { s.SessionToken = other.Secret }, cloudsim.SignatureSessionField},
			"access key of another":      {func(s *cloudsim.Signature) { s.AccessKey = other.AccessKey().ID }, cloudsim.SignatureSessionField},
			"secret of another":          {func(s *cloudsim.Signature) { s.Signature = s.Sign(other.AccessKey().Secret) }, cloudsim.SignatureValueField},
			"session token as secret":    {func(s *cloudsim.Signature) { s.Signature = s.Sign(token.Secret) }, cloudsim.SignatureValueField},
			"other hash":                 {func(s *cloudsim.Signature) { s.Hash = strings.Repeat("0b", 32) }, cloudsim.SignatureValueField},
			"hash of the token's secret": {func(s *cloudsim.Signature) { s.SessionToken = s.Hash }, cloudsim.SignatureSessionField},
		} {
			s := valid
			tc.change(&s)
			fails(name, s, tc.field)
		}
		long := session(other)
		time.Sleep(600*time.Second - time.Nanosecond)
		if _, err := authorize(session(token)); err != nil {
			t.Errorf("before the expiry: %v", err)
		}
		time.Sleep(time.Nanosecond)
		fails("expired session token", session(token), cloudsim.SignatureExpiryField)
		time.Sleep(5*time.Minute + time.Second)
		fails("expired signature", long, cloudsim.SignatureTimeField)
		if err := e.DeleteToken(admin, other.ID); err != nil {
			t.Fatal(err)
		}
		fails("deleted token", session(other), cloudsim.SignatureSessionField)
	})
}
