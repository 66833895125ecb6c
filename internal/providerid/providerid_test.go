package providerid_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// The format of provider ids must not change, because existing Nodes contain ids in this format.
func TestFormatDoesNotChange(t *testing.T) {
	const wire = "cloudsim://sim-1/sim-1a/i-000001"
	id := providerid.ID{Region: "sim-1", Zone: "sim-1a", Instance: "i-000001"}
	if id.String() != wire {
		t.Errorf("String = %q, want %q", id, wire)
	}
	if got, err := providerid.Parse(wire); err != nil || got != id {
		t.Errorf("Parse = %v, %v; want %v", got, err, id)
	}
}

func TestParseRefuses(t *testing.T) {
	for in, foreign := range map[string]bool{
		"":                               true,
		"aws:///us-east-1a/i-0abc":       true,
		"kind://docker/kind/worker":      true,
		"cloudsimx://a/b/c":              true,
		"cloudsim://":                    false,
		"cloudsim://sim-1/sim-1a":        false,
		"cloudsim://sim-1/sim-1a/":       false,
		"cloudsim:///sim-1a/i-000001":    false,
		"cloudsim://sim-1/sim-1a/i-1/x":  false,
		"cloudsim:/sim-1/sim-1a/i-00001": true,
	} {
		_, err := providerid.Parse(in)
		if err == nil {
			t.Errorf("Parse(%q) accepted", in)
			continue
		}
		if _, is := errors.AsType[providerid.Foreign](err); is != foreign {
			t.Errorf("Parse(%q) = %v; foreign %v, want %v", in, err, is, foreign)
		}
	}
}
