package aws

import (
	"errors"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// resourceTags contains the tags of a network load balancer, a target group or a listener.
type resourceTags struct {
	ARN  string                   `xml:"ResourceArn"`
	Tags members[loadBalancerTag] `xml:"Tags"`
}

// decodeTaggedARNs returns the ARNs in the parameter ResourceArns. As in AWS, the list must have 1
// to 20 elements.
func (q *query) decodeTaggedARNs() []string {
	all := q.textList("ResourceArns.member")
	if len(all) < 1 || len(all) > maxTagged {
		q.fail(errInvalid("ResourceArns", strconv.Itoa(len(all)), "a list of 1 to "+strconv.Itoa(maxTagged)+" ARNs"))
	}
	return all
}

// findTagged finds the resource with the given ARN. It returns the metadata of the resource, and a
// function that replaces the labels of the resource. This function returns Stale if another caller
// has changed the resource after findTagged read it.
func findTagged(q *query, wanted string) (m cloudsim.Meta, set func(labels map[string]string) error, err error) {
	resource, _, err := parseARN(wanted)
	if err != nil {
		return m, nil, err
	}
	if resource == arnLoadBalancer {
		l, err := findNetworkLoadBalancer(q, wanted)
		return l.Meta, func(labels map[string]string) error {
			_, err := q.Cloud.UpdateLoadBalancer(q.Context(), l.ID, cloudsim.UpdateLoadBalancer{Labels: labels, LoadBalancerSpec: l.LoadBalancerSpec}, l.Revision)
			return err
		}, err
	}
	r, err := readRouting(q)
	if err != nil {
		return m, nil, err
	}
	var record cloudsim.Record
	switch resource {
	case arnTargetGroup:
		g, findErr := r.findTargetGroup(q, wanted)
		record, err = g.Record, findErr
	case arnListener:
		_, li, findErr := r.findListener(q, wanted)
		record, err = li.Record, findErr
	default:
		err = errNotARN(wanted, "a load balancer, a target group or a listener")
	}
	return record.Meta, func(labels map[string]string) error {
		_, err := q.Cloud.UpdateRecord(q.Context(), record.ID, cloudsim.UpdateRecord{Labels: labels, Document: record.Document}, record.Revision)
		return err
	}, err
}

func describeResourceTags(q *query) (any, error) {
	arns := q.decodeTaggedARNs()
	if err := q.finish(); err != nil {
		return nil, err
	}
	out := &members[resourceTags]{}
	for _, wanted := range arns {
		m, _, err := findTagged(q, wanted)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, resourceTags{ARN: wanted, Tags: loadBalancerTags(m)})
	}
	return networkAnswer(q, networkResult{Tags: out}), nil
}

func addResourceTags(q *query) (any, error) {
	arns, given := q.decodeTaggedARNs(), q.decodeTags("Tags.member")
	q.checkPresent(len(given) > 0, "Tags")
	return changeResourceTags(q, arns, func(labels map[string]string) { addTags(labels, given) })
}

func removeResourceTags(q *query) (any, error) {
	arns, keys := q.decodeTaggedARNs(), q.textList("TagKeys.member")
	q.checkPresent(len(keys) > 0, "TagKeys")
	return changeResourceTags(q, arns, func(labels map[string]string) {
		for _, k := range keys {
			delete(labels, k)
		}
	})
}

// changeResourceTags changes the tags of all resources with the given ARNs. It checks all resources
// before it changes the first one, so that a request with a wrong ARN changes nothing.
func changeResourceTags(q *query, arns []string, fn func(labels map[string]string)) (any, error) {
	if err := q.finish(); err != nil {
		return nil, err
	}
	for _, dryRun := range []bool{true, false} {
		for _, wanted := range arns {
			if err := changeTagsOf(q, wanted, dryRun, fn); err != nil {
				return nil, err
			}
		}
	}
	return emptyAnswer(q), nil
}

// changeTagsOf changes the tags of one resource with the function fn. If dryRun is true,
// changeTagsOf only checks the change and does not write it.
func changeTagsOf(q *query, wanted string, dryRun bool, fn func(labels map[string]string)) error {
	err := dialect.Retry(func() error {
		m, set, err := findTagged(q, wanted)
		if err != nil {
			return err
		}
		labels := dialect.Visible(m.Labels)
		fn(labels)
		if labels, err = dialect.WithLabels(labels, m.Labels); err != nil || dryRun {
			return err
		}
		return set(labels)
	})
	if errors.Is(err, cloudsim.Stale) {
		err = cloudsim.Errorf(cloudsim.Conflict, "other callers change %s at the same time: repeat the request", wanted)
	}
	return err
}
