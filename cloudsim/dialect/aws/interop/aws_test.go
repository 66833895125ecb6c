// Package interop tests the AWS dialect with AWS's SDK. It is a separate module, so that the
// main module does not need the SDK.
package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// world contains a cloud with a dialect, and AWS's clients for this dialect.
type world struct {
	*ec2.Client
	ecr    *ecr.Client
	elb    *elb.Client
	elbv2  *elbv2.Client
	sts    *sts.Client
	cloud  *client.Client
	engine chan *engine.Engine
	cfg    sdk.Config

	mu   sync.Mutex
	seen map[string]int // number of successful calls; the key is the name of the call
}

// start runs a cloud and a dialect until the test ends.
func start(tb testing.TB, opts ...cloudtest.Option) *world {
	tb.Helper()
	w := &world{engine: make(chan *engine.Engine, 1), seen: map[string]int{}}
	w.cloud = cloudtest.Start(tb, append(opts,
		cloudtest.WithConfig(func(c *engine.Config) { c.Registry = "registry.test:5000" }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			w.engine <- e
			<-ctx.Done()
			return nil
		}))...)
	ctx := context.Background()
	must(w.cloud.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "aws"}))(tb)
	must(w.cloud.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "aws", Role: cloudsim.RoleWriter, ServiceAccount: "aws"}))(tb)
	k := must(w.cloud.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: "aws"}))(tb)
	d := aws.New()
	for i := range d.Calls {
		name, call := d.Calls[i].Name, d.Calls[i].Do
		d.Calls[i].Do = func(r *dialect.Request) (int, any, error) {
			status, body, err := call(r)
			if err == nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.seen[name]++
			}
			return status, body, err
		}
	}
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport}))
	tb.Cleanup(srv.Close)
	w.cfg = sdk.Config{Region: "sim-1", BaseEndpoint: sdk.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider(string(k.ID), k.Secret, "")}
	w.Client, w.ecr, w.elb, w.elbv2, w.sts = ec2.NewFromConfig(w.cfg), ecr.NewFromConfig(w.cfg), elb.NewFromConfig(w.cfg), elbv2.NewFromConfig(w.cfg), sts.NewFromConfig(w.cfg)
	return w
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func (w *world) instance(tb testing.TB, name, zone string, labels map[string]string) cloudsim.Instance {
	tb.Helper()
	return must(w.cloud.CreateInstance(context.Background(), cloudsim.CreateInstance{Name: name, Zone: zone, Type: "small", Labels: labels}))(tb)
}

func mustFail(t *testing.T, err error, code string) {
	t.Helper()
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok || e.ErrorCode() != code || !strings.Contains(err.Error(), "req-") {
		t.Errorf("got error %v, want code %s and the id of the request", err, code)
	}
}

// failsJSON checks that an error of the protocol JSON 1.1 has the given code. It does not check the
// id of the request, because the SDK does not show this id for the protocol JSON 1.1.
func failsJSON(t *testing.T, err error, code string) {
	t.Helper()
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != code {
		t.Errorf("got error %v, want code %s", err, code)
	}
}

