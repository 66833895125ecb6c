package providerid_test

import (
	"testing"

	"github.com/cloudsim-dev/allinone/internal/providerid"
)

func TestSame(t *testing.T) {
	const own = "cloudsim://sim-1/sim-1a/i-00002a"
	for node, want := range map[string]bool{
		own: true, "hcloud://42": true, "hcloud://2a": false, "hcloud://43": false, "hcloud://042": false,
		"cloudsim://sim-1/sim-1a/i-00002b": false, "": false,
		"aws:///sim-1a/i-0000000000000002a": true, "aws:///sim-1b/i-0000000000000002a": false, "aws:///sim-1a/i-00002a": false,
	} {
		if got := providerid.Same(node, own); got != want {
			t.Errorf("Same(%q) = %v", node, got)
		}
	}
	if providerid.Same("hcloud://0", "cloudsim://a/b/c") || providerid.Same("hcloud://0", "x") {
		t.Error("an id without a number is the same as another id")
	}
}
