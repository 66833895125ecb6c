package client_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestEveryIdentityVerb calls every operation of service accounts, roles and role bindings through
// the client and the HTTP API.
func TestEveryIdentityVerb(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	a := must(c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "ci"}))(t)
	must(c.GetServiceAccount(ctx, a.ID))(t)
	must(c.ListServiceAccounts(ctx, cloudsim.ListOptions{}))(t)
	r := must(c.CreateRole(ctx, cloudsim.CreateRole{Name: "looker", Permissions: []cloudsim.Permission{"instances.get"}}))(t)
	must(c.GetRole(ctx, cloudsim.RoleName(r.Name)))(t)
	if l := must(c.ListRoles(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != len(cloudsim.PredefinedRoles())+1 {
		t.Errorf("roles: got %+v, want the predefined roles and 1 role more", l.Items)
	}
	b := must(c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "b", Role: "looker", ServiceAccount: "ci", Resource: "web"}))(t)
	must(c.GetRoleBinding(ctx, b.ID))(t)
	must(c.ListRoleBindings(ctx, cloudsim.ListOptions{}))(t)
	tok := must(c.CreateToken(ctx, cloudsim.CreateToken{ServiceAccount: "ci"}))(t)

	as := *c
	as.Token, as.Project = client.StaticToken(tok.Secret), ""
	if me := must(as.WhoAmI(ctx))(t); me.Caller != "ci" || me.ServiceAccount != a.ID || len(me.Grants) != 1 || me.Grants[0].Resource != "web" {
		t.Errorf("whoami: got %+v, want caller ci with 1 grant for web", me)
	}
	k := must(c.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: "ci"}))(t)
	if got := must(c.GetAccessKey(ctx, k.ID))(t); got.Secret != "" || got.ServiceAccount != a.ID {
		t.Errorf("access key: got %+v, want the account and no secret", got)
	}
	if l := must(c.ListAccessKeys(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 || l.Items[0].Secret != "" || l.Items[0].StoredSecret != "" {
		t.Errorf("access keys: got %+v, want 1 without a secret", l.Items)
	}
	if err := c.DeleteAccessKey(ctx, k.ID); err != nil {
		t.Error(err)
	}
	web, db := must(c.CreateInstance(ctx, instance("web")))(t), must(c.CreateInstance(ctx, instance("db")))(t)
	must(as.GetInstance(ctx, web.ID))(t)
	for name, err := range map[string]error{
		"another":   second(as.GetInstance(ctx, db.ID)),
		"a list":    second(as.ListInstances(ctx, cloudsim.ListOptions{})),
		"elsewhere": second(as.ListTokens(ctx, cloudsim.ListOptions{})),
	} {
		if !errors.Is(err, cloudsim.Denied) {
			t.Errorf("%s: got error %v, want Denied", name, err)
		}
	}
	if err := errors.Join(c.DeleteRoleBinding(ctx, b.ID), c.DeleteRole(ctx, cloudsim.RoleName(r.Name)), c.DeleteServiceAccount(ctx, a.ID)); err != nil {
		t.Error(err)
	}
	if _, err := as.WhoAmI(ctx); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("whoami after the deletion of the account: got error %v, want Unauthenticated", err)
	}
}

func TestEveryQuotaVerb(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	one := int64(1)
	if q := must(c.SetQuota(ctx, cloudsim.QuotaInstances, cloudsim.SetQuota{Limit: &one}))(t); q.Limit != 1 || *q.Used != 0 {
		t.Errorf("quota: got %+v, want limit 1 and 0 used", q)
	}
	must(c.CreateInstance(ctx, instance("a")))(t)
	if _, err := c.CreateInstance(ctx, instance("b")); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("instance beyond the quota: got error %v, want Exhausted", err)
	}
	if all := must(c.ListQuotas(ctx))(t); len(all) != len(cloudsim.QuotaNames()) {
		t.Errorf("quotas: got %+v, want every quota", all)
	}
}

func second[T any](_ T, err error) error { return err }
