package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

const (
	defaultVPC    = "vpc-00000000000000001"
	defaultSubnet = "subnet-00000000000000001"
	arns          = "arn:aws:elasticloadbalancing:sim-1:000000000001:"
)

func (w *world) createNetwork(tb testing.TB, name string, groups ...string) string {
	tb.Helper()
	return *must(w.elbv2.CreateLoadBalancer(context.Background(), &elbv2.CreateLoadBalancerInput{
		Name: &name, Type: types.LoadBalancerTypeEnumNetwork, SubnetMappings: []types.SubnetMapping{{SubnetId: sdk.String(defaultSubnet)}}, SecurityGroups: groups,
	}))(tb).LoadBalancers[0].LoadBalancerArn
}

func (w *world) createTargets(tb testing.TB, name string, protocol types.ProtocolEnum, port int32) string {
	tb.Helper()
	return *must(w.elbv2.CreateTargetGroup(context.Background(), targetsInput(name, protocol, port)))(tb).TargetGroups[0].TargetGroupArn
}

func targetsInput(name string, protocol types.ProtocolEnum, port int32) *elbv2.CreateTargetGroupInput {
	return &elbv2.CreateTargetGroupInput{Name: &name, Protocol: protocol, Port: &port, VpcId: sdk.String(defaultVPC), TargetType: types.TargetTypeEnumInstance}
}

func forwardTo(group string) []types.Action {
	return []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: &group}}
}

func listenerInput(lb, group string, protocol types.ProtocolEnum, port int32) *elbv2.CreateListenerInput {
	return &elbv2.CreateListenerInput{LoadBalancerArn: &lb, Protocol: protocol, Port: &port, DefaultActions: forwardTo(group)}
}

func (w *world) listen(tb testing.TB, lb, group string, protocol types.ProtocolEnum, port int32) string {
	tb.Helper()
	return *must(w.elbv2.CreateListener(context.Background(), listenerInput(lb, group, protocol, port)))(tb).Listeners[0].ListenerArn
}

func targetsOf(ids ...string) (all []types.TargetDescription) {
	for _, id := range ids {
		all = append(all, types.TargetDescription{Id: &id})
	}
	return all
}

func (w *world) register(tb testing.TB, group string, ids ...string) {
	tb.Helper()
	must(w.elbv2.RegisterTargets(context.Background(), &elbv2.RegisterTargetsInput{TargetGroupArn: &group, Targets: targetsOf(ids...)}))(tb)
}

// health returns a text for each target of a target group. The text contains the id, the port and
// the state of the target, and the reason for this state.
func (w *world) health(tb testing.TB, group string, ids ...string) (all []string) {
	tb.Helper()
	for _, d := range must(w.elbv2.DescribeTargetHealth(context.Background(), &elbv2.DescribeTargetHealthInput{TargetGroupArn: &group, Targets: targetsOf(ids...)}))(tb).TargetHealthDescriptions {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s:%d %s %s", *d.Target.Id, *d.Target.Port, d.TargetHealth.State, d.TargetHealth.Reason)))
	}
	return all
}

// spec returns the listeners of a load balancer in the cloud as text.
func (w *world) spec(t *testing.T, name string) (all []string) {
	t.Helper()
	for _, li := range w.ownLoadBalancer(t, name).Listeners {
		all = append(all, listenerText(li))
	}
	return all
}

func listenerText(li cloudsim.Listener) string {
	s := fmt.Sprintf("%s to %d check %s/%d", li.Key(), li.TargetPort, li.HealthCheck.Protocol, li.HealthCheck.Port)
	for _, t := range li.Targets {
		s += " " + string(t.Instance)
	}
	return s
}

