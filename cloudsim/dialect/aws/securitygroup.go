package aws

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// This cloud has no security groups, so the dialect stores each security group in a record. The
// rules of a security group affect only load balancers (see the functions permit and
// permitTargets). Instances accept all connections.

const (
	groupRecords = "aws-security-group" // kind of the records
	groupPrefix  = "rec"                // prefix of the ids of records
	// defaultGroup is the name of the group that each VPC has. EC2 reserves this name.
	defaultGroup = "default"
	// defaultGroups is an offset. The number in the id of a VPC's default group is the number of
	// the VPC plus this offset. So the default group has an id even before the dialect stores the
	// group in a record.
	defaultGroups int64 = 1 << 56
)

// group is a security group. The default group of a VPC has no record until a caller changes the
// group.
type group struct {
	cloudsim.Record       // its ID is "" if there is no record
	groupDocument         // its Name is the name in EC2; the record has another name
	number          int64 // number in the id of the group
}

// groupDocument is the content of the record that stores a security group, as JSON.
type groupDocument struct {
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Network     cloudsim.NetworkID `json:"network"`
	Rules       []rule             `json:"rules"`
}

func (g group) id() string { return fmt.Sprintf("%s-%017x", prefixGroup, g.number) }

func recordName(n cloudsim.NetworkID, name string) string { return string(n) + "/" + name }

// defaultGroupOf returns the initial default group of a VPC. The dialect uses this group until a
// record stores the default group. As in EC2, the only rule of the initial group permits
// connections from instances that have the group.
func defaultGroupOf(n cloudsim.Network) group {
	g := group{number: defaultGroups + dialect.Number(n.ID), groupDocument: groupDocument{Name: defaultGroup, Description: "default VPC security group", Network: n.ID}}
	g.Rules = []rule{{Protocol: "-1", Group: g.id()}}
	g.Project = n.Project
	return g
}

func defaultGroupID(n cloudsim.NetworkID) string {
	return group{number: defaultGroups + dialect.Number(n)}.id()
}

// groupOf returns the security group that a record stores.
func groupOf(r cloudsim.Record) (group, error) {
	s, err := decodeRecord[groupDocument](r)
	g := group{Record: r, groupDocument: s.Doc, number: dialect.Number(r.ID)}
	if g.Name == defaultGroup {
		g.number = defaultGroups + dialect.Number(g.Network)
	}
	return g, err
}

var groups = kind[group, cloudsim.RecordID]{
	one: "security group", param: "GroupId", prefix: prefixGroup, code: "InvalidGroup", malformed: "InvalidGroupId.Malformed", own: groupPrefix,
	get: getGroup, all: listGroups,
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
		"owner-id": func(g group) []string { return []string{accountOf(g.Project)} },
		"vpc-id":   func(g group) []string { return []string{idOf(prefixVPC, g.Network)} },
	},
}

// getGroup returns the security group with the given id. For the id of a VPC's default group, see
// defaultGroups. The id of any other group is the id of the record that stores the group.
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

