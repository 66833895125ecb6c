package aws

import (
	"cmp"
	"encoding/xml"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// A load balancer of this cloud is a network load balancer of AWS if it has both labels
// labelNetwork and labelProtection. The dialect checks both labels, because a load balancer of
// Hetzner's dialect can also have the label labelNetwork. The dialect stores the listeners and
// target groups of AWS in records. From these records, the dialect computes the listeners of the
// load balancer in this cloud; see computeListeners.

// These labels store properties of AWS's network load balancers. Load balancers of this cloud do
// not have these properties. Network load balancers also use the labels labelGroups, labelSubnets
// and labelCrossZone of classic load balancers.
const (
	labelNetwork    = dialect.LabelPrefix + "network"             // id of the VPC in this cloud
	labelProtection = dialect.LabelPrefix + "deletion-protection" // "true" or "false"
)

// networkResult is the result of a call about network load balancers. Each call sets only the
// fields that its answer contains.
type networkResult struct {
	XMLName       xml.Name
	LoadBalancers *members[networkLoadBalancer]        `xml:"LoadBalancers"`
	TargetGroups  *members[targetGroupDescription]     `xml:"TargetGroups"`
	Listeners     *members[networkListenerDescription] `xml:"Listeners"`
	Health        *members[targetHealthDescription]    `xml:"TargetHealthDescriptions"`
	Attributes    *members[networkAttribute]           `xml:"Attributes"`
	Tags          *members[resourceTags]               `xml:"TagDescriptions"`
	Groups        *members[string]                     `xml:"SecurityGroupIds"`
	Next          string                               `xml:"NextMarker,omitempty"`
}

func networkAnswer(q *query, r networkResult) *queryAnswer {
	r.XMLName.Local = q.Form.Get("Action") + "Result"
	return &queryAnswer{Result: r}
}

type networkLoadBalancer struct {
	ARN         string                    `xml:"LoadBalancerArn"`
	DNSName     string                    `xml:"DNSName"`
	Created     string                    `xml:"CreatedTime"`
	Name        string                    `xml:"LoadBalancerName"`
	Scheme      string                    `xml:"Scheme"`
	VPCID       string                    `xml:"VpcId"`
	State       string                    `xml:"State>Code"`
	Type        string                    `xml:"Type"`
	Zones       members[availabilityZone] `xml:"AvailabilityZones"`
	Groups      members[string]           `xml:"SecurityGroups"`
	AddressType string                    `xml:"IpAddressType"`
}

type availabilityZone struct {
	Name   string `xml:"ZoneName"`
	Subnet string `xml:"SubnetId"`
}

// networkDNSName returns the host name of a network load balancer, e.g.
// shop-1.elb.127-65-0-1.amazonaws.com. The part 127-65-0-1 is the address of the load balancer.
// AWS's host names contain the region instead of the address. In the host name of a classic load
// balancer, the address comes before the part elb, e.g. shop-1.127-65-0-1.elb.amazonaws.com.
func networkDNSName(l cloudsim.LoadBalancer) string {
	return hostLabel(l) + ".elb." + addressLabel(l) + ".amazonaws.com"
}

// isNLB reports whether a load balancer is a network load balancer.
func isNLB(l cloudsim.LoadBalancer) bool {
	return l.Labels[labelNetwork] != "" && l.Labels[labelProtection] != ""
}

// isNetwork returns a function that reports whether a load balancer is a network load balancer in
// the given region. The function returns false for a load balancer that the cloud is deleting,
// because AWS no longer shows a load balancer after the call DeleteLoadBalancer.
func isNetwork(region string) func(cloudsim.LoadBalancer) bool {
	return func(l cloudsim.LoadBalancer) bool {
		return isNLB(l) && l.Region == region && l.State != cloudsim.LoadBalancerDeleting
	}
}

func listNetworkLoadBalancers(q *query) ([]cloudsim.LoadBalancer, error) {
	return listLoadBalancers(q, isNetwork(q.region()))
}

// findNetworkLoadBalancer returns the network load balancer with the given ARN in the region of the
// request.
func findNetworkLoadBalancer(q *query, wanted string) (cloudsim.LoadBalancer, error) {
	id, err := idFromARN[cloudsim.LoadBalancerID](wanted, arnLoadBalancer, "lb", "a load balancer")
	if err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	l, err := q.Cloud.GetLoadBalancer(q.Context(), id)
	if errors.Is(err, cloudsim.NotFound) || err == nil && (!isNetwork(q.region())(l) || loadBalancerARN(l) != wanted) {
		return l, errNoLoadBalancer(wanted)
	}
	return l, err
}

func findNetworkByName(q *query, name string) (cloudsim.LoadBalancer, error) {
	return findByName(q, name, isNetwork(q.region()))
}

// changeNetwork uses the function fn to change the network load balancer with the given ARN. Then
// it computes the listeners of the load balancer with computeListeners.
func changeNetwork(q *query, wanted string, fn func(*cloudsim.LoadBalancer) error) (cloudsim.LoadBalancer, error) {
	return findAndChange(q, findNetworkLoadBalancer, wanted, fn)
}

// decodeChoice returns the value of the request's parameter with the given name. If the request
// does not contain this parameter, the value is defaultValue. The value must be one of the
// supported values. For any other value, decodeChoice stores an error in q.
//
// The list onlyAWS contains values that AWS supports and this cloud does not support. For these
// values, the error contains the argument feature and the value, e.g. "a load balancer of the type
// gateway".
func (q *query) decodeChoice(name, defaultValue, feature string, supported, onlyAWS []string) string {
	v := cmp.Or(q.text(name), defaultValue)
	switch {
	case slices.Contains(supported, v):
	case slices.Contains(onlyAWS, v):
		q.fail(dialect.Unsupported{What: feature + " " + v, Why: "set the parameter " + name + " to " + strings.Join(supported, " or ")})
	default:
		q.fail(errInvalid(name, v, "one of "+strings.Join(supported, ", ")))
	}
	return v
}

// decodeName returns the parameter Name, which a request for a new load balancer or target group
// must contain.
func (q *query) decodeName() string {
	name := q.requiredText("Name")
	if name != "" && (!loadBalancerNameRE.MatchString(name) || strings.HasPrefix(name, "internal-")) {
		q.fail(errInvalid("Name", name, "1 to 32 letters, digits and dashes, and not begin or end with a dash or begin with internal-"))
	}
	return name
}

// decodeSubnets returns the ids of subnets in the parameters Subnets and SubnetMappings.
func (q *query) decodeSubnets() []string {
	ids := q.textList("Subnets.member")
	q.forEach("SubnetMappings.member", func(prefix string) {
		for _, name := range []string{"AllocationId", "PrivateIPv4Address", "IPv6Address"} {
			if q.text(prefix+name) != "" {
				q.fail(dialect.Unsupported{What: "the parameter " + prefix + name, Why: "the cloud chooses the address of a load balancer: remove the parameter"})
			}
		}
		ids = append(ids, q.requiredText(prefix+"SubnetId"))
	})
	return ids
}

// createNetworkLoadBalancer creates a network load balancer. If a load balancer with the same name
// and the same settings exists, createNetworkLoadBalancer returns the existing load balancer, as
// AWS does.
func createNetworkLoadBalancer(q *query) (any, error) {
	name, given, subnetIDs, groupIDs := q.decodeName(), labelsOf(q.decodeTags("Tags.member")), q.decodeSubnets(), q.textList("SecurityGroups.member")
	q.decodeChoice("Type", "application", "a load balancer of the type", []string{"network"}, []string{"application", "gateway"})
	q.decodeChoice("IpAddressType", "ipv4", "a load balancer with the address type", []string{"ipv4"}, []string{"dualstack", "dualstack-without-public-ipv4"})
	scheme := schemes[q.decodeChoice("Scheme", "internet-facing", "", []string{"internet-facing", "internal"}, nil)]
	if err := q.finish(); err != nil {
		return nil, err
	}
	vpcID, err := networkOfSubnets(q, subnetIDs)
	if err != nil {
		return nil, err
	}
	if len(groupIDs) > 0 {
		if err := checkGroups(q, groupIDs, vpcID); err != nil {
			return nil, err
		}
	}
	own := map[string]string{labelNetwork: string(vpcID), labelGroups: strings.Join(groupIDs, ","), labelSubnets: strings.Join(subnetIDs, ","), labelCrossZone: "false", labelProtection: "false"}
	req, err := newLoadBalancerRequest(q, name, scheme, given, own)
	if err != nil {
		return nil, err
	}
	req.HealthCheck.Protocol, req.DrainTimeoutSeconds = cloudsim.HealthTCP, defaultDrain
	l, err := q.Cloud.CreateLoadBalancer(q.Context(), req)
	err = translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "TooManyLoadBalancers"})
	if errors.Is(err, cloudsim.Exists) {
		// sameNetworkSettings ignores the listeners and attributes of the existing load balancer,
		// because CreateLoadBalancer does not set them.
		l, err = findNetworkByName(q, name)
		if err == nil && !sameNetworkSettings(l, req) || failureOf(err).Code == "LoadBalancerNotFound" {
			err = coded(http.StatusBadRequest, "DuplicateLoadBalancerName", "a load balancer with the name "+clip(name)+" and other settings exists already")
		}
	}
	if err != nil {
		return nil, err
	}
	return describeNetworks(q, []cloudsim.LoadBalancer{l}, "")
}