// testNetworkLoadBalancer makes each call about network load balancers. The calls have the same
// order as in AWS's cloud controller manager.
func testNetworkLoadBalancer(t *testing.T, w *world) {
	ctx := t.Context()
	_, err := w.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{Names: []string{"net"}})
	mustFail(t, err, "LoadBalancerNotFound")
	id := w.createGroup(t, "k8s-net")
	tags := []types.Tag{{Key: sdk.String("kubernetes.io/service-name"), Value: sdk.String("default/net")}}
	create := &elbv2.CreateLoadBalancerInput{
		Name: sdk.String("net"), Type: types.LoadBalancerTypeEnumNetwork, SubnetMappings: []types.SubnetMapping{{SubnetId: sdk.String(defaultSubnet)}}, SecurityGroups: []string{id}, Tags: tags,
	}
	l := must(w.elbv2.CreateLoadBalancer(ctx, create))(t).LoadBalancers[0]
	own := w.ownLoadBalancer(t, "net")
	if want := arns + "loadbalancer/net/net/" + fmt.Sprintf("%016x", 2); *l.LoadBalancerArn != want || own.ID != "lb-000002" {
		t.Errorf("ARN of %s: got %s, want %s", own.ID, *l.LoadBalancerArn, want)
	}
	if want := "net-2.elb." + strings.ReplaceAll(own.IP, ".", "-") + ".amazonaws.com"; *l.DNSName != want {
		t.Errorf("host name: got %q, want %q", *l.DNSName, want)
	}
	if l.Type != types.LoadBalancerTypeEnumNetwork || l.Scheme != types.LoadBalancerSchemeEnumInternetFacing || *l.VpcId != defaultVPC || l.State.Code != types.LoadBalancerStateEnumActive ||
		len(l.AvailabilityZones) != 1 || *l.AvailabilityZones[0].SubnetId != defaultSubnet || *l.AvailabilityZones[0].ZoneName != "sim-1a" || !slices.Equal(l.SecurityGroups, []string{id}) ||
		l.CreatedTime.Sub(own.CreatedAt).Abs() > time.Second || l.IpAddressType != types.IpAddressTypeIpv4 {
		t.Errorf("load balancer: got %+v", l)
	}
	lb := *l.LoadBalancerArn
	if all := must(w.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{LoadBalancerArns: []string{lb}}))(t).LoadBalancers; len(all) != 1 || *all[0].DNSName != *l.DNSName {
		t.Errorf("load balancer by its ARN: got %+v", all)
	}

	input := targetsInput("web", types.ProtocolEnumTcp, 30080)
	input.HealthCheckProtocol, input.HealthCheckPort, input.HealthCheckPath, input.Tags = types.ProtocolEnumHttp, sdk.String("10256"), sdk.String("/healthz"), tags
	input.HealthCheckIntervalSeconds, input.HealthyThresholdCount, input.UnhealthyThresholdCount = sdk.Int32(10), sdk.Int32(2), sdk.Int32(3)
	g := must(w.elbv2.CreateTargetGroup(ctx, input))(t).TargetGroups[0]
	web := *g.TargetGroupArn
	if !strings.HasPrefix(web, arns+"targetgroup/web/") || *g.TargetGroupName != "web" || g.Protocol != types.ProtocolEnumTcp || *g.Port != 30080 || *g.VpcId != defaultVPC || g.TargetType != types.TargetTypeEnumInstance ||
		g.HealthCheckProtocol != types.ProtocolEnumHttp || *g.HealthCheckPort != "10256" || *g.HealthCheckPath != "/healthz" || *g.HealthCheckIntervalSeconds != 10 || *g.HealthCheckTimeoutSeconds != 6 ||
		*g.HealthyThresholdCount != 2 || *g.UnhealthyThresholdCount != 3 || *g.Matcher.HttpCode != "200-399" || !*g.HealthCheckEnabled || len(g.LoadBalancerArns) != 0 {
		t.Errorf("target group: got %+v", g)
	}
	w.register(t, web, "i-00000000000000001")
	if h := w.health(t, web); !slices.Equal(h, []string{"i-00000000000000001:30080 unused Target.NotInUse"}) {
		t.Errorf("health without a listener: got %v", h)
	}
	listener := listenerInput(lb, web, types.ProtocolEnumTcp, 80)
	listener.Tags = tags
	li := must(w.elbv2.CreateListener(ctx, listener))(t).Listeners[0]
	if !strings.HasPrefix(*li.ListenerArn, arns+"listener/net/net/0000000000000002/") || *li.LoadBalancerArn != lb || *li.Port != 80 || li.Protocol != types.ProtocolEnumTcp ||
		len(li.DefaultActions) != 1 || *li.DefaultActions[0].TargetGroupArn != web || li.DefaultActions[0].Type != types.ActionTypeEnumForward {
		t.Errorf("listener: got %+v", li)
	}
	if s := w.spec(t, "net"); !slices.Equal(s, []string{"tcp/80 to 30080 check http/10256"}) {
		t.Errorf("listeners without a rule of the security group: got %v", s)
	}
	w.authorize(t, id, tcp(80, "10.0.0.0/8"))
	own = w.ownLoadBalancer(t, "net")
	if s := w.spec(t, "net"); !slices.Equal(s, []string{"tcp/80 to 30080 check http/10256 i-000001"}) || !slices.Equal(own.SourceRanges, []string{"10.0.0.0/8"}) || own.DrainTimeoutSeconds != 300 ||
		own.Listeners[0].HealthCheck.Path != "/healthz" || own.Listeners[0].HealthCheck.ExpectedCodes != "200-399" || own.Listeners[0].HealthCheck.IntervalMillis != 10_000 {
		t.Errorf("listeners: got %v with ranges %v and drain timeout %d", s, own.SourceRanges, own.DrainTimeoutSeconds)
	}
	if h := w.health(t, web); !slices.Equal(h, []string{"i-00000000000000001:30080 initial Elb.RegistrationInProgress"}) {
		t.Errorf("health: got %v", h)
	}
	w.register(t, web, "i-00000000000000002", "i-00000000000000001")
	must(w.elbv2.DeregisterTargets(ctx, &elbv2.DeregisterTargetsInput{TargetGroupArn: &web, Targets: targetsOf("i-00000000000000001", "i-00000000000000099")}))(t)
	if s := w.spec(t, "net"); !slices.Equal(s, []string{"tcp/80 to 30080 check http/10256 i-000002"}) {
		t.Errorf("listeners after other targets: got %v", s)
	}
	listed := must(w.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: &lb}))(t).Listeners
	if len(listed) != 1 || *listed[0].ListenerArn != *li.ListenerArn {
		t.Errorf("listeners: got %+v", listed)
	}
	for name, in := range map[string]*elbv2.DescribeTargetGroupsInput{
		"name": {Names: []string{"web"}}, "ARN": {TargetGroupArns: []string{web}}, "load balancer": {LoadBalancerArn: &lb}, "all": {},
	} {
		if all := must(w.elbv2.DescribeTargetGroups(ctx, in))(t).TargetGroups; len(all) != 1 || *all[0].TargetGroupArn != web || !slices.Equal(all[0].LoadBalancerArns, []string{lb}) {
			t.Errorf("target groups by %s: got %+v", name, all)
		}
	}

	// The next calls change the target group and a listener. The listener keeps its ARN.
	g = must(w.elbv2.ModifyTargetGroup(ctx, &elbv2.ModifyTargetGroupInput{TargetGroupArn: &web, HealthCheckProtocol: types.ProtocolEnumTcp, HealthCheckPort: sdk.String("traffic-port"), HealthyThresholdCount: sdk.Int32(4)}))(t).TargetGroups[0]
	if g.HealthCheckProtocol != types.ProtocolEnumTcp || *g.HealthCheckPort != "traffic-port" || g.HealthCheckPath != nil || *g.HealthCheckTimeoutSeconds != 10 || *g.HealthyThresholdCount != 4 || *g.UnhealthyThresholdCount != 3 {
		t.Errorf("changed target group: got %+v", g)
	}
	both := w.createTargets(t, "both", types.ProtocolEnumTcpUdp, 30053)
	w.register(t, both, "i-00000000000000001")
	changed := must(w.elbv2.ModifyListener(ctx, &elbv2.ModifyListenerInput{ListenerArn: li.ListenerArn, Port: sdk.Int32(53), Protocol: types.ProtocolEnumTcpUdp, DefaultActions: forwardTo(both)}))(t).Listeners[0]
	w.authorize(t, id, tcp(53, "10.0.0.0/8"))
	if s := w.spec(t, "net"); *changed.ListenerArn != *li.ListenerArn || *changed.Port != 53 || !slices.Equal(s, []string{"tcp/53 to 30053 check tcp/30053 i-000001", "udp/53 to 30053 check tcp/30053"}) {
		t.Errorf("changed listener: got %+v and %v", changed, s)
	}
	w.listen(t, lb, web, types.ProtocolEnumTcp, 80)
	if s := w.spec(t, "net"); !slices.Contains(s, "tcp/80 to 30080 check tcp/30080 i-000002") {
		t.Errorf("listeners after a second listener: got %v, want one at tcp/80 with i-000002", s)
	}
	attributes := func(all []types.LoadBalancerAttribute) (text string) {
		for _, a := range all {
			text += *a.Key + "=" + sdk.ToString(a.Value) + " "
		}
		return text
	}
	if a := attributes(must(w.elbv2.DescribeLoadBalancerAttributes(ctx, &elbv2.DescribeLoadBalancerAttributesInput{LoadBalancerArn: &lb}))(t).Attributes); a !=
		"deletion_protection.enabled=false load_balancing.cross_zone.enabled=false access_logs.s3.enabled=false access_logs.s3.bucket= access_logs.s3.prefix= " {
		t.Errorf("attributes: got %s", a)
	}
	set := func(key, value string) string {
		return attributes(must(w.elbv2.ModifyLoadBalancerAttributes(ctx, &elbv2.ModifyLoadBalancerAttributesInput{LoadBalancerArn: &lb, Attributes: []types.LoadBalancerAttribute{{Key: &key, Value: &value}}}))(t).Attributes)
	}
	if a := set("load_balancing.cross_zone.enabled", "true"); !strings.Contains(a, "load_balancing.cross_zone.enabled=true") {
		t.Errorf("changed attributes: got %s", a)
	}
	groupAttributes := func(all []types.TargetGroupAttribute) (text string) {
		for _, a := range all {
			text += *a.Key + "=" + *a.Value + " "
		}
		return text
	}
	if a := groupAttributes(must(w.elbv2.DescribeTargetGroupAttributes(ctx, &elbv2.DescribeTargetGroupAttributesInput{TargetGroupArn: &web}))(t).Attributes); a !=
		"deregistration_delay.timeout_seconds=300 preserve_client_ip.enabled=true proxy_protocol_v2.enabled=false stickiness.enabled=false " {
		t.Errorf("attributes of the target group: got %s", a)
	}
	if a := groupAttributes(must(w.elbv2.ModifyTargetGroupAttributes(ctx, &elbv2.ModifyTargetGroupAttributesInput{TargetGroupArn: &web, Attributes: []types.TargetGroupAttribute{
		{Key: sdk.String("deregistration_delay.timeout_seconds"), Value: sdk.String("400")}, {Key: sdk.String("proxy_protocol_v2.enabled"), Value: sdk.String("true")}, {Key: sdk.String("preserve_client_ip.enabled"), Value: sdk.String("false")},
	}}))(t).Attributes); a != "deregistration_delay.timeout_seconds=400 preserve_client_ip.enabled=false proxy_protocol_v2.enabled=true stickiness.enabled=false " {
		t.Errorf("changed attributes of the target group: got %s", a)
	}
	if own = w.ownLoadBalancer(t, "net"); own.DrainTimeoutSeconds != 400 || own.Listeners[2].ProxyProtocol != cloudsim.ProxyV2 || own.Listeners[0].ProxyProtocol != "" {
		t.Errorf("load balancer with changed attributes: got %+v", own.LoadBalancerSpec)
	}

	other := w.createGroup(t, "k8s-other")
	w.authorize(t, other, tcp(80, "192.0.2.0/24"))
	if r := must(w.elbv2.SetSecurityGroups(ctx, &elbv2.SetSecurityGroupsInput{LoadBalancerArn: &lb, SecurityGroups: []string{other}}))(t); !slices.Equal(r.SecurityGroupIds, []string{other}) {
		t.Errorf("security groups: got %v", r.SecurityGroupIds)
	}
	if own = w.ownLoadBalancer(t, "net"); !slices.Equal(own.SourceRanges, []string{"192.0.2.0/24"}) || len(own.Listeners[0].Targets) != 0 || len(own.Listeners[2].Targets) != 1 {
		t.Errorf("load balancer with another security group: got %+v, want range 192.0.2.0/24 and targets only at port 80", own.LoadBalancerSpec)
	}
	_, err = w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &other})
	mustFail(t, err, "DependencyViolation")
	resources := []string{lb, web, *li.ListenerArn}
	must(w.elbv2.AddTags(ctx, &elbv2.AddTagsInput{ResourceArns: resources, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("web")}}}))(t)
	must(w.elbv2.RemoveTags(ctx, &elbv2.RemoveTagsInput{ResourceArns: resources, TagKeys: []string{"kubernetes.io/service-name", "none"}}))(t)
	for n, d := range must(w.elbv2.DescribeTags(ctx, &elbv2.DescribeTagsInput{ResourceArns: resources}))(t).TagDescriptions {
		if *d.ResourceArn != resources[n] || len(d.Tags) != 1 || *d.Tags[0].Key != "team" || *d.Tags[0].Value != "web" {
			t.Errorf("tags of %s: got %+v", resources[n], d.Tags)
		}
	}

	// Deletion.
	_, err = w.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &web})
	mustFail(t, err, "ResourceInUse")
	must(w.elbv2.DeleteListener(ctx, &elbv2.DeleteListenerInput{ListenerArn: li.ListenerArn}))(t)
	if s := w.spec(t, "net"); len(s) != 1 {
		t.Errorf("listeners after the removal of a listener: got %v, want 1", s)
	}
	must(w.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &both}))(t)
	set("deletion_protection.enabled", "true")
	_, err = w.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &lb})
	mustFail(t, err, "OperationNotPermitted")
	set("deletion_protection.enabled", "false")
	for range 2 { // the second deletion of the same objects also succeeds
		must(w.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &lb}))(t)
		must(w.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &web}))(t)
	}
	for _, kind := range []string{"aws-listener", "aws-target-group"} {
		if left := must(w.cloud.ListRecords(ctx, cloudsim.ListOptions{Kind: kind}))(t).Items; len(left) != 0 {
			t.Errorf("records of the kind %s after the deletion: got %+v", kind, left)
		}
	}
}