// TestEachCall makes each supported call with AWS's SDK. It fails unless each supported call
// succeeds at least once.
func TestEachCall(t *testing.T) {
	w, ctx := start(t), t.Context()
	a := w.instance(t, "node-1", "sim-1a", map[string]string{"kubernetes.io/cluster/lab": "owned"})
	w.instance(t, "node-2", "sim-1b", nil)
	must(w.cloud.StopInstance(ctx, "i-000002"))(t)
	must(w.cloud.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 10, Labels: map[string]string{"a": "b"}}))(t)
	must(w.cloud.AttachDisk(ctx, "disk-000001", cloudsim.AttachDisk{Instance: a.ID}))(t)

	me := must(w.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}))(t)
	if *me.Account != "000000000001" || *me.Arn != "arn:aws:iam::000000000001:user/aws" || *me.UserId != "sa-000001" {
		t.Errorf("caller: got account %s, ARN %s, user id %s; want account 000000000001, user aws, user id sa-000001", *me.Account, *me.Arn, *me.UserId)
	}

	all := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t)
	if len(all.Reservations) != 2 {
		t.Fatalf("instances: got %d, want 2", len(all.Reservations))
	}
	i := all.Reservations[0].Instances[0]
	if *i.InstanceId != "i-00000000000000001" || i.State.Name != types.InstanceStateNameRunning || *i.State.Code != 16 || *i.PrivateDnsName != "node-1" ||
		*i.Placement.AvailabilityZone != "sim-1a" || i.InstanceType != "small" || *i.VpcId != "vpc-00000000000000001" || !i.LaunchTime.Equal(a.CreatedAt.Truncate(time.Millisecond)) ||
		*i.PrivateIpAddress != a.InternalIP() || *all.Reservations[0].OwnerId != "000000000001" {
		t.Errorf("instance: got %+v", i)
	}
	if len(i.NetworkInterfaces) != 1 || i.NetworkInterfaces[0].Status != types.NetworkInterfaceStatusInUse || *i.NetworkInterfaces[0].PrivateIpAddresses[0].PrivateIpAddress != a.InternalIP() {
		t.Errorf("network interfaces: got %+v", i.NetworkInterfaces)
	}
	if len(i.Tags) != 1 || *i.Tags[0].Key != "kubernetes.io/cluster/lab" || *i.Tags[0].Value != "owned" {
		t.Errorf("tags: got %+v", i.Tags)
	}
	if s := all.Reservations[1].Instances[0].State.Name; s != types.InstanceStateNameStopped {
		t.Errorf("stopped instance: got state %s", s)
	}

	for name, tc := range map[string]struct {
		filter string
		values []string
		want   []string
	}{
		"name":          {"private-dns-name", []string{"node-2"}, []string{"node-2"}},
		"two names":     {"private-dns-name", []string{"node-1", "node-2"}, []string{"node-1", "node-2"}},
		"pattern":       {"private-dns-name", []string{"node-?"}, []string{"node-1", "node-2"}},
		"star":          {"private-dns-name", []string{"*-1"}, []string{"node-1"}},
		"escaped":       {"private-dns-name", []string{`node-\?`}, nil},
		"state":         {"instance-state-name", []string{"stopped"}, []string{"node-2"}},
		"state code":    {"instance-state-code", []string{"16"}, []string{"node-1"}},
		"zone":          {"availability-zone", []string{"sim-1b"}, []string{"node-2"}},
		"tag":           {"tag:kubernetes.io/cluster/lab", []string{"owned", "shared"}, []string{"node-1"}},
		"tag key":       {"tag-key", []string{"kubernetes.io/cluster/*"}, []string{"node-1"}},
		"id":            {"instance-id", []string{"i-00000000000000002"}, []string{"node-2"}},
		"address":       {"private-ip-address", []string{a.InternalIP()}, []string{"node-1"}},
		"type":          {"instance-type", []string{"small"}, []string{"node-1", "node-2"}},
		"VPC":           {"vpc-id", []string{"vpc-00000000000000001"}, []string{"node-1", "node-2"}},
		"unknown VPC":   {"vpc-id", []string{"vpc-00000000000000002"}, nil},
		"subnet":        {"subnet-id", []string{*i.SubnetId}, []string{"node-1", "node-2"}},
		"unknown value": {"private-dns-name", []string{"node-3"}, nil},
	} {
		got := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{{Name: &tc.filter, Values: tc.values}}}))(t)
		if n := namesOf(got.Reservations); !slices.Equal(n, tc.want) {
			t.Errorf("filter %s: got %v, want %v", name, n, tc.want)
		}
	}
	both := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000002", "i-00000000000000001", "i-00000000000000002"}}))(t)
	if n := namesOf(both.Reservations); !slices.Equal(n, []string{"node-2", "node-1"}) {
		t.Errorf("instances by their ids: got %v", n)
	}
	_, err := w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000009"}})
	mustFail(t, err, "InvalidInstanceID.NotFound")
	_, err = w.CreateVpc(ctx, &ec2.CreateVpcInput{})
	mustFail(t, err, "UnsupportedOperation")

	if top := must(w.DescribeInstanceTopology(ctx, &ec2.DescribeInstanceTopologyInput{InstanceIds: []string{*i.InstanceId}}))(t); len(top.Instances) != 0 {
		t.Errorf("topology: got %+v, want none", top.Instances)
	}
	zones := must(w.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{}))(t).AvailabilityZones
	if len(zones) != 3 || *zones[1].ZoneName != "sim-1b" || *zones[1].RegionName != "sim-1" || zones[1].State != types.AvailabilityZoneStateAvailable || *zones[1].ZoneId == "" {
		t.Errorf("zones: got %+v", zones)
	}
	if one := must(w.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{"sim-1c"}}))(t); len(one.AvailabilityZones) != 1 {
		t.Errorf("zone by name: got %+v", one.AvailabilityZones)
	}
	if regions := must(w.DescribeRegions(ctx, &ec2.DescribeRegionsInput{}))(t).Regions; len(regions) != 1 || *regions[0].RegionName != "sim-1" {
		t.Errorf("regions: got %+v", regions)
	}
	if vpcs := must(w.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{*i.VpcId}}))(t).Vpcs; len(vpcs) != 1 || !*vpcs[0].IsDefault || *vpcs[0].CidrBlock == "" {
		t.Errorf("VPCs: got %+v", vpcs)
	}
	vpc := types.Filter{Name: sdk.String("vpc-id"), Values: []string{*i.VpcId}}
	if subnets := must(w.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []types.Filter{vpc}}))(t).Subnets; len(subnets) == 0 || *subnets[0].SubnetId != *i.SubnetId || *subnets[0].CidrBlock == "" {
		t.Errorf("subnets: got %+v", subnets)
	}
	vols := must(w.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{}))(t).Volumes
	if len(vols) != 1 || *vols[0].VolumeId != "vol-00000000000000001" || *vols[0].Size != 10 || vols[0].State != types.VolumeStateInUse || *vols[0].Attachments[0].InstanceId != *i.InstanceId || vols[0].Attachments[0].State != types.VolumeAttachmentStateAttached || *vols[0].Tags[0].Value != "b" {
		t.Errorf("volumes: got %+v", vols)
	}

	must(w.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*i.InstanceId, *vols[0].VolumeId}, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("shop")}, {Key: sdk.String("empty"), Value: sdk.String("")}}}))(t)
	if got := must(w.cloud.GetInstance(ctx, a.ID))(t).Labels; len(got) != 3 || got["team"] != "shop" {
		t.Errorf("labels of the instance: got %v", got)
	}
	if got := must(w.cloud.GetDisk(ctx, "disk-000001"))(t).Labels; len(got) != 3 || got["team"] != "shop" || got["a"] != "b" {
		t.Errorf("labels of the disk: got %v", got)
	}
	must(w.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{*i.InstanceId}, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("other")}, {Key: sdk.String("empty")}}}))(t)
	if got := must(w.cloud.GetInstance(ctx, a.ID))(t).Labels; len(got) != 2 || got["team"] != "shop" {
		t.Errorf("labels after the removal of two tags, one with another value: got %v, want 2 labels, one of them team=shop", got)
	}
	must(w.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{*i.InstanceId}}))(t)
	if got := must(w.cloud.GetInstance(ctx, a.ID))(t).Labels; len(got) != 0 {
		t.Errorf("labels after the removal of all tags: got %v", got)
	}

	testSecurityGroups(t, w)
	testLoadBalancer(t, w)
	testInstances(t, w)
	testVolumes(t, w)
	testRoutes(t, w)
	testNetworkLoadBalancer(t, w)
	testECR(t, w)
	for _, c := range aws.New().Calls {
		if w.seen[c.Name] == 0 {
			t.Errorf("no test makes the call %s with AWS's SDK", c.Name)
		}
	}
}

