package aws

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// tagParameter is an element of a list of tags in a request.
type tagParameter struct {
	key, value string
	hasValue   bool
}

// decodeTags decodes a list of tags: the parameters LIST.1.Key, LIST.1.Value and so on.
func (q *query) decodeTags(list string) (all []tagParameter) {
	q.dropEmpty(list)
	for n := 1; n <= maxList; n++ {
		prefix := list + "." + strconv.Itoa(n)
		key, ok := q.left[prefix+".Key"]
		if !ok {
			break
		}
		delete(q.left, prefix+".Key")
		value, hasValue := q.left[prefix+".Value"]
		delete(q.left, prefix+".Value")
		if key == "" {
			q.fail(errInvalid(prefix+".Key", key, "the key of a tag"))
		}
		all = append(all, tagParameter{key, value, hasValue})
	}
	return all
}

func labelsOf(all []tagParameter) map[string]string {
	labels := map[string]string{}
	for _, t := range all {
		labels[t.key] = t.value
	}
	return labels
}

// decodeTagsFor returns the tags of a new resource from the request parameter TagSpecification. The
// argument resourceType is EC2's name of the resource type, e.g. "security-group".
func (q *query) decodeTagsFor(resourceType string) map[string]string {
	labels := map[string]string{}
	q.forEach("TagSpecification", func(prefix string) {
		if v := q.text(prefix + "ResourceType"); v != resourceType {
			q.fail(errInvalid(prefix+"ResourceType", v, resourceType))
		}
		maps.Copy(labels, labelsOf(q.decodeTags(prefix+"Tag")))
	})
	return labels
}

// returnAnswer is the answer of an EC2 call that returns no data.
type returnAnswer struct {
	ec2Answer
	Return bool `xml:"return"`
}

func addTags(labels map[string]string, all []tagParameter) { maps.Copy(labels, labelsOf(all)) }

func createTags(q *query) (any, error) {
	return changeTags(q, addTags)
}

// deleteTags removes tags. If the request contains a value for a tag, deleteTags removes the tag
// only if the tag has this value. If the request contains no tags, deleteTags removes all tags.
func deleteTags(q *query) (any, error) {
	return changeTags(q, func(labels map[string]string, all []tagParameter) {
		if len(all) == 0 {
			clear(labels)
		}
		for _, t := range all {
			if !t.hasValue || labels[t.key] == t.value {
				delete(labels, t.key)
			}
		}
	})
}

// changeTags changes the tags of the resources in the parameter ResourceId. It checks all resources
// before it changes the first one, so that a request with a wrong id changes nothing.
func changeTags(q *query, changeLabels func(labels map[string]string, all []tagParameter)) (any, error) {
	ids, given := q.textList("ResourceId"), q.decodeTags("Tag")
	if err := q.finish(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, coded(http.StatusBadRequest, "MissingParameter", "the parameter ResourceId is required")
	}
	for _, dryRun := range []bool{true, false} {
		for _, id := range ids {
			if err := tagResource(q, id, dryRun, func(labels map[string]string) { changeLabels(labels, given) }); err != nil {
				return nil, err
			}
		}
	}
	return &returnAnswer{Return: true}, nil
}

// tagResource changes the tags of one resource with the function changeLabels. If dryRun is true,
// tagResource only checks that the resource exists and that the dialect can change its tags.
func tagResource(q *query, id string, dryRun bool, changeLabels func(labels map[string]string)) error {
	prefix, _, _ := strings.Cut(id, "-")
	return dialect.Retry(func() error {
		switch prefix {
		case prefixInstance:
			return tagOne(q, instances, id, inRegionOf(q), dryRun, changeLabels, func(i cloudsim.Instance, labels map[string]string) error {
				_, err := q.Cloud.UpdateInstance(q.Context(), i.ID, cloudsim.UpdateInstance{Labels: labels}, i.Revision)
				return err
			})
		case prefixVolume:
			return tagOne(q, volumes, id, diskIn(q), dryRun, changeLabels, func(d cloudsim.Disk, labels map[string]string) error {
				_, err := q.Cloud.UpdateDisk(q.Context(), d.ID, cloudsim.UpdateDisk{Labels: labels}, d.Revision)
				return err
			})
		case prefixGroup:
			return tagOne(q, groups, id, nil, dryRun, changeLabels, func(g group, labels map[string]string) error {
				_, err := storeGroup(q, g, labels)
				return err
			})
		case prefixRouteTable:
			return tagOne(q, routeTables, id, nil, dryRun, changeLabels, func(t mainTable, labels map[string]string) error { return t.storeTags(q, labels) })
		case prefixSnapshot:
			if _, err := readByIDs(q, snapshots, []string{id}, snapshotIn(q)); err != nil {
				return err
			}
			return dialect.Unsupported{What: "a change of the tags of the snapshot " + clip(id), Why: "set the tags in CreateSnapshot"}
		}
		return coded(http.StatusBadRequest, "InvalidID", "the id "+clip(id)+" must be the id of an instance, a volume, a route table or a security group, because cloudsim's dialect aws supports no tags of other resources")
	})
}