// TestNetworkKinds proves that the API elb lists only classic load balancers, and that the API
// elbv2 lists only network load balancers. It also proves that the pages of a list contain each
// resource once.
func TestNetworkKinds(t *testing.T) {
	w, ctx := start(t), t.Context()
	must(w.cloud.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "own", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}}}))(t)
	must(w.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{LoadBalancerName: sdk.String("classic"), Listeners: []elbtypes.Listener{listen(80, 30080)}, Subnets: []string{defaultSubnet}}))(t)
	group := w.createGroup(t, "net")
	want := []string{"net-A", "net-a", "c", "d", "e"}
	for n, name := range want {
		lb := w.createNetwork(t, name, []string{group}[:n%2]...)
		w.listen(t, lb, w.createTargets(t, name, types.ProtocolEnumUdp, 53), types.ProtocolEnumUdp, 53)
	}
	if all := must(w.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{}))(t).LoadBalancerDescriptions; len(all) != 1 || *all[0].LoadBalancerName != "classic" {
		t.Errorf("classic load balancers: got %+v", all)
	}
	for _, name := range []string{"net-A", "net-a"} {
		_, err := w.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{name}})
		mustFail(t, err, "LoadBalancerNotFound")
	}
	for _, name := range []string{"classic", "own"} {
		_, err := w.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{Names: []string{name}})
		mustFail(t, err, "LoadBalancerNotFound")
		arn := arns + "loadbalancer/net/" + name + fmt.Sprintf("/%016x", dialect.Number(w.ownLoadBalancer(t, name).ID))
		_, err = w.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{LoadBalancerArns: []string{arn}})
		mustFail(t, err, "LoadBalancerNotFound")
		_, err = w.elbv2.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{Name: &name, Type: types.LoadBalancerTypeEnumNetwork, Subnets: []string{defaultSubnet}})
		mustFail(t, err, "DuplicateLoadBalancerName")
	}
	_, err := w.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{LoadBalancerName: sdk.String("c"), Listeners: []elbtypes.Listener{listen(80, 30080)}, Subnets: []string{defaultSubnet}})
	mustFail(t, err, "DuplicateLoadBalancerName")

	var got []string
	for p := elbv2.NewDescribeLoadBalancersPaginator(w.elbv2, &elbv2.DescribeLoadBalancersInput{PageSize: sdk.Int32(2)}); p.HasMorePages(); {
		l := must(p.NextPage(ctx))(t).LoadBalancers
		if len(l) > 2 {
			t.Errorf("page: got %d load balancers, want at most 2", len(l))
		}
		for _, d := range l {
			got = append(got, *d.LoadBalancerName)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got load balancers %v, want %v", got, want)
	}
	got = nil
	for p := elbv2.NewDescribeTargetGroupsPaginator(w.elbv2, &elbv2.DescribeTargetGroupsInput{PageSize: sdk.Int32(2)}); p.HasMorePages(); {
		for _, g := range must(p.NextPage(ctx))(t).TargetGroups {
			got = append(got, *g.TargetGroupName)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got target groups %v, want %v", got, want)
	}
	lb := w.createNetwork(t, "ports")
	g := w.createTargets(t, "ports", types.ProtocolEnumTcp, 80)
	var ports, wantPorts []int32
	for port := int32(90); port > 80; port-- {
		w.listen(t, lb, g, types.ProtocolEnumTcp, port)
		wantPorts = append(wantPorts, port)
	}
	for p := elbv2.NewDescribeListenersPaginator(w.elbv2, &elbv2.DescribeListenersInput{LoadBalancerArn: &lb, PageSize: sdk.Int32(3)}); p.HasMorePages(); {
		l := must(p.NextPage(ctx))(t).Listeners
		if len(l) > 3 {
			t.Errorf("page: got %d listeners, want at most 3", len(l))
		}
		for _, li := range l {
			ports = append(ports, *li.Port)
		}
	}
	if !slices.Equal(ports, wantPorts) {
		t.Errorf("got listeners %v, want %v", ports, wantPorts)
	}
}

// TestNetworkWithoutGroups tests a network load balancer without security groups. It proves that
// the rules of the targets' security groups apply to the clients of this load balancer. The ports
// in these rules are the ports of the targets, not the ports of the listeners.
func TestNetworkWithoutGroups(t *testing.T) {
	w := start(t)
	w.instance(t, "node-1", "sim-1a", nil)
	lb, web, dns := w.createNetwork(t, "net"), w.createTargets(t, "web", types.ProtocolEnumTcp, 30080), w.createTargets(t, "dns", types.ProtocolEnumUdp, 30053)
	w.register(t, web, "i-00000000000000001")
	w.register(t, dns, "i-00000000000000001")
	w.listen(t, lb, web, types.ProtocolEnumTcp, 80)
	w.listen(t, lb, dns, types.ProtocolEnumUdp, 53)
	web, dns = "tcp/80 to 30080 check tcp/30080", "udp/53 to 30053 check tcp/30053"
	check := func(step string, ranges []string, want ...string) {
		t.Helper()
		if got := w.spec(t, "net"); !slices.Equal(got, want) || !slices.Equal(w.ownLoadBalancer(t, "net").SourceRanges, ranges) {
			t.Errorf("%s: got %v with ranges %v, want %v with ranges %v", step, got, w.ownLoadBalancer(t, "net").SourceRanges, want, ranges)
		}
	}
	const group = "sg-00100000000000001"
	check("without a rule", nil, web, dns)
	w.authorize(t, group, tcp(80, "0.0.0.0/0"), tcp(53, "0.0.0.0/0"), tcp(30053, "0.0.0.0/0"))
	check("with rules for other ports", nil, web, dns)
	w.authorize(t, group, tcp(30080, "10.0.0.0/8"))
	check("with a rule for TCP", []string{"10.0.0.0/8"}, web+" i-000001", dns)
	udp := tcp(30053, "10.0.0.0/8")
	udp.IpProtocol = sdk.String("udp")
	w.authorize(t, group, udp)
	check("with rules for both", []string{"10.0.0.0/8"}, web+" i-000001", dns+" i-000001")
	w.revoke(t, group, tcp(30080, "10.0.0.0/8"))
	check("with a rule for UDP", []string{"10.0.0.0/8"}, web, dns+" i-000001")
	other := w.createGroup(t, "other")
	must(w.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{InstanceId: sdk.String("i-00000000000000001"), Groups: []string{other}}))(t)
	check("with another group of the target", nil, web, dns)
	w.authorize(t, other, tcp(30080, "192.0.2.0/24"))
	check("with a rule of the other group", []string{"192.0.2.0/24"}, web+" i-000001", dns)
	_, err := w.elbv2.SetSecurityGroups(t.Context(), &elbv2.SetSecurityGroupsInput{LoadBalancerArn: &lb, SecurityGroups: []string{group}})
	mustFail(t, err, "InvalidConfigurationRequest")
}