func namesOf(all []types.Reservation) (names []string) {
	for _, r := range all {
		for _, i := range r.Instances {
			names = append(names, *i.PrivateDnsName)
		}
	}
	return names
}

// TestClockSkew proves that a call of the SDK succeeds although the cloud's clock is years ahead of
// the machine's clock. The SDK reads the cloud's time from the header Date of an answer.
func TestClockSkew(t *testing.T) {
	w := start(t, cloudtest.WithFrozenClock(time.Time{}))
	if got := must(w.DescribeRegions(t.Context(), &ec2.DescribeRegionsInput{}))(t); len(got.Regions) != 1 {
		t.Errorf("regions: got %+v, want 1", got.Regions)
	}
}

// TestPages proves that the pages of a list together contain each instance once. It uses random
// filters and page sizes, and computes the expected result itself.
func TestPages(t *testing.T) {
	w, ctx := start(t), t.Context()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable random numbers
	type made struct{ name, zone, team string }
	var model []made
	for n := range 40 {
		m := made{fmt.Sprintf("node-%d", n), "sim-1" + string("abc"[random.IntN(3)]), string("xy"[random.IntN(2)])}
		model = append(model, m)
		w.instance(t, m.name, m.zone, map[string]string{"team": m.team})
	}
	for range 60 {
		zone, team, size := "sim-1"+string("abc"[random.IntN(3)]), string("xy"[random.IntN(2)]), int32(5+random.IntN(20)) //nolint:gosec // small
		var filters []types.Filter
		byZone, byTeam := random.IntN(2) == 0, random.IntN(2) == 0
		if byZone {
			filters = append(filters, types.Filter{Name: sdk.String("availability-zone"), Values: []string{zone}})
		}
		if byTeam {
			filters = append(filters, types.Filter{Name: sdk.String("tag:team"), Values: []string{team}})
		}
		var want, got []string
		for _, m := range model {
			if (!byZone || m.zone == zone) && (!byTeam || m.team == team) {
				want = append(want, m.name)
			}
		}
		for p := ec2.NewDescribeInstancesPaginator(w, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: &size}); p.HasMorePages(); {
			l := must(p.NextPage(ctx))(t)
			if n := len(l.Reservations); n > int(size) || n < int(size) && l.NextToken != nil {
				t.Errorf("page of %d instances, want %d", n, size)
			}
			got = append(got, namesOf(l.Reservations)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("filters %v %v, page size %d: got %v, want %v", byZone, byTeam, size, got, want)
		}
	}
}