func sameNetworkSettings(l cloudsim.LoadBalancer, req cloudsim.CreateLoadBalancer) bool {
	for _, label := range []string{labelNetwork, labelGroups, labelSubnets} {
		if l.Labels[label] != req.Labels[label] {
			return false
		}
	}
	return l.Scheme == req.Scheme && maps.Equal(dialect.Visible(l.Labels), dialect.Visible(req.Labels))
}

// deleteNetworkLoadBalancer deletes a network load balancer and its listeners. It returns an error
// if the load balancer has deletion protection. If the load balancer is already deleted,
// deleteNetworkLoadBalancer deletes the listeners that an earlier call could not delete.
func deleteNetworkLoadBalancer(q *query) (any, error) {
	wanted := q.requiredText("LoadBalancerArn")
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findNetworkLoadBalancer(q, wanted)
	missing := failureOf(err).Code == "LoadBalancerNotFound" // AWS deletes a load balancer that does not exist without an error
	if err != nil && !missing {
		return nil, err
	}
	if missing && l.ID != "" && l.State != cloudsim.LoadBalancerDeleting {
		return emptyAnswer(q), nil // the load balancer with this id has another ARN
	}
	if !missing {
		if l.Labels[labelProtection] == "true" {
			return nil, coded(http.StatusBadRequest, "OperationNotPermitted", "the load balancer "+clipARN(wanted)+" has deletion protection: set its attribute "+attributeProtection+" to false first")
		}
		if _, err := q.Cloud.DeleteLoadBalancer(q.Context(), l.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return nil, err
		}
	}
	id, err := idFromARN[cloudsim.LoadBalancerID](wanted, arnLoadBalancer, "lb", "a load balancer")
	if err != nil {
		return nil, err
	}
	all, err := listObjects[listenerDocument](q, listenerRecords)
	if err != nil {
		return nil, err
	}
	return emptyAnswer(q), deleteListenerRecords(q, all, func(li networkListener) bool { return li.Doc.LoadBalancer == id })
}

