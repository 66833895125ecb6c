package hcloud

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// placementGroups describes the records that store placement groups. A placement group has no
// effect: each instance of this cloud is a separate machine, so the servers of a group always run
// on different machines.
var placementGroups = recordKind[placementGroup]{kind: "hcloud-placement-group", one: "placement_group", show: showPlacementGroups}

// labelPlacementGroup is a label of servers. Its value is the id of the record that stores the
// placement group of the server.
const labelPlacementGroup = dialect.LabelPrefix + "placement-group"

// maxMembers is the maximum number of servers in a placement group. If callers add servers at the
// same time, a group can exceed this limit.
const maxMembers = 10

// spread is the only type of placement groups in Hetzner's API.
const spread = "spread"

func typeOfPlacementGroup(cloudsim.Record) string { return spread }

func instancesIn(r *dialect.Request, group cloudsim.RecordID) ([]cloudsim.Instance, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstances, cloudsim.ListOptions{Labels: map[string]string{labelPlacementGroup: string(group)}})
	return all, err
}

func emptyGroup(v cloudsim.Record) placementGroup {
	return placementGroup{
		ID: dialect.Number(v.ID), Name: dialect.OtherName(v.Meta), Labels: dialect.Visible(v.Labels), Created: v.CreatedAt,
		Servers: []int64{}, Type: spread,
	}
}

func showPlacementGroups(r *dialect.Request, all []cloudsim.Record) ([]placementGroup, error) {
	var o cloudsim.ListOptions
	if len(all) == 1 {
		o.Labels = map[string]string{labelPlacementGroup: string(all[0].ID)}
	}
	instances, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstances, o)
	if err != nil {
		return nil, err
	}
	out := make([]placementGroup, 0, len(all))
	for _, v := range all {
		g := emptyGroup(v)
		for _, i := range instances {
			if i.Labels[labelPlacementGroup] == string(v.ID) {
				g.Servers = append(g.Servers, dialect.Number(i.ID))
			}
		}
		out = append(out, g)
	}
	return out, nil
}

// groupsOf returns all placement groups of the project. The keys of the map are the values of the
// label labelPlacementGroup. If none of the given instances is in a placement group, groupsOf reads
// no groups and returns nil.
func groupsOf(r *dialect.Request, instances []cloudsim.Instance) (map[string]*placementGroup, error) {
	if !slices.ContainsFunc(instances, func(i cloudsim.Instance) bool { return i.Labels[labelPlacementGroup] != "" }) {
		return nil, nil
	}
	records, _, err := cloudsim.All(r.Context(), r.Cloud.ListRecords, cloudsim.ListOptions{Kind: placementGroups.kind})
	if err != nil {
		return nil, err
	}
	shown, err := placementGroups.show(r, records)
	if err != nil {
		return nil, err
	}
	groups := map[string]*placementGroup{}
	for i, v := range records {
		groups[string(v.ID)] = &shown[i]
	}
	return groups, nil
}

func createPlacementGroup(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	var c struct {
		Name   string             `json:"name"`
		Labels *map[string]string `json:"labels"`
		Type   string             `json:"type"`
	}
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	if c.Type != spread {
		return 0, nil, cloudsim.InvalidField("type", fmt.Sprintf("must be \"spread\", got %.80q", c.Type))
	}
	v, err := placementGroups.create(r, c.Name, c.Labels, nil, struct{}{})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, map[string]any{"placement_group": emptyGroup(v), "action": nil}, nil // the group exists at once
}

func deletePlacementGroup(r *dialect.Request) (int, any, error) {
	g, err := placementGroups.find(r)
	if err != nil {
		return 0, nil, err
	}
	in, err := instancesIn(r, g.ID)
	if err != nil {
		return 0, nil, err
	}
	if len(in) > 0 {
		return 0, nil, coded("resource_in_use", "the placement group has servers: remove them first")
	}
	return placementGroups.delete(r)
}

// joinPlacementGroup returns the placement group with Hetzner's id n, and the value of the label
// labelPlacementGroup for a server that joins this group. If the group does not exist,
// joinPlacementGroup returns an error that names the given field of the request.
func joinPlacementGroup(r *dialect.Request, field string, n int64) (label string, g placementGroup, err error) {
	v, err := placementGroups.byID(r, n)
	if errors.Is(err, cloudsim.NotFound) {
		return "", g, errUnknown(field, n)
	}
	if err != nil {
		return "", g, err
	}
	all, err := placementGroups.show(r, []cloudsim.Record{v})
	if err != nil {
		return "", g, err
	}
	if len(all[0].Servers) >= maxMembers {
		return "", g, coded("placement_group_member_limit_reached", fmt.Sprintf("the placement group %d already contains %d servers", n, maxMembers))
	}
	return string(v.ID), all[0], nil
}

func addToPlacementGroup(r *dialect.Request, i cloudsim.Instance, labels map[string]string, in struct {
	PlacementGroup int64 `json:"placement_group"`
},
) (err error) {
	switch {
	case i.Labels[labelPlacementGroup] != "":
		return coded("placement_error", "the server is already in a placement group: remove it first")
	case i.State == cloudsim.InstanceRunning:
		return coded("server_not_stopped", "the server is running: power it off first")
	case i.State != cloudsim.InstanceStopped:
		return errLocked("server", serverStatus[i.State])
	}
	labels[labelPlacementGroup], _, err = joinPlacementGroup(r, "placement_group", in.PlacementGroup)
	return err
}

func removeFromPlacementGroup(_ *dialect.Request, i cloudsim.Instance, labels map[string]string, _ struct{}) error {
	if i.Labels[labelPlacementGroup] == "" {
		return coded("placement_error", "the server is in no placement group")
	}
	delete(labels, labelPlacementGroup)
	return nil
}
