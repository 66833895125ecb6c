package main

import (
	"context"
	"errors"
	"regexp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// targetLists are where resources are listed that a hold or a fault may be for,
// and that have an id beside their name.
var targetLists = map[cloudsim.ResourceKind]string{
	cloudsim.KindInstance: "/v1/instances", cloudsim.KindLoadBalancer: "/v1/load-balancers", cloudsim.KindAddress: "/v1/addresses",
	cloudsim.KindDisk: "/v1/disks", cloudsim.KindSnapshot: "/v1/snapshots", cloudsim.KindSnapshotGroup: "/v1/snapshot-groups",
	cloudsim.KindNetwork: "/v1/networks", cloudsim.KindSubnet: "/v1/subnets", cloudsim.KindRoute: "/v1/routes",
	cloudsim.KindServiceAccount: "/v1/service-accounts", cloudsim.KindProject: "/v1/projects",
}

// anyID is what ids look like, of whatever kind.
var anyID = regexp.MustCompile(`^[a-z]+-[0-9a-f]{6,}$`)

// targetID is the id of the resource that the target of a hold or a fault names.
// of is its kind, or the plural of that, as in an operation. What looks like an id
// and is no name is one: a target need not be there yet. The name of what is to be
// made stays what it is.
func targetID(ctx context.Context, cl *client.Client, of, word string, later map[string]bool) (string, error) {
	kind, known := parseKind(of)
	path, listed := targetLists[kind]
	switch {
	case word == "" || !known && anyID.MatchString(word) || known && !listed || later[path+" "+word]:
		return word, nil
	case !known:
		return "", cloudsim.Errorf(cloudsim.NotFound, "target %q must be an id, as it may be of any kind", word)
	}
	found, err := named(ctx, cl, path, word)
	if err != nil {
		return "", err
	}
	id, ok := found["id"].(string)
	if anyID.MatchString(word) {
		_, err := cl.Raw(ctx, "GET", path+"/"+word, nil)
		if ok && errors.Is(err, cloudsim.NotFound) {
			return id, nil
		}
		return word, nil
	}
	if !ok {
		return "", cloudsim.Errorf(cloudsim.NotFound, "no %s is called %q", kind, word)
	}
	return id, nil
}
