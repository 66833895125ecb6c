// Package providerid defines the format of node.spec.providerID. The format must never change,
// because the field is immutable in Kubernetes and existing nodes keep their ids.
package providerid

import (
	"fmt"
	"strconv"
	"strings"
)

// Scheme is the name of the cloud provider and the scheme of its ids.
const Scheme = "cloudsim"

// ID identifies an instance and its location.
type ID struct {
	Region, Zone, Instance string
}

// String returns cloudsim://REGION/ZONE/INSTANCE, e.g.
// cloudsim://sim-1/sim-1a/i-000001.
func (id ID) String() string {
	return Scheme + "://" + id.Region + "/" + id.Zone + "/" + id.Instance
}

// Foreign is the error for an id of another provider. From this error, the caller must not conclude
// that the instance is absent.
type Foreign struct{ ProviderID string }

func (f Foreign) Error() string {
	return fmt.Sprintf("provider id %q does not belong to this cloud: want %s://REGION/ZONE/INSTANCE", f.ProviderID, Scheme)
}

// Parse parses an id. It returns Foreign for an id with another scheme, and
// another error for a damaged id of this scheme. These errors say nothing about
// the existence of the instance.
func Parse(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, Scheme+"://")
	if !ok {
		return ID{}, Foreign{s}
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return ID{}, fmt.Errorf("provider id %q is not valid: want %s://REGION/ZONE/INSTANCE", s, Scheme)
	}
	return ID{Region: parts[0], Zone: parts[1], Instance: parts[2]}, nil
}

// Same reports whether nodeID, the provider id of a Node, identifies the instance with the provider
// id ownID. Same returns true if nodeID is equal to ownID. It also returns true if nodeID is the id
// of this instance in the format of Hetzner Cloud or AWS. The cloud controller managers of these
// clouds write this format when they run against this cloud. For example, hcloud://42 (decimal) and
// aws:///sim-1a/i-0000000000000002a (hexadecimal) identify the instance i-00002a in the zone
// sim-1a.
func Same(nodeID, ownID string) bool {
	if nodeID == ownID {
		return true
	}
	id, err := Parse(ownID)
	if err != nil {
		return false
	}
	_, hex, _ := strings.Cut(id.Instance, "-")
	n, err := strconv.ParseInt(hex, 16, 64)
	return err == nil && (nodeID == fmt.Sprintf("hcloud://%d", n) || nodeID == fmt.Sprintf("aws:///%s/i-%017x", id.Zone, n))
}