// TestNetworkHealth proves that the dialect translates each state of a target to a state of AWS.
func TestNetworkHealth(t *testing.T) {
	engines := make(chan *engine.Engine, 1)
	w := start(t, cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		engines <- e
		<-ctx.Done()
		return nil
	}))
	e := <-engines
	var ids []string
	for n := range 4 {
		w.instance(t, fmt.Sprintf("node-%d", n+1), "sim-1a", nil)
		ids = append(ids, fmt.Sprintf("i-%017x", n+1))
	}
	w.authorize(t, "sg-00100000000000001", tcp(80, "0.0.0.0/0"))
	lb, g := w.createNetwork(t, "net"), w.createTargets(t, "net", types.ProtocolEnumTcp, 80)
	w.listen(t, lb, g, types.ProtocolEnumTcp, 80)
	w.register(t, g, ids[:3]...)
	status := cloudsim.LoadBalancerStatus{}
	for n, health := range []cloudsim.TargetHealth{cloudsim.TargetHealthy, cloudsim.TargetUnhealthy, cloudsim.TargetInitial, cloudsim.TargetDraining} {
		status.Targets = append(status.Targets, cloudsim.TargetStatus{Instance: cloudsim.InstanceID(fmt.Sprintf("i-%06x", n+1)), Listener: "tcp/80", Health: health})
	}
	if err := e.ReportLoadBalancer(engine.AsCloud(t.Context()), w.ownLoadBalancer(t, "net").ID, status); err != nil {
		t.Fatal(err)
	}
	want := []string{
		ids[0] + ":80 healthy", ids[1] + ":80 unhealthy Target.FailedHealthChecks", ids[2] + ":80 initial Elb.InitialHealthChecking", ids[3] + ":80 draining Target.DeregistrationInProgress",
	}
	if got := w.health(t, g); !slices.Equal(got, want) {
		t.Errorf("got health %q, want %q", got, want)
	}
	if got := w.health(t, g, ids[1], "i-00000000000000099"); !slices.Equal(got, []string{want[1], "i-00000000000000099:80 unused Target.NotRegistered"}) {
		t.Errorf("health of a registered and an unknown target: got %q, want %q and unused", got, want[1])
	}
	must(w.cloud.DeleteInstance(t.Context(), "i-000002"))(t)
	if got := w.health(t, g); len(got) != 3 || got[1] != want[2] {
		t.Errorf("health after the deletion of an instance: got %q, want 3 targets, the second %q", got, want[2])
	}
}

