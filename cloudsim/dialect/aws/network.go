package aws

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

type vpc struct {
	ID      string     `xml:"vpcId"`
	Owner   string     `xml:"ownerId"`
	State   string     `xml:"state"`
	CIDR    string     `xml:"cidrBlock"`
	Tenancy string     `xml:"instanceTenancy"`
	Default bool       `xml:"isDefault"`
	Tags    items[tag] `xml:"tagSet"`
}

type describeVPCsAnswer struct {
	ec2Answer
	VPCs items[vpc] `xml:"vpcSet"`
	Next string     `xml:"nextToken,omitempty"`
}

func stateOf[S ~string](s S) string {
	if s == "creating" {
		return "pending"
	}
	return "available"
}

var vpcs = kind[cloudsim.Network, cloudsim.NetworkID]{
	one: "VPC", param: "VpcId", prefix: prefixVPC, code: "InvalidVpcID", own: "net",
	get: (*client.Client).GetNetwork, all: (*client.Client).ListNetworks,
	meta: func(n cloudsim.Network) cloudsim.Meta { return n.Meta },
	id:   func(n cloudsim.Network) string { return string(n.ID) },
	values: map[string]func(cloudsim.Network) []string{
		"cidr":       func(n cloudsim.Network) []string { return []string{n.IPv4} },
		"is-default": func(n cloudsim.Network) []string { return []string{strconv.FormatBool(n.Default)} },
		"state":      func(n cloudsim.Network) []string { return []string{stateOf(n.State)} },
		"vpc-id":     func(n cloudsim.Network) []string { return []string{idOf(prefixVPC, n.ID)} },
	},
}

// describeVPCs lists the networks of the project. The list is the same in all regions, because a
// network belongs to no region.
func describeVPCs(q *query) (any, error) {
	found, next, err := listMatching(q, vpcs, nil)
	if err != nil {
		return nil, err
	}
	out := &describeVPCsAnswer{Next: next}
	for _, n := range found {
		out.VPCs.Items = append(out.VPCs.Items, vpc{
			ID: idOf(prefixVPC, n.ID), Owner: accountOf(n.Project), State: stateOf(n.State), CIDR: n.IPv4, Tenancy: "default", Default: n.Default, Tags: tagsOf(n.Meta),
		})
	}
	return out, nil
}

type subnet struct {
	ID    string     `xml:"subnetId"`
	Owner string     `xml:"ownerId"`
	State string     `xml:"state"`
	VPCID string     `xml:"vpcId"`
	CIDR  string     `xml:"cidrBlock"`
	Free  int        `xml:"availableIpAddressCount"`
	Zone  string     `xml:"availabilityZone,omitempty"`
	Tags  items[tag] `xml:"tagSet"`
}

type describeSubnetsAnswer struct {
	ec2Answer
	Subnets items[subnet] `xml:"subnetSet"`
	Next    string        `xml:"nextToken,omitempty"`
}

var subnets = kind[cloudsim.Subnet, cloudsim.SubnetID]{
	one: "subnet", param: "SubnetId", prefix: prefixSubnet, code: "InvalidSubnetID", own: "subnet",
	get: (*client.Client).GetSubnet, all: (*client.Client).ListSubnets,
	meta: func(s cloudsim.Subnet) cloudsim.Meta { return s.Meta },
	id:   func(s cloudsim.Subnet) string { return string(s.ID) },
	values: map[string]func(cloudsim.Subnet) []string{
		"availability-zone": func(s cloudsim.Subnet) []string { return []string{s.Zone} },
		"cidr":              func(s cloudsim.Subnet) []string { return []string{s.IPv4} },
		"cidr-block":        func(s cloudsim.Subnet) []string { return []string{s.IPv4} },
		"state":             func(s cloudsim.Subnet) []string { return []string{stateOf(s.State)} },
		"subnet-id":         func(s cloudsim.Subnet) []string { return []string{idOf(prefixSubnet, s.ID)} },
		"vpc-id":            func(s cloudsim.Subnet) []string { return []string{idOf(prefixVPC, s.Network)} },
	},
}

// subnetsWithZones returns a copy of the package variable subnets with new functions get and all.
// In EC2, each subnet has a zone, but a subnet of this cloud can have no zone. If a subnet has no
// zone, the new functions set its zone to the first zone in the region of the request.
func subnetsWithZones(q *query) (kind[cloudsim.Subnet, cloudsim.SubnetID], error) {
	k := subnets
	all, err := listAll(q, zones)
	if err != nil {
		return k, err
	}
	region, first := q.region(), ""
	for _, z := range all {
		if z.Region == region && (first == "" || z.Name < first) {
			first = z.Name
		}
	}
	k.get = func(c *client.Client, ctx context.Context, id cloudsim.SubnetID) (cloudsim.Subnet, error) { //nolint:revive // the order of a method expression
		s, err := subnets.get(c, ctx, id)
		s.Zone = cmp.Or(s.Zone, first)
		return s, err
	}
	k.all = func(c *client.Client, ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Subnet], error) { //nolint:revive // the order of a method expression
		l, err := subnets.all(c, ctx, o)
		for n := range l.Items {
			l.Items[n].Zone = cmp.Or(l.Items[n].Zone, first)
		}
		return l, err
	}
	return k, nil
}

// inRegion returns a function that reports whether a subnet can contain instances of a region.
func inRegion(region string) func(cloudsim.Subnet) bool {
	return func(s cloudsim.Subnet) bool { return s.Region == "" || s.Region == region }
}

func describeSubnets(q *query) (any, error) {
	k, err := subnetsWithZones(q)
	if err != nil {
		return nil, err
	}
	found, next, err := listMatching(q, k, inRegion(q.region()))
	if err != nil {
		return nil, err
	}
	out := &describeSubnetsAnswer{Next: next}
	for _, s := range found {
		out.Subnets.Items = append(out.Subnets.Items, subnet{
			ID: idOf(prefixSubnet, s.ID), Owner: accountOf(s.Project), State: stateOf(s.State), VPCID: idOf(prefixVPC, s.Network), CIDR: s.IPv4, Free: countAddresses(s.IPv4), Zone: s.Zone, Tags: tagsOf(s.Meta),
		})
	}
	return out, nil
}

// countAddresses returns the number of addresses that instances can use in a range. The cloud does
// not report how many addresses are in use, so this number includes addresses that instances
// already have.
func countAddresses(cidr string) int {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || p.Bits() > 30 {
		return 0
	}
	return 1<<(32-p.Bits()) - 3
}
