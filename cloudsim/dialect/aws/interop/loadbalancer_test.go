package interop

import (
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func listen(port, instancePort int32) types.Listener {
	return types.Listener{Protocol: sdk.String("tcp"), LoadBalancerPort: port, InstanceProtocol: sdk.String("tcp"), InstancePort: &instancePort}
}

// ownLoadBalancer returns the load balancer with the given name from the cloud, and not from the
// dialect.
func (w *world) ownLoadBalancer(t *testing.T, name string) cloudsim.LoadBalancer {
	t.Helper()
	l := must(w.cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{Name: name}))(t)
	if len(l.Items) != 1 {
		t.Fatalf("load balancer %s: got %d, want 1", name, len(l.Items))
	}
	return l.Items[0]
}

// refusingPorts returns the ports of the listeners that refuse all connections.
func refusingPorts(l cloudsim.LoadBalancer) (ports []int) {
	for _, li := range l.Listeners {
		if li.Targets != nil {
			ports = append(ports, li.Port)
		}
	}
	return ports
}

func (w *world) describe(t *testing.T, name string) types.LoadBalancerDescription {
	t.Helper()
	return must(w.elb.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{name}}))(t).LoadBalancerDescriptions[0]
}

// testLoadBalancer makes each call about classic load balancers. The calls have the same order as
// in AWS's cloud controller manager.
func testLoadBalancer(t *testing.T, w *world) {
	ctx, name := t.Context(), sdk.String("shop")
	instance := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t).Reservations[0].Instances[0]
	_, err := w.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{"shop"}})
	mustFail(t, err, "LoadBalancerNotFound")

	id := w.createGroup(t, "k8s-elb-shop")
	w.authorize(t, id, tcp(80, "10.0.0.0/8"))
	create := &elb.CreateLoadBalancerInput{
		LoadBalancerName: name, Listeners: []types.Listener{listen(80, 30080)}, Subnets: []string{*instance.SubnetId}, SecurityGroups: []string{id},
		Tags: []types.Tag{{Key: sdk.String("kubernetes.io/service-name"), Value: sdk.String("default/shop")}},
	}
	host := *must(w.elb.CreateLoadBalancer(ctx, create))(t).DNSName
	l := w.ownLoadBalancer(t, "shop")
	if want := "shop-1." + strings.ReplaceAll(l.IP, ".", "-") + ".elb.amazonaws.com"; host != want {
		t.Errorf("host name: got %q, want %q", host, want)
	}
	if again := *must(w.elb.CreateLoadBalancer(ctx, create))(t).DNSName; again != host {
		t.Errorf("host name after the repeated request: got %q, want %q", again, host)
	}
	create.Listeners = []types.Listener{listen(80, 30081)}
	_, err = w.elb.CreateLoadBalancer(ctx, create)
	mustFail(t, err, "DuplicateLoadBalancerName")
	if !slices.Equal(l.SourceRanges, []string{"10.0.0.0/8"}) || len(refusingPorts(l)) != 0 || l.Listeners[0].IdleTimeoutSeconds != 60 || l.DrainTimeoutSeconds != -1 {
		t.Errorf("new load balancer of the cloud: got %+v", l.LoadBalancerSpec)
	}
	d := w.describe(t, "shop")
	if *d.DNSName != host || *d.Scheme != "internet-facing" || *d.VPCId != *instance.VpcId || !slices.Equal(d.SecurityGroups, []string{id}) || !slices.Equal(d.Subnets, create.Subnets) ||
		!slices.Equal(d.AvailabilityZones, []string{"sim-1a"}) || len(d.Instances) != 0 || d.CreatedTime.Sub(l.CreatedAt).Abs() > time.Second {
		t.Errorf("load balancer: got %+v", d)
	}
	if li := d.ListenerDescriptions[0].Listener; *li.Protocol != "TCP" || *li.InstanceProtocol != "TCP" || li.LoadBalancerPort != 80 || *li.InstancePort != 30080 || li.SSLCertificateId != nil {
		t.Errorf("listener: got %+v", li)
	}
	if h := d.HealthCheck; *h.Target != "TCP:30080" || *h.Interval != 30 || *h.Timeout != 5 || *h.HealthyThreshold != 10 || *h.UnhealthyThreshold != 2 {
		t.Errorf("health check: got %+v", h)
	}

	check := &types.HealthCheck{Target: sdk.String("HTTP:10256/healthz"), Interval: sdk.Int32(10), Timeout: sdk.Int32(5), HealthyThreshold: sdk.Int32(2), UnhealthyThreshold: sdk.Int32(6)}
	must(w.elb.ConfigureHealthCheck(ctx, &elb.ConfigureHealthCheckInput{LoadBalancerName: name, HealthCheck: check}))(t)
	if h := w.describe(t, "shop").HealthCheck; *h.Target != *check.Target || *h.Interval != 10 || *h.Timeout != 5 || *h.HealthyThreshold != 2 || *h.UnhealthyThreshold != 6 {
		t.Errorf("changed health check: got %+v", h)
	}
	a := must(w.elb.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerName: name}))(t).LoadBalancerAttributes
	if a.AccessLog.Enabled || a.ConnectionDraining.Enabled || *a.ConnectionDraining.Timeout != 300 || *a.ConnectionSettings.IdleTimeout != 60 || a.CrossZoneLoadBalancing.Enabled {
		t.Errorf("attributes: got %+v", a)
	}
	must(w.elb.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerName: name, LoadBalancerAttributes: &types.LoadBalancerAttributes{
		AccessLog: &types.AccessLog{}, ConnectionDraining: &types.ConnectionDraining{Enabled: true, Timeout: sdk.Int32(40)},
		ConnectionSettings: &types.ConnectionSettings{IdleTimeout: sdk.Int32(90)}, CrossZoneLoadBalancing: &types.CrossZoneLoadBalancing{Enabled: true},
	}}))(t)
	a = must(w.elb.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerName: name}))(t).LoadBalancerAttributes
	if !a.ConnectionDraining.Enabled || *a.ConnectionDraining.Timeout != 40 || *a.ConnectionSettings.IdleTimeout != 90 || !a.CrossZoneLoadBalancing.Enabled {
		t.Errorf("changed attributes: got %+v", a)
	}
	targets := []types.Instance{{InstanceId: instance.InstanceId}}
	if r := must(w.elb.RegisterInstancesWithLoadBalancer(ctx, &elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: name, Instances: targets}))(t); len(r.Instances) != 1 {
		t.Errorf("registered instances: got %+v", r.Instances)
	}
	_, err = w.elb.RegisterInstancesWithLoadBalancer(ctx, &elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: name, Instances: []types.Instance{{InstanceId: sdk.String("i-00000000000000099")}}})
	mustFail(t, err, "InvalidInstance")
	if s := must(w.elb.DescribeInstanceHealth(ctx, &elb.DescribeInstanceHealthInput{LoadBalancerName: name}))(t).InstanceStates; len(s) != 1 || *s[0].InstanceId != *instance.InstanceId || *s[0].State != "OutOfService" {
		t.Errorf("health: got %+v", s)
	}

	// A rule permits connections to a listener only if the rule's port range contains the
	// listener's port.
	must(w.elb.CreateLoadBalancerListeners(ctx, &elb.CreateLoadBalancerListenersInput{LoadBalancerName: name, Listeners: []types.Listener{listen(443, 30443), listen(80, 30080)}}))(t)
	_, err = w.elb.CreateLoadBalancerListeners(ctx, &elb.CreateLoadBalancerListenersInput{LoadBalancerName: name, Listeners: []types.Listener{listen(443, 30444)}})
	mustFail(t, err, "DuplicateListener")
	if l = w.ownLoadBalancer(t, "shop"); !slices.Equal(refusingPorts(l), []int{443}) || !slices.Equal(l.SourceRanges, []string{"10.0.0.0/8"}) || l.Listeners[1].IdleTimeoutSeconds != 90 || l.DrainTimeoutSeconds != 40 {
		t.Errorf("load balancer with a listener without a rule: got %+v, want refusing port 443, range 10.0.0.0/8, idle timeout 90 s and drain timeout 40 s", l.LoadBalancerSpec)
	}
	w.authorize(t, id, tcp(443, "10.1.0.0/16"))
	if l = w.ownLoadBalancer(t, "shop"); len(refusingPorts(l)) != 0 || !slices.Equal(l.SourceRanges, []string{"10.1.0.0/16"}) || len(l.Targets) != 1 {
		t.Errorf("load balancer after the rule for port 443: got %+v, want no refusing port, range 10.1.0.0/16 and 1 target", l.LoadBalancerSpec)
	}
	must(w.elb.DeleteLoadBalancerListeners(ctx, &elb.DeleteLoadBalancerListenersInput{LoadBalancerName: name, LoadBalancerPorts: []int32{443, 444}}))(t)
	if l = w.ownLoadBalancer(t, "shop"); len(l.Listeners) != 1 || !slices.Equal(l.SourceRanges, []string{"10.0.0.0/8"}) {
		t.Errorf("load balancer after the removal of a listener: got %+v, want 1 listener and range 10.0.0.0/8", l.LoadBalancerSpec)
	}
	w.revoke(t, id, tcp(80, "10.0.0.0/8"))
	if l = w.ownLoadBalancer(t, "shop"); !slices.Equal(refusingPorts(l), []int{80}) {
		t.Errorf("load balancer after the removal of all rules: got %+v, want refusing port 80", l.LoadBalancerSpec)
	}
	other := w.createGroup(t, "other")
	w.authorize(t, other, tcp(80, "0.0.0.0/0"))
	must(w.elb.ApplySecurityGroupsToLoadBalancer(ctx, &elb.ApplySecurityGroupsToLoadBalancerInput{LoadBalancerName: name, SecurityGroups: []string{id, other}}))(t)
	if l = w.ownLoadBalancer(t, "shop"); len(refusingPorts(l)) != 0 || !slices.Equal(l.SourceRanges, []string{"0.0.0.0/0"}) {
		t.Errorf("load balancer with a second group: got %+v, want no refusing port and range 0.0.0.0/0", l.LoadBalancerSpec)
	}

	testPolicies(t, w)

	// Subnets and tags.
	second := must(w.cloud.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "second", IPv4: "10.99.0.0/16"}))(t)
	wrong := must(w.cloud.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "second", Network: second.ID, IPv4: "10.99.1.0/24"}))(t)
	_, err = w.elb.AttachLoadBalancerToSubnets(ctx, &elb.AttachLoadBalancerToSubnetsInput{LoadBalancerName: name, Subnets: []string{"subnet-" + strings.Repeat("0", 11) + string(wrong.ID[len("subnet-"):])}})
	mustFail(t, err, "InvalidConfigurationRequest")
	if r := must(w.elb.AttachLoadBalancerToSubnets(ctx, &elb.AttachLoadBalancerToSubnetsInput{LoadBalancerName: name, Subnets: d.Subnets}))(t); !slices.Equal(r.Subnets, d.Subnets) {
		t.Errorf("attached subnets: got %v", r.Subnets)
	}
	_, err = w.elb.DetachLoadBalancerFromSubnets(ctx, &elb.DetachLoadBalancerFromSubnetsInput{LoadBalancerName: name, Subnets: d.Subnets})
	mustFail(t, err, "InvalidConfigurationRequest") // the last subnet
	if r := must(w.elb.DetachLoadBalancerFromSubnets(ctx, &elb.DetachLoadBalancerFromSubnetsInput{LoadBalancerName: name, Subnets: []string{"subnet-00000000000000099"}}))(t); !slices.Equal(r.Subnets, d.Subnets) {
		t.Errorf("subnets after the removal of another subnet: got %v", r.Subnets)
	}
	must(w.elb.AddTags(ctx, &elb.AddTagsInput{LoadBalancerNames: []string{"shop"}, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("web")}}}))(t)
	must(w.elb.RemoveTags(ctx, &elb.RemoveTagsInput{LoadBalancerNames: []string{"shop"}, Tags: []types.TagKeyOnly{{Key: sdk.String("kubernetes.io/service-name")}}}))(t)
	if tags := must(w.elb.DescribeTags(ctx, &elb.DescribeTagsInput{LoadBalancerNames: []string{"shop"}}))(t).TagDescriptions; len(tags) != 1 || len(tags[0].Tags) != 1 || *tags[0].Tags[0].Key != "team" || *tags[0].Tags[0].Value != "web" {
		t.Errorf("tags: got %+v", tags)
	}

	// Deletion.
	_, err = w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &id})
	mustFail(t, err, "DependencyViolation")
	if r := must(w.elb.DeregisterInstancesFromLoadBalancer(ctx, &elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: name, Instances: targets}))(t); len(r.Instances) != 0 || len(w.ownLoadBalancer(t, "shop").Targets) != 0 {
		t.Errorf("instances after the removal of all: got %+v", r.Instances)
	}
	must(w.elb.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerName: name}))(t)
	must(w.elb.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerName: name}))(t)
	_, err = w.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{"shop"}})
	mustFail(t, err, "LoadBalancerNotFound")
}

