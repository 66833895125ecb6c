package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// This cloud has no security groups, so they are stored in records. The rules of a group have an
// effect only on load balancers; see permit. Instances accept all connections.

const (
	groupRecords = "aws-security-group" // kind of the records
	groupPrefix  = "rec"                // of the ids of records
	maxRules     = 60                   // of a group, as in EC2
	// defaultGroup is the name of the group that each VPC has. EC2 reserves this name.
	defaultGroup = "default"
	// defaultGroups is added to the number of a VPC. The result is the number in the id of the
	// VPC's default group. So the default group has an id before it has a record.
	defaultGroups int64 = 1 << 56
)

// group is a security group. The default group of a VPC has no record until its first change.
type group struct {
	cloudsim.Record       // its id is "" if there is no record
	groupDocument         // its name is EC2's name; the record has another name
	number          int64 // in the id
}

// groupDocument is the document of a record.
type groupDocument struct {
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Network     cloudsim.NetworkID `json:"network"`
	Rules       []rule             `json:"rules"`
}

// rule permits connections from one source. Exactly one of CIDR and Group is not empty.
type rule struct {
	Protocol    string `json:"protocol"` // tcp, udp, icmp, icmpv6, or -1 for all
	From        int    `json:"from"`     // first port, or type of ICMP
	To          int    `json:"to"`       // last port, or code of ICMP
	CIDR        string `json:"cidr,omitempty"`
	Group       string `json:"group,omitempty"` // AWS's id
	Description string `json:"description,omitempty"`
}

// The method same reports whether two rules permit the same connections.
func (r rule) same(other rule) bool {
	r.Description = other.Description
	return r == other
}

func (g group) id() string { return fmt.Sprintf("%s-%017x", prefixGroup, g.number) }

func recordName(n cloudsim.NetworkID, name string) string { return string(n) + "/" + name }

// defaultGroupOf returns the default group of a VPC without a record. Like in EC2, its only rule
// permits connections from its own instances.
func defaultGroupOf(n cloudsim.Network) group {
	g := group{number: defaultGroups + dialect.Number(n.ID), groupDocument: groupDocument{Name: defaultGroup, Description: "default VPC security group", Network: n.ID}}
	g.Rules = []rule{{Protocol: "-1", Group: g.id()}}
	g.Project = n.Project
	return g
}

// defaultGroupID returns the id of a VPC's default group.
func defaultGroupID(n cloudsim.NetworkID) string {
	return group{number: defaultGroups + dialect.Number(n)}.id()
}

// groupOf decodes a record.
func groupOf(r cloudsim.Record) (group, error) {
	g := group{Record: r, number: dialect.Number(r.ID)}
	if err := json.Unmarshal(r.Document, &g.groupDocument); err != nil {
		return g, cloudsim.Errorf(cloudsim.Internal, "decode the document of record %s: %w", r.ID, err)
	}
	if g.Name == defaultGroup {
		g.number = defaultGroups + dialect.Number(g.Network)
	}
	return g, nil
}

var groups = kind[group, cloudsim.RecordID]{
	one: "security group", param: "GroupId", prefix: prefixGroup, code: "InvalidGroup", malformed: "InvalidGroupId.Malformed", own: groupPrefix,
	get: getGroup, all: allGroups,
	meta: func(g group) cloudsim.Meta { return g.Meta },
	id:   func(g group) string { return dialect.ID[string](groupPrefix, g.number) },
	values: map[string]func(group) []string{
		"description": func(g group) []string { return []string{g.Description} },
		"group-id":    func(g group) []string { return []string{g.id()} },
		"group-name":  func(g group) []string { return []string{g.Name} },
		"ip-permission.cidr": func(g group) (all []string) {
			for _, r := range g.Rules {
				all = append(all, r.CIDR)
			}
			return all
		},
		"ip-permission.group-id": func(g group) (all []string) {
			for _, r := range g.Rules {
				all = append(all, r.Group)
			}
			return all
		},
		"owner-id": func(g group) []string { return []string{account(g.Project)} },
		"vpc-id":   func(g group) []string { return []string{idOf(prefixVPC, g.Network)} },
	},
}

