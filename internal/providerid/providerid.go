// Package providerid is the format of node.spec.providerID, for ever. It must
// not be changed: the field is immutable in Kubernetes, so every node that was
// ever initialised carries it as it was then.
package providerid

import (
	"fmt"
	"strings"
)

// Scheme is the cloud provider's name, and what its ids begin with.
const Scheme = "cloudsim"

// ID is where an instance is, and which one it is.
type ID struct {
	Region, Zone, Instance string
}

// String is cloudsim://REGION/ZONE/INSTANCE, e.g. cloudsim://sim-1/sim-1a/i-000001.
func (id ID) String() string {
	return Scheme + "://" + id.Region + "/" + id.Zone + "/" + id.Instance
}

// Foreign is the error for an id of another provider: its node is not ours to
// judge, so it is neither present nor absent.
type Foreign struct{ ProviderID string }

func (f Foreign) Error() string {
	return fmt.Sprintf("provider id %q is not of this cloud: want %s://REGION/ZONE/INSTANCE", f.ProviderID, Scheme)
}

// Parse reads an id. It returns Foreign for one of another scheme, and a plain
// error for one of ours that is damaged; neither means that the instance is
// absent.
func Parse(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, Scheme+"://")
	if !ok {
		return ID{}, Foreign{s}
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return ID{}, fmt.Errorf("provider id %q is damaged: want %s://REGION/ZONE/INSTANCE", s, Scheme)
	}
	return ID{Region: parts[0], Zone: parts[1], Instance: parts[2]}, nil
}
