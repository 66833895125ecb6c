package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// callAffected makes a call that the faults of a preset affect. It returns true if the faults
// had the expected effect on the call.
type callAffected func(ctx context.Context, c *client.Client) (saw bool, err error)

func refused(with cloudsim.Kind, call func(ctx context.Context, c *client.Client) error) callAffected {
	return func(ctx context.Context, c *client.Client) (bool, error) {
		err := call(ctx, c)
		return errors.Is(err, with), err
	}
}

func createB(ctx context.Context, c *client.Client) error {
	_, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "b", Zone: cloudsim.PresetZone, Type: "small"})
	return err
}

func getA(ctx context.Context, c *client.Client) error {
	_, err := c.GetInstance(ctx, "i-000001")
	return err
}

// doneAll returns a function that calls makeChange. The returned function checks that makeChange
// returns an error of the given kind, although the cloud has made the change. After the change,
// the cloud must have the given number of instances.
func doneAll(with cloudsim.Kind, makeChange func(context.Context, *client.Client) error, instances int) callAffected {
	return func(ctx context.Context, c *client.Client) (bool, error) {
		err := makeChange(ctx, c)
		l, lerr := c.ListInstances(ctx, cloudsim.ListOptions{})
		return errors.Is(err, with) && lerr == nil && len(l.Items) == instances, errors.Join(err, lerr)
	}
}

// effectChecks contains a check of the expected effect for each preset. The cloud of the
// test has an instance with the name "a", and a disk is attached to this instance.
var effectChecks = map[string]callAffected{
	"slow-cloud": func(ctx context.Context, c *client.Client) (bool, error) {
		begin := time.Now()
		err := getA(ctx, c)
		return time.Since(begin) >= 500*time.Millisecond, err
	},
	"flapping-not-found":  refused(cloudsim.NotFound, getA),
	"born-tainted":        refused(cloudsim.Unavailable, getA),
	"thundering-describe": refused(cloudsim.Exhausted, getA),
	"cloud-down":          refused(cloudsim.Unavailable, getA),
	"zone-api-down":       refused(cloudsim.Unavailable, getA),
	"zone-down":           refused(cloudsim.Unavailable, getA),
	"zone-stockout":       refused(cloudsim.Exhausted, createB),
	"quota-hit":           refused(cloudsim.Exhausted, createB),
	"lost-reply":          doneAll(cloudsim.Unavailable, createB, 2),
	"crash-mid-create":    doneAll(cloudsim.Internal, createB, 2),
	"crash-mid-delete": doneAll(cloudsim.Internal, func(ctx context.Context, c *client.Client) error {
		_, err := c.DeleteInstance(ctx, "i-000001")
		return err
	}, 0),
	"ghost-node": refused(cloudsim.NotFound, func(ctx context.Context, c *client.Client) error {
		if err := createB(ctx, c); err != nil {
			return err
		}
		_, err := c.GetInstance(ctx, "i-000002")
		return err
	}),
	"stopped-is-not-deleted": refused(cloudsim.Exhausted, func(ctx context.Context, c *client.Client) error {
		if _, err := c.StopInstance(ctx, "i-000001"); err != nil {
			return err
		}
		_, err := c.StartInstance(ctx, "i-000001")
		return err
	}),
	"twice": func(ctx context.Context, c *client.Client) (bool, error) {
		err := createB(ctx, c)
		l, lerr := c.ListInstances(ctx, cloudsim.ListOptions{})
		return lerr == nil && len(l.Items) == 2, errors.Join(err, lerr) // the instances a and b: the repeated create finds the name b and creates no other instance
	},
	"multi-attach": func(ctx context.Context, c *client.Client) (bool, error) {
		d, err := c.DetachDisk(ctx, "disk-000001", cloudsim.DetachDisk{Instance: "i-000001"})
		return d.State == cloudsim.DiskDetaching, err // without the fault the disk is detached at once
	},
	"expired-token": func(ctx context.Context, c *client.Client) (bool, error) {
		tok, err := c.CreateToken(ctx, cloudsim.CreateToken{Name: "t", Role: cloudsim.RoleReader})
		if err != nil {
			return false, err
		}
		as := *c
		as.Token = client.StaticToken(tok.Secret)
		err = getA(ctx, &as)
		return errors.Is(err, cloudsim.Unauthenticated), err
	},
	"zone-dark": func(ctx context.Context, c *client.Client) (bool, error) {
		z, err := c.GetZone(ctx, cloudsim.PresetZone)
		return z.Dark() && getA(ctx, c) == nil, err
	},
}

// TestEveryPreset proves that each preset has its expected effect. It also proves that
// ListInstances succeeds after the deletion of the preset's faults. The test repeats the calls,
// because some faults hit only a few calls.
func TestEveryPreset(t *testing.T) {
	for _, p := range cloudsim.FaultPresets() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			c, ctx := cloudtest.Start(t, cloudtest.WithSeed(7)), t.Context()
			must(c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: cloudsim.PresetZone, Type: "small"}))(t)
			must(c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "d", Zone: cloudsim.PresetZone, Type: "balanced", SizeGiB: 1}))(t)
			must(c.AttachDisk(ctx, "disk-000001", cloudsim.AttachDisk{Instance: "i-000001"}))(t)
			var faults []cloudsim.FaultID
			for _, f := range p.Faults {
				faults = append(faults, must(c.CreateFault(ctx, f))(t).ID)
			}
			look := effectChecks[p.Name]
			if look == nil {
				t.Fatal("the test has no check for this preset")
			}
			saw, err := false, error(nil)
			for tries := 0; tries < 60 && !saw; tries++ {
				saw, err = look(ctx, c)
			}
			if !saw {
				t.Errorf("the preset has no visible effect: last error %v", err)
			}
			for _, id := range faults {
				if err := c.DeleteFault(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.ListInstances(ctx, cloudsim.ListOptions{}); err != nil {
				t.Errorf("list after the preset ended: got error %v", err)
			}
		})
	}
}
