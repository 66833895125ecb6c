package aws

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// A classic load balancer of AWS is a load balancer of this cloud that has the label labelGroups
// and is not a network load balancer; see isNLB. A load balancer that was created without the
// dialect does not have the label labelGroups, so the dialect does not show it.

// AWS's classic load balancers have properties that the load balancers of cloudsim do not have.
// These labels store these properties.
const (
	labelGroups    = dialect.LabelPrefix + "security-groups" // AWS's ids, with commas between them
	labelSubnets   = dialect.LabelPrefix + "subnets"         // AWS's ids, with commas between them
	labelCrossZone = dialect.LabelPrefix + "cross-zone"      // "true" or "false"; without effect
	labelIdle      = dialect.LabelPrefix + "idle-timeout"    // seconds
)

// Domain is the domain of the host names of load balancers. A host name contains the address of
// its load balancer, e.g. shop-1.127-65-0-1.elb.amazonaws.com for the address 127.65.0.1.
const Domain = "elb.amazonaws.com"

const maxPageSize = 400 // largest number of load balancers on one page of a list

// members is a list in an answer of Elastic Load Balancing.
type members[T any] struct {
	Items []T `xml:"member"`
}

type loadBalancer struct {
	Name        string                       `xml:"LoadBalancerName"`
	DNSName     string                       `xml:"DNSName"`
	Listeners   members[listenerDescription] `xml:"ListenerDescriptions"`
	Zones       members[string]              `xml:"AvailabilityZones"`
	Subnets     members[string]              `xml:"Subnets"`
	VPCID       string                       `xml:"VPCId"`
	Instances   members[registeredInstance]  `xml:"Instances"`
	Backends    members[backendServer]       `xml:"BackendServerDescriptions"`
	Policies    members[string]              `xml:"Policies>OtherPolicies"`
	HealthCheck healthCheck                  `xml:"HealthCheck"`
	Groups      members[string]              `xml:"SecurityGroups"`
	Created     string                       `xml:"CreatedTime"`
	Scheme      string                       `xml:"Scheme"`
}

// schemes maps AWS's schemes of load balancers to this cloud's schemes. A request without a scheme
// has the scheme "".
var schemes = map[string]cloudsim.Scheme{"": cloudsim.SchemeExternal, "internet-facing": cloudsim.SchemeExternal, "internal": cloudsim.SchemeInternal}

func schemeOf(l cloudsim.LoadBalancer) string {
	if l.Scheme == cloudsim.SchemeInternal {
		return "internal"
	}
	return "internet-facing"
}

func dnsName(l cloudsim.LoadBalancer) string {
	name := hostLabel(l) + "." + addressLabel(l) + "." + Domain
	if l.Scheme == cloudsim.SchemeInternal {
		return "internal-" + name
	}
	return name
}

// hostLabel returns the first part of a load balancer's host name, e.g. shop-1. It contains the
// name and the number of the load balancer.
func hostLabel(l cloudsim.LoadBalancer) string {
	return fmt.Sprintf("%s-%d", strings.ToLower(dialect.OtherName(l.Meta)), dialect.Number(l.ID))
}

// addressLabel returns the address of a load balancer in the form that its host name contains, e.g.
// 127-65-0-1.
func addressLabel(l cloudsim.LoadBalancer) string { return strings.ReplaceAll(l.IP, ".", "-") }

// idsInLabel returns the ids or names in the value of a label. It returns nil if the load balancer
// does not have the label.
func idsInLabel(l cloudsim.LoadBalancer, label string) []string {
	if l.Labels[label] == "" {
		return nil
	}
	return strings.Split(l.Labels[label], ",")
}

func setList(l *cloudsim.LoadBalancer, label string, names []string) {
	l.Labels[label] = strings.Join(names, ",")
	if len(names) == 0 {
		delete(l.Labels, label)
	}
}

// isClassic returns a function that reports whether a load balancer is a classic load balancer in
// the given region. The function returns false for a load balancer that the cloud is deleting,
// because AWS no longer shows a load balancer after the call DeleteLoadBalancer.
func isClassic(region string) func(cloudsim.LoadBalancer) bool {
	return func(l cloudsim.LoadBalancer) bool {
		return l.Labels[labelGroups] != "" && !isNLB(l) && l.Region == region && l.State != cloudsim.LoadBalancerDeleting
	}
}