// TestNetworkFaults lets a call fail when it has made only some of its changes. The SDK repeats a
// call that fails with a status of 500 or more. The test proves that the repeated call makes the
// remaining changes.
func TestNetworkFaults(t *testing.T) {
	w, ctx := start(t), t.Context()
	w.elbv2 = elbv2.New(w.elbv2.Options(), func(o *elbv2.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	})
	w.instance(t, "node-1", "sim-1a", nil)
	w.instance(t, "node-2", "sim-1a", nil)
	w.authorize(t, "sg-00100000000000001", tcp(30080, "0.0.0.0/0"))
	n := 0
	for _, operation := range []string{"records.create", "records.update", "records.delete", "loadBalancers.update"} {
		for _, effect := range []cloudsim.FaultEffectType{cloudsim.FaultError, cloudsim.FaultErrorAfterCommit} {
			for skip := range uint64(3) {
				n++
				name := fmt.Sprintf("net-%d", n)
				run := fmt.Sprintf("%s of the call %d of %s", effect, skip+1, operation)
				lb := w.createNetwork(t, name)
				f := must(w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{
					Match: cloudsim.FaultMatch{Operation: operation, DialectCall: "aws.elbv2.*"}, When: cloudsim.FaultWhen{Skip: skip, Max: 1}, Effect: cloudsim.FaultEffect{Type: effect},
				}}))(t)
				web, other := w.createTargets(t, name, types.ProtocolEnumTcp, 30080), w.createTargets(t, name+"-b", types.ProtocolEnumTcp, 30080)
				w.register(t, web, "i-00000000000000001")
				first, second := w.listen(t, lb, web, types.ProtocolEnumTcp, 80), w.listen(t, lb, web, types.ProtocolEnumTcp, 81)
				w.register(t, web, "i-00000000000000002")
				w.register(t, other, "i-00000000000000002")
				must(w.elbv2.ModifyListener(ctx, &elbv2.ModifyListenerInput{ListenerArn: &first, Port: sdk.Int32(82), DefaultActions: forwardTo(other)}))(t)
				if _, err := w.elbv2.DeleteListener(ctx, &elbv2.DeleteListenerInput{ListenerArn: &second}); err != nil && !strings.Contains(err.Error(), "ListenerNotFound") {
					t.Errorf("%s: delete a listener: %v", run, err) // the first attempt may have deleted the listener
				}
				if s := w.spec(t, name); !slices.Equal(s, []string{"tcp/82 to 30080 check tcp/30080 i-000002"}) {
					t.Errorf("%s: listeners in the cloud: got %v, want only port 82 with the target i-000002", run, s)
				}
				if all := must(w.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: &lb}))(t).Listeners; len(all) != 1 || *all[0].ListenerArn != first {
					t.Errorf("%s: listeners in AWS's API: got %+v, want only %s", run, all, first)
				}
				if err := w.cloud.DeleteFault(ctx, f.ID); err != nil {
					t.Fatal(err)
				}
				must(w.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &lb}))(t)
			}
		}
	}
}

