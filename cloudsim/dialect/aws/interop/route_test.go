package interop

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const mainTable = "rtb-00000000000000001"

func (w *world) table(t *testing.T) types.RouteTable {
	t.Helper()
	return must(w.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{{Name: sdk.String("route-table-id"), Values: []string{mainTable}}}}))(t).RouteTables[0]
}

func (w *world) routeTo(t *testing.T, destination string) (types.Route, bool) {
	t.Helper()
	for _, r := range w.table(t).Routes {
		if sdk.ToString(r.DestinationCidrBlock) == destination {
			return r, true
		}
	}
	return types.Route{}, false
}

// testRoutes makes each call about routes, and sets and deletes a tag of a route table.
func testRoutes(t *testing.T, w *world) {
	ctx := t.Context()
	nodes := must(w.RunInstances(ctx, runRequest(2, 2)))(t).Instances
	tag := types.Tag{Key: sdk.String("kubernetes.io/cluster/lab"), Value: sdk.String("owned")}
	for range 2 {
		must(w.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{mainTable}, Tags: []types.Tag{tag}}))(t)
	}
	if got := w.table(t).Tags; len(got) != 1 || *got[0].Key != *tag.Key || *got[0].Value != "owned" {
		t.Errorf("tags of the route table: got %+v", got)
	}
	if got := must(w.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{{Name: sdk.String("tag-key"), Values: []string{*tag.Key}}}}))(t).RouteTables; len(got) != 1 {
		t.Errorf("route tables with the tag: got %+v", got)
	}
	if got := must(w.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}))(t).Vpcs[0].Tags; len(got) != 0 {
		t.Errorf("tags of the VPC: got %+v, want none", got)
	}
	must(w.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{mainTable}, Tags: []types.Tag{tag}}))(t)
	if got := w.table(t).Tags; len(got) != 0 {
		t.Errorf("tags of the route table after DeleteTags: got %+v, want none", got)
	}

	create := &ec2.CreateRouteInput{RouteTableId: sdk.String(mainTable), DestinationCidrBlock: sdk.String("10.244.7.0/24"), InstanceId: nodes[0].InstanceId}
	for range 2 { // the second call changes nothing
		must(w.CreateRoute(ctx, create))(t)
	}
	r, ok := w.routeTo(t, "10.244.7.0/24")
	if !ok || sdk.ToString(r.InstanceId) != *nodes[0].InstanceId || r.State != types.RouteStateActive || r.Origin != types.RouteOriginCreateRoute || *r.NetworkInterfaceId != *nodes[0].NetworkInterfaces[0].NetworkInterfaceId {
		t.Errorf("new route: got %+v", r)
	}
	_, err := w.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: create.RouteTableId, DestinationCidrBlock: create.DestinationCidrBlock, InstanceId: nodes[1].InstanceId})
	mustFail(t, err, "RouteAlreadyExists")
	must(w.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{RouteTableId: create.RouteTableId, DestinationCidrBlock: create.DestinationCidrBlock, NetworkInterfaceId: nodes[1].NetworkInterfaces[0].NetworkInterfaceId}))(t)
	if r, _ := w.routeTo(t, "10.244.7.0/24"); sdk.ToString(r.InstanceId) != *nodes[1].InstanceId {
		t.Errorf("replaced route: got %+v", r)
	}
	must(w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{*nodes[1].InstanceId}}))(t)
	if r, _ := w.routeTo(t, "10.244.7.0/24"); r.State != types.RouteStateBlackhole || sdk.ToString(r.InstanceId) != *nodes[1].InstanceId {
		t.Errorf("route to a stopped instance: got %+v", r)
	}
	must(w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*nodes[0].InstanceId, *nodes[1].InstanceId}}))(t)
	if r, ok := w.routeTo(t, "10.244.7.0/24"); !ok || r.State != types.RouteStateBlackhole || r.InstanceId != nil {
		t.Errorf("route to a terminated instance: got %+v", r)
	}
	remove := &ec2.DeleteRouteInput{RouteTableId: create.RouteTableId, DestinationCidrBlock: create.DestinationCidrBlock}
	must(w.DeleteRoute(ctx, remove))(t)
	_, err = w.DeleteRoute(ctx, remove)
	mustFail(t, err, "InvalidRoute.NotFound")
}

// TestRouteToSameDestinationAgain proves that CreateRoute waits while the cloud deletes an earlier
// route to the same destination. It also proves that ReplaceRoute deletes the existing route, and
// waits before it creates the new route. Each deletion takes one second.
func TestRouteToSameDestinationAgain(t *testing.T) {
	w, ctx := start(t, cloudtest.WithProfile(engine.Profile{Network: time.Second})), t.Context()
	nodes := must(w.RunInstances(ctx, runRequest(2, 2)))(t).Instances
	create := &ec2.CreateRouteInput{RouteTableId: sdk.String(mainTable), DestinationCidrBlock: sdk.String("10.244.7.0/24"), InstanceId: nodes[0].InstanceId}
	must(w.CreateRoute(ctx, create))(t)
	must(w.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: create.RouteTableId, DestinationCidrBlock: create.DestinationCidrBlock}))(t)
	if r, ok := w.routeTo(t, "10.244.7.0/24"); ok {
		t.Errorf("deleted route: got %+v, want none", r)
	}
	create.InstanceId = nodes[1].InstanceId
	must(w.CreateRoute(ctx, create))(t)
	must(w.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{RouteTableId: create.RouteTableId, DestinationCidrBlock: create.DestinationCidrBlock, InstanceId: nodes[0].InstanceId}))(t)
	if r, ok := w.routeTo(t, "10.244.7.0/24"); !ok || sdk.ToString(r.InstanceId) != *nodes[0].InstanceId {
		t.Errorf("replaced route: got %+v", r)
	}
}
