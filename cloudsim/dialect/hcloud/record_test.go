package hcloud_test

import (
	"context"
	"fmt"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	publicKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA8T+Jz40YH6TvGzV3A7h+mR9z5MscGAbn+DTFF8H8v0 me@example"
	otherKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILlWOnbxoxK9eyl4e/vBoGY6k2m1txxQWaDmsoDCJBez"
	createdKey = "My Key"
)

// recordCalls makes the calls for resources that the dialect stores in records.
func recordCalls(t *testing.T, w *world) {
	sshKeyCalls(t, w)
	placementGroupCalls(t, w)
}

func sshKeyCalls(t *testing.T, w *world) {
	ctx := context.Background()
	k, resp, err := w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: createdKey, PublicKey: publicKey + "\n", Labels: map[string]string{"a": "b"}})
	if must(t, k, resp, err); k.Name != createdKey || k.PublicKey != publicKey || len(k.Fingerprint) != 47 || k.Labels["a"] != "b" || k.Created.IsZero() {
		t.Fatalf("SSH key: got %+v", k)
	}
	for field, get := range map[string]func() (*sdk.SSHKey, *sdk.Response, error){
		"id":          func() (*sdk.SSHKey, *sdk.Response, error) { return w.SSHKey.GetByID(ctx, k.ID) },
		"name":        func() (*sdk.SSHKey, *sdk.Response, error) { return w.SSHKey.GetByName(ctx, k.Name) },
		"fingerprint": func() (*sdk.SSHKey, *sdk.Response, error) { return w.SSHKey.GetByFingerprint(ctx, k.Fingerprint) },
	} {
		if one, _, err := get(); err != nil || one == nil || one.ID != k.ID || one.PublicKey != publicKey {
			t.Errorf("SSH key by %s: got %+v, error %v", field, one, err)
		}
	}
	if one, _, err := w.SSHKey.GetByFingerprint(ctx, "00:00"); one != nil || err != nil {
		t.Errorf("SSH key with an unknown fingerprint: got %+v, error %v; want none", one, err)
	}
	_, _, err = w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: createdKey, PublicKey: otherKey})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	_, _, err = w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: "other", PublicKey: publicKey})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	k, resp, err = w.SSHKey.Update(ctx, k, sdk.SSHKeyUpdateOpts{Name: "lower", Labels: map[string]string{"a": "c"}})
	if must(t, k, resp, err); k.Name != "lower" || k.Labels["a"] != "c" || k.PublicKey != publicKey {
		t.Errorf("updated SSH key: got %+v, want the name lower, the label a=c and the same public key", k)
	}
	if one, _, err := w.SSHKey.GetByName(ctx, createdKey); one != nil || err != nil {
		t.Errorf("SSH key by its old name: got %+v, error %v; want none", one, err)
	}
	if all, err := w.SSHKey.AllWithOpts(ctx, sdk.SSHKeyListOpts{Name: "lower", ListOpts: sdk.ListOpts{LabelSelector: "a=c"}}); err != nil || len(all) != 1 {
		t.Errorf("SSH keys: got %v, error %v; want 1", all, err)
	}
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "with-key", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, SSHKeys: []*sdk.SSHKey{k},
	})
	must(t, made, resp, err)
	_, err = w.SSHKey.Delete(ctx, k)
	must(t, 0, nil, err)
	if all, err := w.SSHKey.All(ctx); err != nil || len(all) != 0 {
		t.Errorf("SSH keys after the deletion: got %v, error %v; want none", all, err)
	}
	_, _, err = w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "without-key", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, SSHKeys: []*sdk.SSHKey{k},
	})
	expectError(t, err, sdk.ErrorCodeInvalidInput)
}