func (q *query) decodeMarkerPage() page {
	return page{limit: q.integer("PageSize", 1, maxPageSize, maxPageSize), after: q.decodePageToken("Marker")}
}

// pageOf returns the elements of a list that belong to the page p, and the marker of the next page.
// The list must be sorted by ids.
func pageOf[T any](p page, list []T, id func(T) string) ([]T, string) {
	first := 0
	for first < len(list) && dialect.Number(id(list[first])) <= dialect.Number(p.after) {
		first++
	}
	if list = list[first:]; len(list) <= p.limit {
		return list, ""
	}
	return list[:p.limit], nextToken(id(list[p.limit-1]))
}

// checkOnlyOne returns an error if more than one of the lists has elements. Each list is the value
// of a request parameter. A list with the first element "" counts as empty. The text of the error
// contains the given names of these parameters.
func checkOnlyOne(names string, lists ...[]string) error {
	n := 0
	for _, l := range lists {
		if len(l) > 0 && l[0] != "" {
			n++
		}
	}
	if n > 1 {
		return coded(http.StatusBadRequest, "ValidationError", "the request can have only one of the parameters "+names)
	}
	return nil
}

func describeNetworkLoadBalancers(q *query) (any, error) {
	arns, names, p := q.textList("LoadBalancerArns.member"), q.textList("Names.member"), q.decodeMarkerPage()
	if err := cmp.Or(q.finish(), checkOnlyOne("LoadBalancerArns and Names", arns, names)); err != nil {
		return nil, err
	}
	var found []cloudsim.LoadBalancer
	next := ""
	for n, wanted := range slices.Concat(arns, names) {
		find := findNetworkLoadBalancer
		if n >= len(arns) {
			find = findNetworkByName
		}
		l, err := find(q, wanted)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	if len(found) == 0 {
		all, err := listNetworkLoadBalancers(q)
		if err != nil {
			return nil, err
		}
		found, next = pageOf(p, all, func(l cloudsim.LoadBalancer) string { return string(l.ID) })
	}
	return describeNetworks(q, found, next)
}

// describeNetworks returns an answer that contains the given network load balancers in AWS's
// format.
func describeNetworks(q *query, found []cloudsim.LoadBalancer, next string) (any, error) {
	k, err := subnetsWithZones(q)
	if err != nil {
		return nil, err
	}
	all, err := listAll(q, k)
	if err != nil {
		return nil, err
	}
	out := &members[networkLoadBalancer]{}
	for _, l := range found {
		d := networkLoadBalancer{
			ARN: loadBalancerARN(l), DNSName: networkDNSName(l), Created: formatTime(l.CreatedAt), Name: dialect.OtherName(l.Meta), Scheme: schemeOf(l),
			VPCID: idOf(prefixVPC, l.Labels[labelNetwork]), State: "active", Type: "network", Groups: members[string]{idsInLabel(l, labelGroups)}, AddressType: "ipv4",
		}
		if l.State == cloudsim.LoadBalancerProvisioning {
			d.State = "provisioning"
		}
		for _, id := range idsInLabel(l, labelSubnets) {
			at := slices.IndexFunc(all, func(s cloudsim.Subnet) bool { return idOf(prefixSubnet, s.ID) == id })
			if at >= 0 { // the index is -1 for a deleted subnet
				d.Zones.Items = append(d.Zones.Items, availabilityZone{all[at].Zone, id})
			}
		}
		out.Items = append(out.Items, d)
	}
	return networkAnswer(q, networkResult{LoadBalancers: out, Next: next}), nil
}

// setGroups replaces the security groups of a network load balancer. As in AWS, a load balancer
// that was created without security groups cannot get security groups later. A load balancer with
// security groups must keep at least one security group.
func setGroups(q *query) (any, error) {
	wanted, ids := q.requiredText("LoadBalancerArn"), q.textList("SecurityGroups.member")
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeNetwork(q, wanted, func(l *cloudsim.LoadBalancer) error {
		if l.Labels[labelGroups] == "" {
			return coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the load balancer "+clipARN(wanted)+" was created without security groups: create another load balancer with security groups")
		}
		setList(l, labelGroups, ids)
		return checkGroups(q, ids, cloudsim.NetworkID(l.Labels[labelNetwork]))
	})
	return networkAnswer(q, networkResult{Groups: &members[string]{ids}}), err
}