// listLoadBalancers returns the load balancers for which filter returns true, sorted by their ids.
func listLoadBalancers(q *query, filter func(cloudsim.LoadBalancer) bool) ([]cloudsim.LoadBalancer, error) {
	all, _, err := cloudsim.All(q.Context(), q.Cloud.ListLoadBalancers, cloudsim.ListOptions{})
	return slices.DeleteFunc(all, func(l cloudsim.LoadBalancer) bool { return !filter(l) }), err
}

// findByName returns the load balancer with the given name. If no load balancer has this name, or
// if filter returns false for the load balancer, findByName returns an error.
func findByName(q *query, name string, filter func(cloudsim.LoadBalancer) bool) (cloudsim.LoadBalancer, error) {
	l, err := q.Cloud.ListLoadBalancers(q.Context(), cloudsim.ListOptions{Name: dialect.Name(name)})
	if err != nil {
		return cloudsim.LoadBalancer{}, err
	}
	if n := slices.IndexFunc(l.Items, filter); n >= 0 {
		return l.Items[n], nil
	}
	return cloudsim.LoadBalancer{}, errNoLoadBalancer(name)
}

func findLoadBalancer(q *query, name string) (cloudsim.LoadBalancer, error) {
	return findByName(q, name, isClassic(q.region()))
}

// errNoLoadBalancer returns the error for a load balancer that does not exist. The parameter name
// is the name or the ARN in the request.
func errNoLoadBalancer(name string) error {
	return coded(http.StatusBadRequest, "LoadBalancerNotFound", "the load balancer "+clipARN(name)+" does not exist")
}

// changeLoadBalancer uses the function fn to change the classic load balancer with the given name.
func changeLoadBalancer(q *query, name string, fn func(*cloudsim.LoadBalancer) error) (cloudsim.LoadBalancer, error) {
	return findAndChange(q, findLoadBalancer, name, fn)
}

// findAndChange uses the function fn to change the load balancer with the given name or ARN. The
// function find returns this load balancer.
func findAndChange(q *query, find func(*query, string) (cloudsim.LoadBalancer, error), nameOrARN string, fn func(*cloudsim.LoadBalancer) error) (cloudsim.LoadBalancer, error) {
	l, err := find(q, nameOrARN)
	if err != nil {
		return l, err
	}
	l, err = updateLoadBalancer(q, l, nil, func(l *cloudsim.LoadBalancer) error {
		if l.State == cloudsim.LoadBalancerDeleting {
			return errNoLoadBalancer(nameOrARN)
		}
		return fn(l)
	})
	if errors.Is(err, cloudsim.NotFound) {
		err = errNoLoadBalancer(nameOrARN) // another caller has deleted the load balancer
	}
	return l, err
}

// updateLoadBalancer changes a load balancer with the function fn. For a network load balancer, it
// then calls computeListeners. For a classic load balancer, it then applies the policies of the
// load balancer and the rules of its security groups. If the security group g is not nil,
// updateLoadBalancer uses the rules in g instead of the stored rules of this group. If the cloud is
// deleting the load balancer, updateLoadBalancer only calls fn.
func updateLoadBalancer(q *query, l cloudsim.LoadBalancer, g *group, fn func(*cloudsim.LoadBalancer) error) (cloudsim.LoadBalancer, error) {
	return dialect.ChangeLoadBalancer(q.Request, l, func(l *cloudsim.LoadBalancer) error {
		if err := fn(l); err != nil || l.State == cloudsim.LoadBalancerDeleting {
			return err
		}
		if isNLB(*l) {
			return computeListeners(q, l, g, nil)
		}
		rules, err := rulesOf(q, idsInLabel(*l, labelGroups), g)
		if err != nil {
			return err
		}
		for n := range l.Listeners {
			l.Listeners[n].Targets = nil // nil means the targets of the load balancer
			l.Listeners[n].ProxyProtocol = proxyProtocol(*l, l.Listeners[n].TargetPort)
		}
		permit(&l.LoadBalancerSpec, rules)
		return nil
	})
}

