package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

func everyClockVerb(t *testing.T, c *client.Client) {
	ctx := t.Context()
	if k := must(c.GetClock(ctx))(t); k.Mode != cloudsim.ClockReal || k.Rate != 1 {
		t.Errorf("clock of a new cloud: got %+v, want real with rate 1", k)
	}
	at := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	if k := must(c.SetClock(ctx, cloudsim.SetClock{Time: &at, Rate: new(0.0)}))(t); k.Mode != cloudsim.ClockFrozen || !k.Now.Equal(at) {
		t.Errorf("frozen clock: got %+v, want mode frozen at 2040-01-01", k)
	}
	if k := must(c.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 1.5}))(t); !k.Now.Equal(at.Add(1500 * time.Millisecond)) {
		t.Errorf("advanced clock: got %+v, want 1.5s later", k)
	}
	if k := must(c.SetClock(ctx, cloudsim.SetClock{Real: true}))(t); k.Mode != cloudsim.ClockReal || k.AheadSeconds != 0 {
		t.Errorf("clock set to real time: got %+v, want mode real, 0s ahead", k)
	}
}

// TestTokenExpiryUsesCloudClock proves that the cloud's clock decides when a token expires, even if
// this clock is frozen or jumps.
func TestTokenExpiryUsesCloudClock(t *testing.T) {
	c, ctx := cloudtest.Start(t, cloudtest.WithFrozenClock(time.Time{})), t.Context()
	tok := must(c.CreateToken(ctx, cloudsim.CreateToken{Name: "brief", Role: cloudsim.RoleReader, TTLSeconds: 3600}))(t)
	brief := *c
	brief.Token = client.StaticToken(tok.Secret)
	if _, err := c.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 3599}); err != nil {
		t.Fatal(err)
	}
	must(brief.ListZones(ctx, cloudsim.ListOptions{}))(t)
	if _, err := c.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := brief.ListZones(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("list after the token expired: got error %v, want Unauthenticated", err)
	}
}

// TestBadClock proves that the error for an invalid request names the invalid field. It also proves
// that the clock cannot advance beyond the latest time that the cloud allows.
func TestBadClock(t *testing.T) {
	c, ctx := cloudtest.Start(t, cloudtest.WithFrozenClock(time.Time{})), t.Context()
	early := time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, req := range map[string]cloudsim.SetClock{
		"real":         {Real: true, Rate: new(1.0)},
		"rate":         {Rate: new(-1.0)},
		"time":         {Time: &early},
		"aheadSeconds": {AheadSeconds: new(1e18)},
	} {
		_, err := c.SetClock(ctx, req)
		e, _ := errors.AsType[*cloudsim.Error](err)
		if e == nil || e.Kind != cloudsim.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != want {
			t.Errorf("got error %v, want Invalid with the field %s", err, want)
		}
	}
	for range 25 { // ten years each, until the clock reaches its end
		if _, err := c.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: cloudsim.MaxClockAdvance.Seconds()}); err != nil {
			if !errors.Is(err, cloudsim.Invalid) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("got 25 successful calls of AdvanceClock, want an error at the latest time of the clock")
}
