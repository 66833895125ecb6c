package cloudcli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

func TestResolve(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	create := func(name string) cloudsim.Instance {
		t.Helper()
		i, err := cl.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if _, err := instances.findResource(ctx, cl, "a"); !errors.Is(err, cloudsim.NotFound) || !strings.Contains(err.Error(), "there are no instances") {
		t.Errorf("findResource in an empty cloud: got error %v, want NotFound and \"there are no instances\"", err)
	}
	a := create("a")
	imitator := create(string(a.ID)) // a name that looks like an id
	distant := create("i-000077")    // a name that looks like an unused id

	for arg, want := range map[string]cloudsim.InstanceID{
		"a":                 a.ID,
		string(a.ID):        a.ID, // an id takes precedence over a name
		string(imitator.ID): imitator.ID,
		"i-000077":          distant.ID,
	} {
		if got, err := instances.findResource(ctx, cl, arg); err != nil || got.ID != want {
			t.Errorf("findResource(%q): got %s, error %v, want %s", arg, got.ID, err, want)
		}
	}
	for _, arg := range []string{"i-", "i-9", "..", "a/../a", "?", "a b", strings.Repeat("x", 60)} {
		if got, err := instances.findResource(ctx, cl, arg); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("findResource(%q): got %s, error %v, want NotFound", arg, got.ID, err)
		}
	}
	if _, err := instances.findResource(ctx, cl, ""); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("findResource of an empty name: got error %v, want Invalid", err)
	}
	both, err := instances.resolveAll(ctx, cl, []string{"a", "nobody", string(a.ID), "i-000077", "noone"})
	if len(both) != 2 || !strings.Contains(fmt.Sprint(err), `"nobody"`) || !strings.Contains(fmt.Sprint(err), `"noone"`) {
		t.Errorf("resolveAll: got %d objects, error %v, want 2 objects and an error with \"nobody\" and \"noone\"", len(both), err)
	}

	for n := range 2 * maxHints {
		create(fmt.Sprintf("n%d", n))
	}
	const tenth = cloudsim.InstanceID("i-00000a") // ids are hexadecimal
	if got, err := instances.findResource(ctx, cl, string(tenth)); err != nil || got.ID != tenth {
		t.Errorf("findResource(%q): got %s, error %v, want the instance with this id", tenth, got.ID, err)
	}
	_, err = instances.findResource(ctx, cl, "nobody")
	if got := strings.Count(fmt.Sprint(err), ", "); got != maxHints || !strings.HasSuffix(err.Error(), "…") {
		t.Errorf("error %v contains %d names, want %d and a hint about more objects", err, got, maxHints)
	}
}
