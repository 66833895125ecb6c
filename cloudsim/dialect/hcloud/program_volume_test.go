package hcloud_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// modelVolume contains the values that a volume should have: the size in GiB, and the id of the
// server to which the volume is attached. The id is 0 if the volume is not attached.
type modelVolume struct {
	id     int64
	size   int
	server int64
}

// TestRandomVolumeCalls makes random calls for volumes. After each call, it compares the error and
// all volumes with a model.
func TestRandomVolumeCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var servers []*sdk.Server
	for i := range 3 {
		servers = append(servers, w.server(t, w.instance(t, fmt.Sprintf("node-%d", i))))
	}
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a repeatable test
	model := map[string]*modelVolume{}
	for step := range 250 {
		name := fmt.Sprintf("Volume %d", rng.IntN(4))
		have, s := model[name], servers[rng.IntN(len(servers))]
		size := 10 + rng.IntN(40)
		var want sdk.ErrorCode
		var err error
		op := rng.IntN(5)
		switch {
		case op == 0:
			var made sdk.VolumeCreateResult
			made, _, err = w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: name, Size: size, Location: s.Location})
			if want = sdk.ErrorCodeUniquenessError; have == nil {
				want = ""
				model[name] = &modelVolume{id: made.Volume.ID, size: size}
			}
		case have == nil:
			want = sdk.ErrorCodeNotFound
			_, _, err = w.Volume.Resize(ctx, &sdk.Volume{ID: 4711}, size)
		case op == 1:
			if want = sdk.ErrorCodeVolumeAlreadyAttached; have.server == 0 {
				want, have.server = "", s.ID
			}
			_, _, err = w.Volume.Attach(ctx, &sdk.Volume{ID: have.id}, s)
		case op == 2:
			if want = sdk.ErrorCodeServiceError; have.server != 0 {
				want, have.server = "", 0
			}
			_, _, err = w.Volume.Detach(ctx, &sdk.Volume{ID: have.id})
		case op == 3:
			if want = sdk.ErrorCodeInvalidInput; size > have.size {
				want, have.size = "", size
			}
			_, _, err = w.Volume.Resize(ctx, &sdk.Volume{ID: have.id}, size)
		default:
			if want = sdk.ErrorCodeLocked; have.server == 0 {
				want = ""
				delete(model, name)
			}
			_, err = w.Volume.Delete(ctx, &sdk.Volume{ID: have.id})
		}
		if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
			t.Fatalf("step %d, operation %d on volume %q: got error %v, want code %q", step, op, name, err, want)
		}
		all, err := w.Volume.All(ctx)
		if err != nil || len(all) != len(model) {
			t.Fatalf("step %d: got %d volumes, error %v; want %d", step, len(all), err, len(model))
		}
		for _, v := range all {
			m := model[v.Name]
			if m == nil || v.ID != m.id || v.Size != m.size || (v.Server == nil) != (m.server == 0) || v.Server != nil && v.Server.ID != m.server {
				t.Fatalf("step %d: got volume %+v, want %+v", step, v, m)
			}
		}
	}
}