// getGroup returns the group with an id. The number of a default group is not the number of its
// record.
func getGroup(c *client.Client, ctx context.Context, id cloudsim.RecordID) (group, error) { //nolint:revive // the order of a method expression
	if n := dialect.Number(id) - defaultGroups; n > 0 {
		network, err := c.GetNetwork(ctx, dialect.ID[cloudsim.NetworkID](vpcs.own, n))
		if err != nil {
			return group{}, err
		}
		l, err := c.ListRecords(ctx, cloudsim.ListOptions{Kind: groupRecords, Name: recordName(network.ID, defaultGroup)})
		if err != nil || len(l.Items) == 0 {
			return defaultGroupOf(network), err
		}
		return groupOf(l.Items[0])
	}
	r, err := c.GetRecord(ctx, id)
	if err != nil {
		return group{}, err
	}
	if r.Kind != groupRecords {
		return group{}, cloudsim.Errorf(cloudsim.NotFound, "record %s is not a security group", id)
	}
	g, err := groupOf(r)
	if err == nil && g.number != dialect.Number(id) {
		err = cloudsim.Errorf(cloudsim.NotFound, "record %s is a default group", id)
	}
	return g, err
}

// allGroups returns all groups after an id in one page, sorted by their numbers. The default
// groups follow the other groups.
func allGroups(c *client.Client, ctx context.Context, o cloudsim.ListOptions) (out cloudsim.List[group], err error) { //nolint:revive // the order of a method expression
	after := dialect.Number(o.After)
	records, _, err := cloudsim.All(ctx, c.ListRecords, cloudsim.ListOptions{Kind: groupRecords})
	if err != nil {
		return out, err
	}
	networks, _, err := cloudsim.All(ctx, c.ListNetworks, cloudsim.ListOptions{})
	if err != nil {
		return out, err
	}
	exists := map[cloudsim.NetworkID]bool{}
	for _, n := range networks {
		exists[n.ID] = true
	}
	for _, r := range records {
		g, err := groupOf(r)
		if err != nil {
			return out, err
		}
		if exists[g.Network] { // a deleted network leaves the records of its groups
			out.Items = append(out.Items, g)
		}
	}
	for _, n := range networks {
		g := defaultGroupOf(n)
		if !slices.ContainsFunc(out.Items, func(have group) bool { return have.number == g.number }) {
			out.Items = append(out.Items, g)
		}
	}
	out.Items = slices.DeleteFunc(out.Items, func(g group) bool { return g.number <= after })
	slices.SortFunc(out.Items, func(a, b group) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

type securityGroup struct {
	Owner       string            `xml:"ownerId"`
	ID          string            `xml:"groupId"`
	Name        string            `xml:"groupName"`
	Description string            `xml:"groupDescription"`
	VPCID       string            `xml:"vpcId"`
	Ingress     items[permission] `xml:"ipPermissions"`
	Egress      items[permission] `xml:"ipPermissionsEgress"`
	Tags        items[tag]        `xml:"tagSet"`
}

// permission contains the rules with the same protocol and ports.
type permission struct {
	Protocol string           `xml:"ipProtocol"`
	From     *int             `xml:"fromPort,omitempty"`
	To       *int             `xml:"toPort,omitempty"`
	Groups   items[groupPair] `xml:"groups"`
	IPv4     items[ipv4Range] `xml:"ipRanges"`
	IPv6     items[ipv6Range] `xml:"ipv6Ranges"`
}

type groupPair struct {
	User        string `xml:"userId"`
	Group       string `xml:"groupId"`
	Description string `xml:"description,omitempty"`
}

type ipv4Range struct {
	CIDR        string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type ipv6Range struct {
	CIDR        string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

// groupIdentifier is a security group of an instance.
type groupIdentifier struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

// permissionsOf groups rules as EC2 does.
func permissionsOf(p cloudsim.ProjectID, rules []rule) (out items[permission]) {
	for _, r := range rules {
		at := slices.IndexFunc(out.Items, func(have permission) bool {
			return have.Protocol == r.Protocol && (have.From == nil || *have.From == r.From && *have.To == r.To)
		})
		if at < 0 {
			at = len(out.Items)
			one := permission{Protocol: r.Protocol}
			if r.Protocol != "-1" {
				one.From, one.To = new(r.From), new(r.To)
			}
			out.Items = append(out.Items, one)
		}
		to := &out.Items[at]
		switch {
		case r.Group != "":
			to.Groups.Items = append(to.Groups.Items, groupPair{account(p), r.Group, r.Description})
		case strings.Contains(r.CIDR, ":"):
			to.IPv6.Items = append(to.IPv6.Items, ipv6Range{r.CIDR, r.Description})
		default:
			to.IPv4.Items = append(to.IPv4.Items, ipv4Range{r.CIDR, r.Description})
		}
	}
	return out
}

type describeGroupsAnswer struct {
	ec2Answer
	Groups items[securityGroup] `xml:"securityGroupInfo"`
	Next   string               `xml:"nextToken,omitempty"`
}

// describeGroups lists security groups. Each group permits all outgoing connections.
func describeGroups(q *query) (any, error) {
	found, next, err := list(q, groups, nil)
	if err != nil {
		return nil, err
	}
	out := &describeGroupsAnswer{Next: next}
	for _, g := range found {
		out.Groups.Items = append(out.Groups.Items, securityGroup{
			Owner: account(g.Project), ID: g.id(), Name: g.Name, Description: g.Description, VPCID: idOf(prefixVPC, g.Network),
			Ingress: permissionsOf(g.Project, g.Rules), Egress: permissionsOf(g.Project, []rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}}), Tags: tagsOf(g.Meta),
		})
	}
	return out, nil
}

type createGroupAnswer struct {
	ec2Answer
	Group string     `xml:"groupId"`
	Tags  items[tag] `xml:"tagSet"`
}

// groupTextRE is the format of the names and descriptions of groups in EC2.
var groupTextRE = regexp.MustCompile(`^[-A-Za-z0-9 ._:/()#,@\[\]+=&;{}!$*]{1,255}$`)

// groupText returns the required name or description of a group.
func (q *query) groupText(name string) string {
	v := q.required(name)
	if v != "" && !groupTextRE.MatchString(v) {
		q.fail(invalid(name, v, "1 to 255 letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*"))
	}
	return v
}

func createGroup(q *query) (any, error) {
	doc := groupDocument{Name: q.groupText("GroupName"), Description: q.groupText("GroupDescription"), Rules: []rule{}}
	vpcID, given := q.text("VpcId"), q.tagsFor("security-group")
	if strings.HasPrefix(doc.Name, "sg-") || strings.EqualFold(doc.Name, defaultGroup) {
		q.fail(invalid("GroupName", doc.Name, "different from "+defaultGroup+" and not begin with sg-"))
	}
	if err := q.end(); err != nil {
		return nil, err
	}
	network, err := groupNetwork(q, vpcID)
	if err != nil {
		return nil, err
	}
	doc.Network = network.ID
	// Each request has another id. So a second request for the same name gets an error, as in EC2.
	labels, err := dialect.WithLabels(given, map[string]string{labelRequest: q.ID})
	if err != nil {
		return nil, err
	}
	g, err := storeGroup(q, group{groupDocument: doc}, labels)
	if errors.Is(err, cloudsim.Exists) {
		return nil, coded(http.StatusBadRequest, "InvalidGroup.Duplicate", "the security group "+clip(doc.Name)+" exists already in the VPC "+idOf(prefixVPC, network.ID))
	}
	if err != nil {
		return nil, err
	}
	return &createGroupAnswer{Group: g.id(), Tags: tagsOf(g.Meta)}, nil
}

// groupNetwork returns the network of a new group: the VPC with an id, or the default VPC if the
// id is "".
func groupNetwork(q *query, id string) (cloudsim.Network, error) {
	if id != "" {
		found, err := byIDs(q, vpcs, []string{id}, nil)
		if err != nil {
			return cloudsim.Network{}, err
		}
		return found[0], nil
	}
	l, err := q.Cloud.ListNetworks(q.Context(), cloudsim.ListOptions{Name: cloudsim.DefaultNetwork})
	if err != nil {
		return cloudsim.Network{}, err
	}
	if len(l.Items) == 0 {
		return cloudsim.Network{}, coded(http.StatusBadRequest, "VPCIdNotSpecified", "the project has no default VPC: set VpcId")
	}
	return l.Items[0], nil
}

// storeGroup creates or updates the record of a group. It returns Stale if another caller has
// changed the group since it was read.
func storeGroup(q *query, g group, labels map[string]string) (group, error) {
	doc, err := json.Marshal(g.groupDocument)
	if err != nil {
		return g, err
	}
	var r cloudsim.Record
	if g.ID == "" {
		r, err = q.Cloud.CreateRecord(q.Context(), cloudsim.CreateRecord{Kind: groupRecords, Name: recordName(g.Network, g.Name), Labels: labels, Document: doc})
		if errors.Is(err, cloudsim.Exists) && g.Name == defaultGroup {
			return g, cloudsim.Errorf(cloudsim.Stale, "another caller has changed the default group")
		}
	} else {
		r, err = q.Cloud.UpdateRecord(q.Context(), g.ID, cloudsim.UpdateRecord{Labels: labels, Document: doc}, g.Revision)
	}
	if err != nil {
		return g, err
	}
	return groupOf(r)
}

func deleteGroup(q *query) (any, error) {
	id := q.required("GroupId")
	if err := q.end(); err != nil {
		return nil, err
	}
	found, err := byIDs(q, groups, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	g := found[0]
	if g.Name == defaultGroup {
		return nil, coded(http.StatusBadRequest, "CannotDelete", "the security group "+id+" is the default group of its VPC: EC2 does not delete default groups")
	}
	all, err := every(q, groups)
	if err != nil {
		return nil, err
	}
	for _, other := range all {
		if other.number != g.number && slices.ContainsFunc(other.Rules, func(r rule) bool { return r.Group == id }) {
			return nil, coded(http.StatusBadRequest, "DependencyViolation", "a rule of the security group "+other.id()+" names "+id+": revoke this rule first")
		}
	}
	users, err := loadBalancersWith(q, g)
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, coded(http.StatusBadRequest, "DependencyViolation", "the load balancer "+dialect.OtherName(users[0].Meta)+" uses the security group "+id+": delete the load balancer first")
	}
	return &returnAnswer{Return: true}, q.Cloud.DeleteRecord(q.Context(), g.ID, g.Revision)
}

// The variable protocols maps the values of the parameter IpProtocol to the names of protocols in
// rules.
var protocols = map[string]string{
	"-1": "-1", "tcp": "tcp", "6": "tcp", "udp": "udp", "17": "udp", "icmp": "icmp", "1": "icmp", "icmpv6": "icmpv6", "58": "icmpv6",
}

// The method rules returns the rules in the list IpPermissions.
func (q *query) rules() (all []rule) {
	const list = "IpPermissions"
	q.each(list, func(prefix string) {
		r := rule{Protocol: protocols[strings.ToLower(q.left[prefix+"IpProtocol"])]}
		if v := q.text(prefix + "IpProtocol"); r.Protocol == "" {
			q.fail(invalid(prefix+"IpProtocol", v, "tcp, udp, icmp, icmpv6 or -1"))
		}
		switch r.Protocol {
		case "-1": // EC2 ignores the ports
			_, _ = q.text(prefix+"FromPort"), q.text(prefix+"ToPort")
		case "tcp", "udp":
			r.From = q.requiredInteger(prefix+"FromPort", 0, 65535)
			r.To = q.requiredInteger(prefix+"ToPort", r.From, 65535)
		default:
			r.From, r.To = q.integer(prefix+"FromPort", -1, 255, -1), q.integer(prefix+"ToPort", -1, 255, -1)
		}
		before := len(all)
		add := func(source rule) {
			r.CIDR, r.Group, r.Description = source.CIDR, source.Group, source.Description
			all = append(all, r)
		}
		for _, family := range []struct{ list, field string }{{"IpRanges", "CidrIp"}, {"Ipv6Ranges", "CidrIpv6"}} {
			q.each(prefix+family.list, func(at string) {
				add(rule{CIDR: q.cidr(at+family.field, family.field == "CidrIpv6"), Description: q.text(at + "Description")})
			})
		}
		q.each(prefix+"Groups", func(at string) {
			_ = q.text(at + "UserId") // the dialect knows only groups of the caller's project
			add(rule{Group: q.required(at + "GroupId"), Description: q.text(at + "Description")})
		})
		if len(all) == before {
			q.fail(coded(http.StatusBadRequest, "MissingParameter", "the permission "+strings.TrimSuffix(prefix, ".")+" must have a source in IpRanges, Ipv6Ranges or Groups"))
		}
	})
	if len(all) == 0 {
		q.fail(coded(http.StatusBadRequest, "MissingParameter", "the parameter "+list+" is required"))
	}
	return all
}

// cidr returns a required range of addresses in its canonical form.
func (q *query) cidr(name string, ipv6 bool) string {
	v := q.text(name)
	p, err := netip.ParsePrefix(v)
	if err != nil || p.Addr().Is6() != ipv6 || p.Addr().Is4In6() {
		family := "IPv4"
		if ipv6 {
			family = "IPv6"
		}
		q.fail(invalid(name, v, "a range of "+family+" addresses in CIDR notation"))
		return ""
	}
	return p.Masked().String()
}

func authorizeIngress(q *query) (any, error) {
	return changeRules(q, func(g *group, given []rule) error {
		for _, r := range given {
			if slices.ContainsFunc(g.Rules, r.same) {
				return coded(http.StatusBadRequest, "InvalidPermission.Duplicate", fmt.Sprintf("the security group %s has this rule already: protocol %s, ports %d to %d, source %s", g.id(), r.Protocol, r.From, r.To, r.CIDR+r.Group))
			}
			g.Rules = append(g.Rules, r)
		}
		if len(g.Rules) > maxRules {
			return coded(http.StatusBadRequest, "RulesPerSecurityGroupLimitExceeded", fmt.Sprintf("a security group has at most %d rules", maxRules))
		}
		return nil
	})
}

func revokeIngress(q *query) (any, error) {
	return changeRules(q, func(g *group, given []rule) error {
		for _, r := range given {
			at := slices.IndexFunc(g.Rules, r.same)
			if at < 0 {
				return coded(http.StatusBadRequest, "InvalidPermission.NotFound", fmt.Sprintf("the security group %s has no such rule: protocol %s, ports %d to %d, source %s", g.id(), r.Protocol, r.From, r.To, r.CIDR+r.Group))
			}
			g.Rules = slices.Delete(g.Rules, at, at+1)
		}
		return nil
	})
}

// changeRules changes the rules of the group GroupId with the rules of the request.
func changeRules(q *query, change func(*group, []rule) error) (any, error) {
	id, given := q.required("GroupId"), q.rules()
	if err := q.end(); err != nil {
		return nil, err
	}
	for _, r := range given {
		if r.Group == "" {
			continue
		}
		if _, err := byIDs(q, groups, []string{r.Group}, nil); err != nil {
			return nil, err
		}
	}
	for range dialect.Attempts {
		found, err := byIDs(q, groups, []string{id}, nil)
		if err != nil {
			return nil, err
		}
		g := found[0]
		if err := change(&g, given); err != nil {
			return nil, err
		}
		// The load balancers change before the record. So if a call fails, the rules in the record
		// are old, and the next attempt of the caller changes the load balancers again. They also
		// change after the record, because another caller may change another group of the same
		// load balancer at the same time.
		if err = applyGroup(q, g); err != nil {
			return nil, err
		}
		if _, err = storeGroup(q, g, g.Labels); errors.Is(err, cloudsim.Stale) {
			continue
		}
		if err == nil {
			err = applyGroup(q, g)
		}
		return &returnAnswer{Return: true}, err
	}
	return nil, cloudsim.Errorf(cloudsim.Conflict, "other callers change the security group %s at the same time: repeat the request", id)
}