// TestListenerGetsConcurrentTarget proves that a new listener forwards to a target that another
// caller registers at the same time. In this test, the cloud stores the target after the listener.
func TestListenerGetsConcurrentTarget(t *testing.T) {
	w, ctx := start(t), t.Context()
	w.instance(t, "node-1", "sim-1a", nil)
	w.authorize(t, "sg-00100000000000001", tcp(80, "0.0.0.0/0"))
	lb, g := w.createNetwork(t, "net"), w.createTargets(t, "net", types.ProtocolEnumTcp, 80)
	f := must(w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "late", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "records.update", DialectCall: "aws.elbv2.RegisterTargets"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 2000},
	}}))(t)
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := w.elbv2.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: &g, Targets: targetsOf("i-00000000000000001")}); err != nil {
			t.Error(err)
		}
	})
	eventually.Empty(t, func() string {
		if f = must(w.cloud.GetFault(ctx, f.ID))(t); f.Hits == 0 {
			return "the cloud has not received the target"
		}
		return ""
	})
	w.listen(t, lb, g, types.ProtocolEnumTcp, 80)
	work.Wait()
	if s := w.spec(t, "net"); !slices.Equal(s, []string{"tcp/80 to 80 check tcp/80 i-000001"}) {
		t.Errorf("listeners in the cloud: got %v, want one with the target i-000001", s)
	}
}

