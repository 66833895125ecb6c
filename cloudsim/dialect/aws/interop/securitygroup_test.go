package interop

import (
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func tcp(port int32, cidrs ...string) types.IpPermission {
	p := types.IpPermission{IpProtocol: sdk.String("tcp"), FromPort: &port, ToPort: &port}
	for _, c := range cidrs {
		p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: sdk.String(c)})
	}
	return p
}

func (w *world) createGroup(t *testing.T, name string) string {
	t.Helper()
	return *must(w.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: &name, Description: sdk.String("of a test"), VpcId: sdk.String("vpc-00000000000000001"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("shop")}}}},
	}))(t).GroupId
}

func (w *world) authorize(t *testing.T, id string, all ...types.IpPermission) {
	t.Helper()
	must(w.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &id, IpPermissions: all}))(t)
}

func (w *world) revoke(t *testing.T, id string, all ...types.IpPermission) {
	t.Helper()
	must(w.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{GroupId: &id, IpPermissions: all}))(t)
}

func (w *world) group(t *testing.T, id string) types.SecurityGroup {
	t.Helper()
	return must(w.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}}))(t).SecurityGroups[0]
}

// testSecurityGroups makes each call about security groups. It also lists route tables and subnets.
func testSecurityGroups(t *testing.T, w *world) {
	ctx := t.Context()
	instance := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t).Reservations[0].Instances[0]
	if len(instance.SecurityGroups) != 1 || *instance.SecurityGroups[0].GroupName != "default" || *instance.NetworkInterfaces[0].Groups[0].GroupId != *instance.SecurityGroups[0].GroupId {
		t.Fatalf("security groups of the instance: got %+v", instance.SecurityGroups)
	}
	def := *instance.SecurityGroups[0].GroupId
	if g := w.group(t, def); *g.VpcId != *instance.VpcId || len(g.IpPermissions) != 1 || *g.IpPermissions[0].UserIdGroupPairs[0].GroupId != def || len(g.IpPermissionsEgress) != 1 {
		t.Errorf("default group: got %+v", g)
	}

	id := w.createGroup(t, "k8s-elb-shop")
	g := w.group(t, id)
	if *g.GroupName != "k8s-elb-shop" || *g.Description != "of a test" || *g.OwnerId != "000000000001" || len(g.IpPermissions) != 0 || *g.Tags[0].Value != "shop" {
		t.Errorf("new group: got %+v", g)
	}
	_, err := w.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: g.GroupName, Description: g.Description, VpcId: g.VpcId})
	mustFail(t, err, "InvalidGroup.Duplicate")

	icmp := types.IpPermission{IpProtocol: sdk.String("icmp"), FromPort: sdk.Int32(3), ToPort: sdk.Int32(4), IpRanges: []types.IpRange{{CidrIp: sdk.String("10.0.0.0/8")}}}
	v6 := types.IpPermission{IpProtocol: sdk.String("6"), FromPort: sdk.Int32(80), ToPort: sdk.Int32(80), Ipv6Ranges: []types.Ipv6Range{{CidrIpv6: sdk.String("fd00::/8"), Description: sdk.String("VPN")}}}
	w.authorize(t, id, tcp(80, "10.0.0.0/8", "192.0.2.0/24"), tcp(443, "10.0.0.0/8"), icmp, v6)
	_, err = w.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &id, IpPermissions: []types.IpPermission{tcp(81, "10.0.0.0/8"), tcp(80, "192.0.2.7/24")}})
	mustFail(t, err, "InvalidPermission.Duplicate") // EC2 clears the last bits of 192.0.2.7/24
	g = w.group(t, id)
	if len(g.IpPermissions) != 3 || len(g.IpPermissions[0].IpRanges) != 2 || *g.IpPermissions[0].IpRanges[1].CidrIp != "192.0.2.0/24" || *g.IpPermissions[0].Ipv6Ranges[0].Description != "VPN" ||
		*g.IpPermissions[1].FromPort != 443 || *g.IpPermissions[2].IpProtocol != "icmp" || *g.IpPermissions[2].ToPort != 4 {
		t.Errorf("rules: got %+v", g.IpPermissions)
	}

	// g.IpPermissions[1] is from an answer and contains empty lists. The SDK sends these lists, so
	// the dialect must accept empty lists in requests.
	w.revoke(t, id, g.IpPermissions[1], tcp(80, "192.0.2.0/24"))
	if g = w.group(t, id); len(g.IpPermissions) != 2 || len(g.IpPermissions[0].IpRanges) != 1 {
		t.Errorf("rules after revocation: got %+v", g.IpPermissions)
	}
	_, err = w.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &id, IpPermissions: []types.IpPermission{tcp(80, "10.0.0.0/8"), tcp(443, "10.0.0.0/8")}})
	mustFail(t, err, "InvalidPermission.NotFound")
	if g = w.group(t, id); len(g.IpPermissions) != 2 {
		t.Errorf("rules after a failed revocation: got %+v", g.IpPermissions)
	}

	// A default group has no record until its first change. This change creates a record, but the
	// id of the group stays the same.
	from := types.IpPermission{IpProtocol: sdk.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &id}}}
	w.authorize(t, def, from)
	must(w.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{def, id}, Tags: []types.Tag{{Key: sdk.String("a"), Value: sdk.String("b")}}}))(t)
	if d := w.group(t, def); len(d.IpPermissions) != 1 || len(d.IpPermissions[0].UserIdGroupPairs) != 2 || d.IpPermissions[0].FromPort != nil || len(d.Tags) != 1 {
		t.Errorf("changed default group: got %+v", d)
	}
	for name, tc := range map[string]struct {
		filter string
		values []string
		want   []string
	}{
		"id":           {"group-id", []string{id}, []string{id}},
		"name":         {"group-name", []string{"k8s-elb-*"}, []string{id}},
		"default":      {"group-name", []string{"default"}, []string{def}},
		"VPC":          {"vpc-id", []string{*instance.VpcId}, []string{id, def}},
		"other VPC":    {"vpc-id", []string{"vpc-00000000000000002"}, nil},
		"source group": {"ip-permission.group-id", []string{id}, []string{def}},
		"source range": {"ip-permission.cidr", []string{"fd00::/8"}, []string{id}},
		"tag":          {"tag:team", []string{"shop"}, []string{id}},
		"description":  {"description", []string{"of a test"}, []string{id}},
		"owner":        {"owner-id", []string{"000000000001"}, []string{id, def}},
	} {
		var got []string
		for _, g := range must(w.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{{Name: &tc.filter, Values: tc.values}}}))(t).SecurityGroups {
			got = append(got, *g.GroupId)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("filter %s: got %v, want %v", name, got, tc.want)
		}
	}

	_, err = w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &id})
	mustFail(t, err, "DependencyViolation")
	w.revoke(t, def, from)
	_, err = w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &def})
	mustFail(t, err, "CannotDelete")
	must(w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &id}))(t)
	_, err = w.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
	mustFail(t, err, "InvalidGroup.NotFound")

	tables := must(w.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{*instance.VpcId}}}}))(t).RouteTables
	if len(tables) != 1 || !*tables[0].Associations[0].Main || *tables[0].Routes[0].GatewayId != "local" || *tables[0].Routes[1].GatewayId != "igw-00000000000000001" || *tables[0].Routes[1].DestinationCidrBlock != "0.0.0.0/0" {
		t.Errorf("route tables: got %+v", tables)
	}
	subnets := must(w.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []types.Filter{{Name: sdk.String("availability-zone"), Values: []string{"sim-1a"}}}}))(t).Subnets
	if len(subnets) != 1 || *subnets[0].AvailabilityZone != "sim-1a" {
		t.Errorf("subnets of the first zone: got %+v", subnets)
	}
}

// TestGroupPages proves that the pages of a list contain each security group once.
func TestGroupPages(t *testing.T) {
	w := start(t)
	var want, got []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		want = append(want, w.createGroup(t, name))
	}
	want = append(want, "sg-00100000000000001") // the default group
	for p := ec2.NewDescribeSecurityGroupsPaginator(w, &ec2.DescribeSecurityGroupsInput{MaxResults: sdk.Int32(5)}); p.HasMorePages(); {
		l := must(p.NextPage(t.Context()))(t)
		if len(l.SecurityGroups) > 5 {
			t.Errorf("page: got %d groups, want at most 5", len(l.SecurityGroups))
		}
		for _, g := range l.SecurityGroups {
			got = append(got, *g.GroupId)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got groups %v, want %v", got, want)
	}
}