// TestLoadBalancerPages proves that the pages of a list contain each classic load balancer once.
// The list must not contain a load balancer that a client created through the cloud's own API. It
// must contain both of two load balancers with names that differ only in upper and lower case.
func TestLoadBalancerPages(t *testing.T) {
	w, ctx := start(t), t.Context()
	must(w.cloud.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "own", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}}}))(t)
	want := []string{"shop-A", "shop-a", "c", "d", "e"}
	for _, name := range want {
		must(w.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{LoadBalancerName: &name, Scheme: sdk.String("internal"), Listeners: []types.Listener{listen(80, 30080)}, Subnets: []string{"subnet-00000000000000001"}}))(t)
	}
	var got []string
	for p := elb.NewDescribeLoadBalancersPaginator(w.elb, &elb.DescribeLoadBalancersInput{PageSize: sdk.Int32(2)}); p.HasMorePages(); {
		l := must(p.NextPage(ctx))(t).LoadBalancerDescriptions
		if len(l) > 2 {
			t.Errorf("page: got %d load balancers, want at most 2", len(l))
		}
		for _, d := range l {
			got = append(got, *d.LoadBalancerName)
			if *d.Scheme != "internal" || !strings.HasPrefix(*d.DNSName, "internal-") || *d.DNSName != strings.ToLower(*d.DNSName) {
				t.Errorf("internal load balancer: got scheme %s and host name %s", *d.Scheme, *d.DNSName)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got load balancers %v, want %v", got, want)
	}
	// The default security group permits no address to connect to a load balancer.
	if l := w.ownLoadBalancer(t, "c"); !slices.Equal(refusingPorts(l), []int{80}) {
		t.Errorf("load balancer with the default group: got %+v", l.LoadBalancerSpec)
	}
}