// loadBalancerNameRE is the format of the names of classic load balancers in AWS.
var loadBalancerNameRE = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,30}[A-Za-z0-9])?$`)

type createLoadBalancerResult struct {
	XMLName struct{} `xml:"CreateLoadBalancerResult"`
	DNSName string   `xml:"DNSName"`
}

// createLoadBalancer creates a classic load balancer. If a load balancer with the same name and the
// same settings exists, createLoadBalancer returns the existing load balancer, as AWS does. If the
// settings differ, it returns an error.
func createLoadBalancer(q *query) (any, error) {
	name, listeners, given := q.requiredText("LoadBalancerName"), q.decodeListeners(), labelsOf(q.decodeTags("Tags.member"))
	subnetIDs, groupIDs := q.textList("Subnets.member"), q.textList("SecurityGroups.member")
	schemeName := q.text("Scheme")
	scheme, ok := schemes[schemeName]
	if !ok {
		q.fail(coded(http.StatusBadRequest, "InvalidScheme", "the parameter Scheme must be internet-facing or internal, got "+clip(schemeName)))
	}
	if name != "" && !loadBalancerNameRE.MatchString(name) {
		q.fail(errInvalid("LoadBalancerName", name, "1 to 32 letters, digits and dashes, and not begin or end with a dash"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	network, err := networkOfSubnets(q, subnetIDs)
	if err != nil {
		return nil, err
	}
	if len(groupIDs) == 0 {
		groupIDs = []string{defaultGroupID(network)}
	}
	if err := checkGroups(q, groupIDs, network); err != nil {
		return nil, err
	}
	own := map[string]string{labelGroups: strings.Join(groupIDs, ","), labelSubnets: strings.Join(subnetIDs, ","), labelCrossZone: "false", labelIdle: defaultIdle}
	req, err := newLoadBalancerRequest(q, name, scheme, given, own)
	if err != nil {
		return nil, err
	}
	l := cloudsim.LoadBalancer{Meta: cloudsim.Meta{Labels: req.Labels}}
	l.DrainTimeoutSeconds = -1
	if err := addListeners(&l, listeners); err != nil {
		return nil, err
	}
	l.HealthCheck = defaultHealthCheck(listeners[0].TargetPort)
	rules, err := rulesOf(q, groupIDs, nil)
	if err != nil {
		return nil, err
	}
	permit(&l.LoadBalancerSpec, rules)
	req.LoadBalancerSpec = l.LoadBalancerSpec
	l, err = q.Cloud.CreateLoadBalancer(q.Context(), req)
	err = translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "TooManyLoadBalancers"})
	if errors.Is(err, cloudsim.Exists) {
		return nil, coded(http.StatusBadRequest, "DuplicateLoadBalancerName", "a load balancer with the name "+clip(name)+" and other settings exists already")
	}
	if err != nil {
		return nil, err
	}
	return &queryAnswer{Result: createLoadBalancerResult{DNSName: dnsName(l)}}, nil
}

// newLoadBalancerRequest returns a request for a new load balancer of this cloud. The load balancer
// gets the tags of the client's request, and the labels of the dialect.
func newLoadBalancerRequest(q *query, name string, scheme cloudsim.Scheme, tags, dialectLabels map[string]string) (req cloudsim.CreateLoadBalancer, err error) {
	if dialect.Name(name) != name {
		dialectLabels[dialect.NameLabel] = name
	}
	req = cloudsim.CreateLoadBalancer{Name: dialect.Name(name), Region: q.region(), Scheme: scheme, Families: []cloudsim.IPFamily{cloudsim.IPv4}}
	req.Labels, err = dialect.WithLabels(tags, dialectLabels)
	return req, err
}

// networkOfSubnets returns the network of the subnets with the given ids. It returns an error if
// ids is empty, if a subnet is not in the region of the request, or if the subnets belong to
// different networks.
func networkOfSubnets(q *query, ids []string) (network cloudsim.NetworkID, err error) {
	if len(ids) == 0 {
		return "", coded(http.StatusBadRequest, "InvalidConfigurationRequest", "a load balancer must have at least one subnet: see the parameter Subnets")
	}
	found, err := readByIDs(q, subnets, ids, inRegion(q.region()))
	if err != nil {
		return "", recode(err, "SubnetNotFound")
	}
	for _, s := range found {
		if network = s.Network; network != found[0].Network {
			return "", coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the subnets must belong to one VPC")
		}
	}
	return network, nil
}

// checkGroups checks the security groups of a load balancer. The slice ids must contain 1 to 5
// different groups of the given network. Otherwise checkGroups returns an error.
func checkGroups(q *query, ids []string, network cloudsim.NetworkID) error {
	if n := len(ids); n < 1 || n > 5 {
		return coded(http.StatusBadRequest, "InvalidConfigurationRequest", fmt.Sprintf("a load balancer must have 1 to 5 security groups, got %d", n))
	}
	found, err := readByIDs(q, groups, ids, func(g group) bool { return g.Network == network })
	if err == nil && len(found) != len(ids) {
		err = coded(http.StatusBadRequest, "InvalidSecurityGroup", "the parameter SecurityGroups contains a group twice")
	}
	return recode(err, "InvalidSecurityGroup")
}

func deleteLoadBalancer(q *query) (any, error) {
	name := q.requiredText("LoadBalancerName")
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findLoadBalancer(q, name)
	if failureOf(err).Code == "LoadBalancerNotFound" {
		return emptyAnswer(q), nil // AWS deletes a load balancer that does not exist without an error
	}
	if err != nil {
		return nil, err
	}
	_, err = q.Cloud.DeleteLoadBalancer(q.Context(), l.ID)
	if errors.Is(err, cloudsim.NotFound) {
		err = nil // another caller has deleted the load balancer
	}
	return emptyAnswer(q), err
}

type describeLoadBalancersResult struct {
	XMLName       struct{}              `xml:"DescribeLoadBalancersResult"`
	LoadBalancers members[loadBalancer] `xml:"LoadBalancerDescriptions"`
	Next          string                `xml:"NextMarker,omitempty"`
}

func describeLoadBalancers(q *query) (any, error) {
	names, p := q.textList("LoadBalancerNames.member"), q.decodeMarkerPage()
	if err := q.finish(); err != nil {
		return nil, err
	}
	var found []cloudsim.LoadBalancer
	out := describeLoadBalancersResult{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		l, err := findLoadBalancer(q, name)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	if len(names) == 0 {
		all, err := listLoadBalancers(q, isClassic(q.region()))
		if err != nil {
			return nil, err
		}
		found, out.Next = pageOf(p, all, func(l cloudsim.LoadBalancer) string { return string(l.ID) })
	}
	k, err := subnetsWithZones(q)
	if err != nil {
		return nil, err
	}
	all, err := listAll(q, k)
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		out.LoadBalancers.Items = append(out.LoadBalancers.Items, loadBalancerOf(l, all))
	}
	return &queryAnswer{Result: out}, nil
}

// loadBalancerOf returns a load balancer in AWS's format. The slice allSubnets contains all subnets
// of the project.
func loadBalancerOf(l cloudsim.LoadBalancer, allSubnets []cloudsim.Subnet) loadBalancer {
	out := loadBalancer{
		Name: dialect.OtherName(l.Meta), DNSName: dnsName(l), HealthCheck: healthCheckOf(l), Created: formatTime(l.CreatedAt), Scheme: schemeOf(l),
		Subnets: members[string]{idsInLabel(l, labelSubnets)}, Groups: members[string]{idsInLabel(l, labelGroups)}, Instances: instancesOf(l),
		Backends: backendServers(l), Policies: members[string]{idsInLabel(l, labelPolicies)},
	}
	for _, s := range allSubnets {
		if slices.Contains(out.Subnets.Items, idOf(prefixSubnet, s.ID)) {
			out.Zones.Items = append(out.Zones.Items, s.Zone)
			out.VPCID = idOf(prefixVPC, s.Network)
		}
	}
	for _, li := range l.Listeners {
		out.Listeners.Items = append(out.Listeners.Items, listenerDescription{Listener: listener{
			Protocol: "TCP", Port: li.Port, InstanceProtocol: "TCP", InstancePort: li.TargetPort,
		}})
	}
	return out
}

type groupsResult struct {
	XMLName struct{}        `xml:"ApplySecurityGroupsToLoadBalancerResult"`
	Groups  members[string] `xml:"SecurityGroups"`
}

func applyGroups(q *query) (any, error) {
	name, ids := q.requiredText("LoadBalancerName"), q.textList("SecurityGroups.member")
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		network, err := networkOfSubnets(q, idsInLabel(*l, labelSubnets))
		if err != nil {
			return err
		}
		setList(l, labelGroups, ids)
		return checkGroups(q, ids, network)
	})
	return &queryAnswer{Result: groupsResult{Groups: members[string]{ids}}}, err
}

type subnetsResult struct {
	Subnets members[string] `xml:"Subnets"`
}

type attachSubnetsResult struct {
	XMLName struct{} `xml:"AttachLoadBalancerToSubnetsResult"`
	subnetsResult
}

type detachSubnetsResult struct {
	XMLName struct{} `xml:"DetachLoadBalancerFromSubnetsResult"`
	subnetsResult
}

func attachSubnets(q *query) (any, error) {
	out, err := changeSubnets(q, func(have, given []string) []string {
		return slices.Concat(have, slices.DeleteFunc(given, func(id string) bool { return slices.Contains(have, id) }))
	})
	return &queryAnswer{Result: attachSubnetsResult{subnetsResult: out}}, err
}

func detachSubnets(q *query) (any, error) {
	out, err := changeSubnets(q, func(have, given []string) []string {
		return slices.DeleteFunc(have, func(id string) bool { return slices.Contains(given, id) })
	})
	return &queryAnswer{Result: detachSubnetsResult{subnetsResult: out}}, err
}

// changeSubnets changes the subnets of a load balancer with the function fn. The subnets do not
// affect traffic: a load balancer reaches all instances of its project.
func changeSubnets(q *query, fn func(have, given []string) []string) (out subnetsResult, err error) {
	name, given := q.requiredText("LoadBalancerName"), q.textList("Subnets.member")
	if err := q.finish(); err != nil {
		return out, err
	}
	l, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		ids := fn(idsInLabel(*l, labelSubnets), slices.Clone(given))
		setList(l, labelSubnets, ids)
		_, err := networkOfSubnets(q, ids)
		return err
	})
	if err == nil {
		out.Subnets.Items = idsInLabel(l, labelSubnets)
	}
	return out, err
}

// rulesOf returns the rules of the security groups with the given ids. If g is one of these groups,
// rulesOf uses the rules in g instead of the stored rules of this group.
func rulesOf(q *query, ids []string, g *group) (all []rule, err error) {
	for _, id := range ids {
		if g != nil && g.id() == id {
			all = append(all, g.Rules...)
			continue
		}
		found, err := readByIDs(q, groups, []string{id}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, found[0].Rules...)
	}
	return all, nil
}

// applyGroup applies the rules of the security group g to all load balancers that have this group.
// It also updates each network load balancer in the VPC of g that has no security groups. The rules
// of g can apply to the targets of these load balancers; see the method permitTargets. If unstored
// is nil, applyGroup uses the stored rules of the group. Otherwise it uses the rules in unstored,
// which the cloud has not stored yet.
func applyGroup(q *query, g group, unstored *group) error {
	hasGroup, inherits := usesGroup(g), hasNoGroups(g.Network)
	users, err := listLoadBalancers(q, func(l cloudsim.LoadBalancer) bool { return hasGroup(l) || inherits(l) })
	if err != nil {
		return err
	}
	for _, l := range users {
		if _, err := updateLoadBalancer(q, l, unstored, func(*cloudsim.LoadBalancer) error { return nil }); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	return nil
}

func usesGroup(g group) func(cloudsim.LoadBalancer) bool {
	return func(l cloudsim.LoadBalancer) bool { return slices.Contains(idsInLabel(l, labelGroups), g.id()) }
}
