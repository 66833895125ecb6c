package hcloud_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// modelServer contains the values that a server should have. The value of group is the id of the
// server's placement group, or 0 if the server has none.
type modelServer struct {
	id, group int64
	on        bool
	label     string
}

// TestRandomServerCalls makes random calls for servers and their placement groups. After each call,
// it compares the error, all servers and all placement groups with a model.
func TestRandomServerCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var groups []*sdk.PlacementGroup
	for i := range 2 {
		made, resp, err := w.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: fmt.Sprintf("Group %d", i), Type: sdk.PlacementGroupTypeSpread})
		groups = append(groups, must(t, made, resp, err).PlacementGroup)
	}
	rng := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // a repeatable test
	model := map[string]*modelServer{}
	for step := range 200 {
		name := fmt.Sprintf("Server-%d", rng.IntN(4))
		have, g := model[name], groups[rng.IntN(len(groups))]
		op := rng.IntN(7)
		want, err := serverStep(ctx, w, op, name, have, g, rng.IntN(5), model)
		if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
			t.Fatalf("step %d, operation %d on server %q: got error %v, want code %q", step, op, name, err, want)
		}
		all, err := w.Server.All(ctx)
		if err != nil || len(all) != len(model) {
			t.Fatalf("step %d: got %d servers, error %v; want %d", step, len(all), err, len(model))
		}
		members := map[int64][]int64{}
		for _, s := range all {
			m := model[s.Name]
			if m == nil || s.ID != m.id || (s.Status == sdk.ServerStatusRunning) != m.on || s.Labels["n"] != m.label || (s.PlacementGroup == nil) != (m.group == 0) || s.PlacementGroup != nil && s.PlacementGroup.ID != m.group {
				t.Fatalf("step %d: got server %+v, want %+v", step, s, m)
			}
			members[m.group] = append(members[m.group], s.ID)
		}
		for _, g := range groups {
			if got, resp, err := w.PlacementGroup.GetByID(ctx, g.ID); !slices.Equal(must(t, got, resp, err).Servers, members[g.ID]) {
				t.Fatalf("step %d: got group %+v, want servers %v", step, got, members[g.ID])
			}
		}
	}
}

// serverStep makes one call, and makes the same changes in the model that the call should make in
// the cloud. It returns the code of the expected error, and the error of the call.
func serverStep(ctx context.Context, w *world, op int, name string, have *modelServer, g *sdk.PlacementGroup, n int, model map[string]*modelServer) (want sdk.ErrorCode, err error) {
	if op == 0 {
		opts := sdk.ServerCreateOpts{Name: name, ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}}
		m := modelServer{on: true}
		if n > 2 {
			opts.PlacementGroup, m.group = g, g.ID
		}
		made, _, err := w.Server.Create(ctx, opts)
		if have != nil {
			return sdk.ErrorCodeUniquenessError, err
		}
		if err == nil {
			m.id = made.Server.ID
			model[name] = &m
		}
		return "", err
	}
	if have == nil {
		_, _, err = w.Server.DeleteWithResult(ctx, &sdk.Server{ID: 4711})
		return sdk.ErrorCodeNotFound, err
	}
	s := &sdk.Server{ID: have.id}
	switch op {
	case 1:
		have.on = true
		_, _, err = w.Server.Poweron(ctx, s)
	case 2, 3:
		have.on = false
		_, _, err = w.Server.Poweroff(ctx, s)
	case 4:
		have.label = strconv.Itoa(n)
		_, _, err = w.Server.Update(ctx, s, sdk.ServerUpdateOpts{Labels: map[string]string{"n": have.label}})
	case 5:
		switch {
		case have.group != 0:
			want = sdk.ErrorCodePlacementError
		case have.on:
			want = sdk.ErrorCodeServerNotStopped
		default:
			have.group = g.ID
		}
		_, _, err = w.Server.AddToPlacementGroup(ctx, s, g)
	default:
		if n == 0 {
			delete(model, name)
			_, _, err = w.Server.DeleteWithResult(ctx, s)
			return "", err
		}
		if have.group == 0 {
			want = sdk.ErrorCodePlacementError
		}
		have.group = 0
		_, _, err = w.Server.RemoveFromPlacementGroup(ctx, s)
	}
	return want, err
}

// TestRandomSSHKeyCalls makes random calls for SSH keys. After each call, it compares the error and
// all SSH keys with a model.
func TestRandomSSHKeyCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	rng := rand.New(rand.NewPCG(5, 5)) //nolint:gosec // a repeatable test
	type key struct {
		id     int64
		public string
	}
	model := map[string]key{}
	for step := range 150 {
		name, other := fmt.Sprintf("Key %d", rng.IntN(3)), fmt.Sprintf("Key %d", rng.IntN(3))
		public := []string{publicKey, otherKey}[rng.IntN(2)]
		have, exists := model[name]
		used := false
		for _, k := range model {
			used = used || k.public == public
		}
		var want sdk.ErrorCode
		var err error
		switch op := rng.IntN(4); {
		case op < 2:
			var made *sdk.SSHKey
			made, _, err = w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: name, PublicKey: public})
			if want = sdk.ErrorCodeUniquenessError; !exists && !used && err == nil {
				want, model[name] = "", key{made.ID, public}
			}
		case !exists:
			want = sdk.ErrorCodeNotFound
			_, err = w.SSHKey.Delete(ctx, &sdk.SSHKey{ID: 4711})
		case op == 2:
			_, taken := model[other]
			if want = sdk.ErrorCodeUniquenessError; !taken || other == name {
				want = ""
				delete(model, name)
				model[other] = have
			}
			_, _, err = w.SSHKey.Update(ctx, &sdk.SSHKey{ID: have.id}, sdk.SSHKeyUpdateOpts{Name: other})
		default:
			delete(model, name)
			_, err = w.SSHKey.Delete(ctx, &sdk.SSHKey{ID: have.id})
		}
		if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
			t.Fatalf("step %d on key %q: got error %v, want code %q", step, name, err, want)
		}
		all, err := w.SSHKey.All(ctx)
		if err != nil || len(all) != len(model) {
			t.Fatalf("step %d: got keys %v, error %v; want %v", step, all, err, model)
		}
		for _, k := range all {
			if m := model[k.Name]; m.id != k.ID || m.public != k.PublicKey {
				t.Fatalf("step %d: got key %+v, want %+v", step, k, m)
			}
		}
	}
}
