package client_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// everyIdentityVerb is a part of TestEveryVerb. It calls the operations of notices, user data,
// identity documents and signing keys.
func everyIdentityVerb(t *testing.T, c *client.Client, i cloudsim.Instance) {
	t.Helper()
	ctx := t.Context()
	if i = must(c.AnnounceNotice(ctx, i.ID, cloudsim.CreateNotice{Type: cloudsim.NoticeMaintenance, InSeconds: 3600}))(t); len(i.Notices) != 1 {
		t.Errorf("notices after the announcement: got %+v, want 1", i.Notices)
	}
	if i = must(c.WithdrawNotice(ctx, i.ID, cloudsim.NoticeMaintenance))(t); len(i.Notices) != 0 {
		t.Errorf("notices after the withdrawal: got %+v, want 0", i.Notices)
	}
	if _, err := c.WithdrawNotice(ctx, i.ID, "rain"); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("withdrawal of an unknown notice type: got error %v, want Invalid", err)
	}
	if d := must(c.GetUserData(ctx, i.ID))(t); d.UserData != "" {
		t.Errorf("user data: got %+v, want none", d)
	}
	if doc := must(c.CreateIdentityDocument(ctx, i.ID, cloudsim.CreateIdentityDocument{Audience: "a"}))(t); doc.Token == "" || doc.ExpiresAt.IsZero() {
		t.Errorf("identity document: got %+v, want a token and an expiry", doc)
	}
	k := must(c.RotateSigningKey(ctx, cloudsim.RotateSigningKey{Use: cloudsim.KeyIdentity, OverlapSeconds: 60}))(t)
	must(c.GetSigningKey(ctx, k.ID))(t)
	for _, k := range must(c.ListSigningKeys(ctx, cloudsim.ListOptions{}))(t).Items {
		if k.State == cloudsim.SigningKeyRetiring {
			if err := c.DeleteSigningKey(ctx, k.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if set := must(c.KeySet(ctx))(t); len(set.Keys) != 2 {
		t.Errorf("key set: got %s, want 2 keys", set.Keys)
	}
}