// tagOne changes the tags of the resource with the given id. The parameters k and isVisible are the
// same as in readByIDs. The function update writes the new labels of the resource. The other
// parameters are the same as in tagResource.
func tagOne[T any, I ~string](q *query, k kind[T, I], id string, isVisible func(T) bool, dryRun bool, changeLabels func(labels map[string]string), update func(T, map[string]string) error) error {
	all, err := readByIDs(q, k, []string{id}, isVisible)
	if err != nil || dryRun {
		return err
	}
	existing := k.meta(all[0]).Labels
	labels := dialect.Visible(existing)
	changeLabels(labels)
	labels, err = dialect.WithLabels(labels, existing)
	if err != nil {
		return err
	}
	return update(all[0], labels)
}

// maxTagged is the maximum number of resources in an Elastic Load Balancing call that reads or
// changes tags. AWS has the same limit.
const maxTagged = 20

// loadBalancerTag is a tag in the format of Elastic Load Balancing.
type loadBalancerTag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

type tagDescription struct {
	Name string                   `xml:"LoadBalancerName"`
	Tags members[loadBalancerTag] `xml:"Tags"`
}

type describeTagsResult struct {
	XMLName      struct{}                `xml:"DescribeTagsResult"`
	Descriptions members[tagDescription] `xml:"TagDescriptions"`
}

// decodeTaggedNames returns the names in the parameter LoadBalancerNames. The list must have at
// least one element. The argument limit is the maximum number of elements.
func (q *query) decodeTaggedNames(limit int) []string {
	all := q.textList("LoadBalancerNames.member")
	if len(all) < 1 || len(all) > limit {
		q.fail(errInvalid("LoadBalancerNames", strconv.Itoa(len(all)), "a list of 1 to "+strconv.Itoa(limit)+" names"))
	}
	return all
}

// loadBalancerTags returns the labels of a resource as tags in the format of Elastic Load
// Balancing.
func loadBalancerTags(m cloudsim.Meta) (all members[loadBalancerTag]) {
	for _, t := range tagsOf(m).Items {
		all.Items = append(all.Items, loadBalancerTag(t))
	}
	return all
}

func describeLoadBalancerTags(q *query) (any, error) {
	names := q.decodeTaggedNames(maxTagged)
	if err := q.finish(); err != nil {
		return nil, err
	}
	out := describeTagsResult{}
	for _, name := range names {
		l, err := findLoadBalancer(q, name)
		if err != nil {
			return nil, err
		}
		out.Descriptions.Items = append(out.Descriptions.Items, tagDescription{Name: name, Tags: loadBalancerTags(l.Meta)})
	}
	return &queryAnswer{Result: out}, nil
}

func addLoadBalancerTags(q *query) (any, error) {
	return changeLoadBalancerTags(q, addTags)
}

func removeLoadBalancerTags(q *query) (any, error) {
	return changeLoadBalancerTags(q, func(labels map[string]string, all []tagParameter) {
		for _, t := range all {
			delete(labels, t.key)
		}
	})
}

// changeLoadBalancerTags changes the tags of the load balancer in the parameter LoadBalancerNames.
// As in AWS, this list must have exactly one element.
func changeLoadBalancerTags(q *query, fn func(labels map[string]string, all []tagParameter)) (any, error) {
	names, given := q.decodeTaggedNames(1), q.decodeTags("Tags.member")
	q.checkPresent(len(given) > 0, "Tags")
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, names[0], func(l *cloudsim.LoadBalancer) (err error) {
		labels := dialect.Visible(l.Labels)
		fn(labels, given)
		l.Labels, err = dialect.WithLabels(labels, l.Labels)
		return err
	})
	return emptyAnswer(q), err
}
