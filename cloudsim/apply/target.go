package apply

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// targetLists maps a kind of target to the API path that lists the resources of this kind. For a
// kind without an entry, such as zone, TargetID returns nameOrID itself.
var targetLists = map[cloudsim.ResourceKind]string{
	cloudsim.KindInstance: "/v1/instances", cloudsim.KindLoadBalancer: "/v1/load-balancers", cloudsim.KindAddress: "/v1/addresses",
	cloudsim.KindDisk: "/v1/disks", cloudsim.KindSnapshot: "/v1/snapshots", cloudsim.KindSnapshotGroup: "/v1/snapshot-groups",
	cloudsim.KindNetwork: "/v1/networks", cloudsim.KindSubnet: "/v1/subnets", cloudsim.KindRoute: "/v1/routes",
	cloudsim.KindRecord: "/v1/records", cloudsim.KindServiceAccount: "/v1/service-accounts", cloudsim.KindProject: "/v1/projects",
	cloudsim.KindRepository: "/v1/repositories", cloudsim.KindToken: "/v1/tokens", cloudsim.KindAccessKey: "/v1/access-keys",
	cloudsim.KindSigningKey: "/v1/signing-keys", cloudsim.KindWorkloadTrust: "/v1/workload-trusts", cloudsim.KindRoleBinding: "/v1/role-bindings",
	cloudsim.KindOperation: "/v1/operations", cloudsim.KindFault: "/v1/faults", cloudsim.KindHold: "/v1/holds",
}

var anyID = regexp.MustCompile(`^[a-z]+-[0-9a-f]{6,}$`)

// TargetID returns the id of the target of a hold or a fault. The parameter kindName is the kind of
// the target, in the singular or in the plural. The parameter nameOrID is the name or the id of the
// target. The keys of plannedNames contain the API path and the name of each resource that a later
// call will create, e.g. "/v1/disks data".
//   - If nameOrID is an id, TargetID returns this id. The resource need not exist.
//   - If nameOrID is the name of a resource of this kind, TargetID returns the id of the resource.
//   - If plannedNames contains the target, TargetID returns the name, because the resource has no
//     id yet.
//   - If nameOrID is another name, TargetID returns NotFound. If kindName is unknown, TargetID
//     cannot search for a name, so it returns NotFound for every name.
func TargetID(ctx context.Context, cl *client.Client, kindName, nameOrID string, plannedNames map[string]bool) (string, error) {
	kind, known := ParseKind(kindName)
	path, listed := targetLists[kind]
	switch {
	case nameOrID == "" || !known && anyID.MatchString(nameOrID) || known && !listed || plannedNames[path+" "+nameOrID]:
		return nameOrID, nil
	case !known:
		return "", cloudsim.Errorf(cloudsim.NotFound, "target %q must be an id: a name is possible only if the kind of a hold, or the operation of a fault, names one kind of resource", nameOrID)
	}
	found, err := findByName(ctx, cl, path, nameOrID)
	if err != nil {
		return "", err
	}
	id, ok := found["id"].(string)
	if anyID.MatchString(nameOrID) {
		if !ok {
			return nameOrID, nil
		}
		_, err := cl.Do(ctx, "GET", path+"/"+nameOrID, nil)
		if errors.Is(err, cloudsim.NotFound) {
			return id, nil
		}
		return nameOrID, err
	}
	if !ok {
		return "", cloudsim.Errorf(cloudsim.NotFound, "no %s named %q", kind, nameOrID)
	}
	return id, nil
}

// ParseKind parses the name of a kind in common spellings, such as load-balancer and
// loadbalancers for loadBalancer. It returns false for an unknown name.
func ParseKind(word string) (cloudsim.ResourceKind, bool) {
	plain := strings.ToLower(strings.ReplaceAll(word, "-", ""))
	for _, k := range cloudsim.ResourceKinds() {
		name := strings.ToLower(string(k))
		if plain == name || plain == name+"s" || plain == name+"es" {
			return k, true
		}
	}
	return "", false
}