func placementGroupCalls(t *testing.T, w *world) {
	ctx := context.Background()
	made, resp, err := w.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "Spread", Type: sdk.PlacementGroupTypeSpread, Labels: map[string]string{"a": "b"}})
	g := must(t, made, resp, err).PlacementGroup
	if g.Name != "Spread" || g.Type != sdk.PlacementGroupTypeSpread || len(g.Servers) != 0 || g.Labels["a"] != "b" || made.Action != nil {
		t.Fatalf("placement group: got %+v", g)
	}
	if k, _, err := w.SSHKey.GetByID(ctx, g.ID); k != nil || err != nil {
		t.Errorf("SSH key with the id of a placement group: got %+v, error %v; want none", k, err)
	}
	server := func(name string) (*sdk.Server, error) {
		made, _, err := w.Server.Create(ctx, sdk.ServerCreateOpts{Name: name, ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, PlacementGroup: g})
		return made.Server, err
	}
	var first *sdk.Server
	for i := range 10 {
		s, err := server(fmt.Sprintf("spread-%d", i))
		if err != nil || s.PlacementGroup == nil || s.PlacementGroup.ID != g.ID {
			t.Fatalf("server in the placement group: got %+v, error %v", s, err)
		}
		if first == nil {
			first = s
		}
	}
	_, err = server("spread-10")
	expectError(t, err, "placement_group_member_limit_reached")
	if g, resp, err = w.PlacementGroup.GetByName(ctx, "Spread"); must(t, g, resp, err) == nil || len(g.Servers) != 10 || g.Servers[0] != first.ID {
		t.Fatalf("placement group: got %+v", g)
	}
	_, err = w.PlacementGroup.Delete(ctx, g)
	expectError(t, err, sdk.ErrorCodeResourceInUse)

	a, resp, err := w.Server.RemoveFromPlacementGroup(ctx, first)
	w.wait(t, a, resp, err)
	_, _, err = w.Server.RemoveFromPlacementGroup(ctx, first)
	expectError(t, err, sdk.ErrorCodePlacementError)
	_, _, err = w.Server.AddToPlacementGroup(ctx, first, g)
	expectError(t, err, sdk.ErrorCodeServerNotStopped)
	a, resp, err = w.Server.Poweroff(ctx, first)
	w.wait(t, a, resp, err)
	_, _, err = w.Server.AddToPlacementGroup(ctx, first, &sdk.PlacementGroup{ID: 4711})
	expectError(t, err, sdk.ErrorCodeInvalidInput)
	a, resp, err = w.Server.AddToPlacementGroup(ctx, first, g)
	w.wait(t, a, resp, err)
	if s, resp, err := w.Server.GetByID(ctx, first.ID); must(t, s, resp, err).PlacementGroup == nil || len(s.PlacementGroup.Servers) != 10 {
		t.Errorf("placement group of the server: got %+v", s.PlacementGroup)
	}
	_, _, err = w.Server.AddToPlacementGroup(ctx, first, g)
	expectError(t, err, sdk.ErrorCodePlacementError)

	for _, id := range g.Servers {
		gone, resp, err := w.Server.DeleteWithResult(ctx, &sdk.Server{ID: id})
		w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	}
	g, resp, err = w.PlacementGroup.Update(ctx, g, sdk.PlacementGroupUpdateOpts{Name: "renamed", Labels: map[string]string{"a": "c"}})
	if must(t, g, resp, err); g.Name != "renamed" || g.Labels["a"] != "c" || len(g.Servers) != 0 {
		t.Errorf("updated placement group: got %+v, want the name renamed, the label a=c and no servers", g)
	}
	if all, err := w.PlacementGroup.AllWithOpts(ctx, sdk.PlacementGroupListOpts{Type: sdk.PlacementGroupTypeSpread}); err != nil || len(all) != 1 {
		t.Errorf("placement groups: got %v, error %v; want 1", all, err)
	}
	if one, resp, err := w.PlacementGroup.GetByID(ctx, g.ID); must(t, one, resp, err) == nil || one.Name != "renamed" {
		t.Errorf("placement group by id: got %+v", one)
	}
	_, err = w.PlacementGroup.Delete(ctx, g)
	must(t, 0, nil, err)
	all, _, err := cloudsim.All(ctx, w.cloud.ListRecords, cloudsim.ListOptions{})
	if err != nil || len(all) != 0 {
		t.Errorf("records after the deletions: got %v, error %v; want none", all, err)
	}
}