// TestConcurrentNetworkChanges lets several callers make changes at the same time. It proves that
// the result is the same as if the callers made their changes one after the other. If a call fails
// because another caller has changed the same resource, the caller repeats the call.
func TestConcurrentNetworkChanges(t *testing.T) {
	w, ctx := start(t), t.Context()
	const n = 3
	lb, g := w.createNetwork(t, "net"), w.createTargets(t, "net", types.ProtocolEnumTcp, 30080)
	for i := range 3 * n {
		w.instance(t, fmt.Sprintf("node-%d", i+1), "sim-1a", nil)
	}
	var work sync.WaitGroup
	run := func(call func() error) {
		err := call()
		for ; err != nil && strings.Contains(err.Error(), "IncorrectState"); err = call() {
		}
		if err != nil {
			t.Error(err)
		}
	}
	for i := range n {
		work.Go(func() {
			run(func() error {
				_, err := w.elbv2.CreateListener(ctx, listenerInput(lb, g, types.ProtocolEnumTcp, int32(81+i))) //nolint:gosec // small
				return err
			})
		})
		work.Go(func() {
			for j := range 3 {
				run(func() error {
					_, err := w.elbv2.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: &g, Targets: targetsOf(fmt.Sprintf("i-%017x", 3*i+j+1))})
					return err
				})
			}
		})
	}
	work.Go(func() {
		run(func() error {
			_, err := w.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: sdk.String("sg-00100000000000001"), IpPermissions: []ec2types.IpPermission{tcp(30080, "10.0.0.0/8")}})
			return err
		})
	})
	work.Wait()
	own := w.ownLoadBalancer(t, "net")
	if len(own.Listeners) != n || !slices.Equal(own.SourceRanges, []string{"10.0.0.0/8"}) {
		t.Errorf("got %d listeners with ranges %v, want %d with 10.0.0.0/8", len(own.Listeners), own.SourceRanges, n)
	}
	for _, li := range own.Listeners {
		if len(li.Targets) != 3*n {
			t.Errorf("listener %s: got %d targets, want %d", li.Key(), len(li.Targets), 3*n)
		}
	}
}