// listGroups returns one page with all security groups that have ids after o.After. The groups are
// sorted by the numbers in their ids. The default groups come last, because their ids contain the
// largest numbers.
func listGroups(c *client.Client, ctx context.Context, o cloudsim.ListOptions) (out cloudsim.List[group], err error) { //nolint:revive // the order of a method expression
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
		if exists[g.Network] { // if a network is deleted, the records of its groups remain
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

// groupIdentifier is a security group of an instance.
type groupIdentifier struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type describeGroupsAnswer struct {
	ec2Answer
	Groups items[securityGroup] `xml:"securityGroupInfo"`
	Next   string               `xml:"nextToken,omitempty"`
}

// describeGroups lists security groups. In the answer, each group permits all outgoing connections,
// because the dialect does not support rules for outgoing connections.
func describeGroups(q *query) (any, error) {
	found, next, err := listMatching(q, groups, nil)
	if err != nil {
		return nil, err
	}
	out := &describeGroupsAnswer{Next: next}
	for _, g := range found {
		out.Groups.Items = append(out.Groups.Items, securityGroup{
			Owner: accountOf(g.Project), ID: g.id(), Name: g.Name, Description: g.Description, VPCID: idOf(prefixVPC, g.Network),
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

// groupTextRE is EC2's format for the names and descriptions of groups, and for the descriptions of
// rules.
var groupTextRE = regexp.MustCompile(`^[-A-Za-z0-9 ._:/()#,@\[\]+=&;{}!$*]{1,255}$`)

// decodeGroupText returns the value of a required parameter that contains the name or the
// description of a security group.
func (q *query) decodeGroupText(name string) string {
	q.checkPresent(q.left[name] != "", name)
	return q.decodeOptionalGroupText(name)
}

// decodeOptionalGroupText returns the value of an optional parameter with the format groupTextRE.
// It returns "" if the parameter is absent.
func (q *query) decodeOptionalGroupText(name string) string {
	v := q.text(name)
	if v != "" && !groupTextRE.MatchString(v) {
		q.fail(errInvalid(name, v, "1 to 255 letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*"))
	}
	return v
}

func createGroup(q *query) (any, error) {
	doc := groupDocument{Name: q.decodeGroupText("GroupName"), Description: q.decodeGroupText("GroupDescription"), Rules: []rule{}}
	vpcID, given := q.text("VpcId"), q.decodeTagsFor("security-group")
	if strings.HasPrefix(doc.Name, "sg-") || strings.EqualFold(doc.Name, defaultGroup) {
		q.fail(errInvalid("GroupName", doc.Name, "different from "+defaultGroup+" and not begin with sg-"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	network, err := findNetwork(q, vpcID)
	if err != nil {
		return nil, err
	}
	doc.Network = network.ID
	// If a request to create a record equals an earlier request, the cloud returns the record that
	// the earlier request created. But EC2 refuses a second group with the same name. The label
	// labelUnique makes each request different. So the cloud refuses a second request with the same
	// name, as EC2 does.
	labels, err := dialect.WithLabels(given, map[string]string{labelUnique: rand.Text()})
	if err != nil {
		return nil, err
	}
	g, err := storeGroup(q, group{groupDocument: doc}, labels)
	err = translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "SecurityGroupLimitExceeded"})
	if errors.Is(err, cloudsim.Exists) {
		return nil, coded(http.StatusBadRequest, "InvalidGroup.Duplicate", "the security group "+clip(doc.Name)+" exists already in the VPC "+idOf(prefixVPC, network.ID))
	}
	if err != nil {
		return nil, err
	}
	return &createGroupAnswer{Group: g.id(), Tags: tagsOf(g.Meta)}, nil
}

// findNetwork returns the VPC with the given id. If the id is "", findNetwork returns the default
// VPC of the project.
func findNetwork(q *query, id string) (cloudsim.Network, error) {
	if id != "" {
		found, err := readByIDs(q, vpcs, []string{id}, nil)
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
		return cloudsim.Network{}, coded(http.StatusBadRequest, "VPCIdNotSpecified", "the project has no default VPC: set VpcId, or SubnetId in RunInstances")
	}
	return l.Items[0], nil
}

// storeGroup creates or updates the record of a security group. It returns Stale if another caller
// has changed the group after this caller read the group. It returns Exists for a new group if the
// VPC already has a group with the same name.
func storeGroup(q *query, g group, labels map[string]string) (group, error) {
	s := storedObject[groupDocument]{g.Record, g.groupDocument}
	s.Name, s.Labels = recordName(g.Network, g.Name), labels
	s, err := storeObject(q, groupRecords, s)
	switch {
	case errors.Is(err, cloudsim.Exists) && g.Name == defaultGroup:
		return g, cloudsim.Errorf(cloudsim.Stale, "another caller has changed the default security group: repeat the request")
	case err != nil:
		return g, err
	}
	return groupOf(s.Record)
}

func deleteGroup(q *query) (any, error) {
	id := q.requiredText("GroupId")
	if err := q.finish(); err != nil {
		return nil, err
	}
	found, err := readByIDs(q, groups, []string{id}, nil)
	if err != nil {
		return nil, err
	}
	g := found[0]
	if g.Name == defaultGroup {
		return nil, coded(http.StatusBadRequest, "CannotDelete", "the security group "+id+" is the default group of its VPC: EC2 does not delete default groups")
	}
	all, err := listAll(q, groups)
	if err != nil {
		return nil, err
	}
	for _, other := range all {
		if other.number != g.number && slices.ContainsFunc(other.Rules, func(r rule) bool { return r.Group == id }) {
			return nil, coded(http.StatusBadRequest, "DependencyViolation", "a rule of the security group "+other.id()+" names "+id+": revoke this rule first")
		}
	}
	users, err := listLoadBalancers(q, usesGroup(g)) // includes load balancers that the cloud is deleting
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, coded(http.StatusBadRequest, "DependencyViolation", "the load balancer "+dialect.OtherName(users[0].Meta)+" uses the security group "+id+": delete the load balancer first")
	}
	if user, err := findInstanceWith(q, id); err != nil {
		return nil, err
	} else if user != "" {
		return nil, coded(http.StatusBadRequest, "DependencyViolation", "the instance "+idOf(prefixInstance, user)+" uses the security group "+id+": change its groups first")
	}
	return &returnAnswer{Return: true}, q.Cloud.DeleteRecord(q.Context(), g.ID, g.Revision)
}
