package aws

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// modifyInstance changes one attribute of an instance: SourceDestCheck or the security groups.
// SourceDestCheck has no effect on traffic. The security groups of an instance affect only
// connections through network load balancers that have no security groups themselves.
func modifyInstance(q *query) (any, error) {
	id, groupIDs := q.requiredText("InstanceId"), q.textList("GroupId")
	_, hasCheck := q.left["SourceDestCheck.Value"]
	check := q.flag("SourceDestCheck.Value")
	switch {
	case hasCheck == (len(groupIDs) > 0):
		q.fail(coded(http.StatusBadRequest, "InvalidParameterCombination", "the request must change exactly one attribute: SourceDestCheck.Value or GroupId"))
	case len(groupIDs) > maxInstanceGroups:
		q.fail(errInvalid("GroupId", strconv.Itoa(len(groupIDs)), "a list of at most 5 groups"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	var network cloudsim.NetworkID
	err := changeInstance(q, id, func(i cloudsim.Instance, labels map[string]string) error {
		network = i.Network
		if hasCheck {
			labels[labelSourceDestCheck] = strconv.FormatBool(check)
			return nil
		}
		labels[labelGroups] = strings.Join(groupIDs, ",")
		_, err := readByIDs(q, groups, groupIDs, func(g group) bool { return g.Network == i.Network })
		return err
	})
	if err == nil && !hasCheck {
		err = applyGroupsOfTargets(q, network)
	}
	return &returnAnswer{Return: true}, err
}

// changeInstance changes the labels of an instance with the function fn. If fn changes no label,
// changeInstance does not write the instance. AWS's cloud controller manager often sends values
// that the instance already has.
func changeInstance(q *query, id string, fn func(i cloudsim.Instance, labels map[string]string) error) error {
	return dialect.Retry(func() error {
		found, err := readByIDs(q, instances, []string{id}, inRegionOf(q))
		if err != nil {
			return err
		}
		labels := dialect.CloneLabels(found[0].Labels)
		if err := fn(found[0], labels); err != nil || maps.Equal(labels, found[0].Labels) {
			return err
		}
		_, err = q.Cloud.UpdateInstance(q.Context(), found[0].ID, cloudsim.UpdateInstance{Labels: labels}, found[0].Revision)
		return err
	})
}

// findInstanceWith returns the id of an instance that has the given security group. It returns ""
// if no instance has the group.
func findInstanceWith(q *query, group string) (cloudsim.InstanceID, error) {
	all, err := listAll(q, instances)
	for _, i := range all {
		if slices.Contains(groupIDsOf(i), group) {
			return i.ID, err
		}
	}
	return "", err
}
