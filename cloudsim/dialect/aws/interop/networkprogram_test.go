package interop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

type modelTargets struct {
	name     string
	protocol types.ProtocolEnum
	port     int32
	interval int32
	targets  []string // ids of AWS
}

type modelListener struct {
	lb       string // ARN
	group    string // ARN
	protocol types.ProtocolEnum
	port     int32
}

// networkModel contains the load balancers, target groups and listeners that the cloud should have.
// The keys of the maps are ARNs. The slices contain the ARNs of all resources in the order of their
// creation, including deleted resources.
type networkModel struct {
	lbs, groups, listeners []string
	lb                     map[string]string // name
	group                  map[string]*modelTargets
	listener               map[string]*modelListener
	open                   bool // whether the security group permits all clients
	instances              []string
	next                   int // number of the next instance
}

// TestRandomNetworkLoadBalancerCalls makes random calls about network load balancers. After each
// call, it compares the error, the answers of the dialect and the load balancers of the cloud with
// a model.
func TestRandomNetworkLoadBalancerCalls(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := start(t)
			m := &networkModel{lb: map[string]string{}, group: map[string]*modelTargets{}, listener: map[string]*modelListener{}}
			for range 4 {
				m.newInstance(t, w)
			}
			rng := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a repeatable test
			for step := range 100 {
				call, want, err := m.step(t, w, rng)
				if want == "" && err != nil || want != "" && err == nil {
					t.Errorf("got error %v, want code %q", err, want)
				} else if want != "" {
					mustFail(t, err, want)
				}
				m.compare(t, w)
				if t.Failed() {
					t.Fatalf("step %d failed: %s", step, call)
				}
			}
		})
	}
}

func (m *networkModel) newInstance(t *testing.T, w *world) {
	m.next++
	w.instance(t, fmt.Sprintf("node-%d", m.next), "sim-1a", nil)
	m.instances = append(m.instances, fmt.Sprintf("i-%017x", m.next))
}

// pick returns the ARN of a random resource of the given kind. In about four of five calls, pick
// ignores deleted resources. If there is no resource to choose, the result is an ARN that never
// belonged to a resource.
func pick[T any](rng *rand.Rand, all []string, live map[string]T, kind string) string {
	if rng.IntN(5) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(arn string) bool { _, ok := live[arn]; return !ok })
	}
	if len(all) == 0 {
		return arns + kind + "/none/00000000000000ff"
	}
	return all[rng.IntN(len(all))]
}

var protocols = []types.ProtocolEnum{types.ProtocolEnumTcp, types.ProtocolEnumUdp, types.ProtocolEnumTcpUdp}

// weights contains the case numbers of the switch in networkModel.step. The method step chooses a
// random number from weights and executes the case with this number. If weights contains a number
// several times, step executes this case more often.
var weights = []int{0, 0, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 7, 7, 7, 8, 9, 10}

// step makes a random call, and makes the same changes in the model that the call should make in
// the cloud. It returns a description of the call, the code of the expected error, and the error.
func (m *networkModel) step(t *testing.T, w *world, rng *rand.Rand) (call, want string, err error) {
	ctx := t.Context()
	lb, group, listener := pick(rng, m.lbs, m.lb, "loadbalancer/net"), pick(rng, m.groups, m.group, "targetgroup"), pick(rng, m.listeners, m.listener, "listener/net/none")
	protocol, port := protocols[rng.IntN(len(protocols))], int32(80+rng.IntN(3)) //nolint:gosec // small
	name := string("abcd"[rng.IntN(4)])
	instance := m.instances[rng.IntN(len(m.instances))]
	g, li := m.group[group], m.listener[listener]
	if g != nil && rng.IntN(2) == 0 {
		protocol = g.protocol
	}
	switch weights[rng.IntN(len(weights))] {
	case 0:
		name = string("ab"[rng.IntN(2)])
		call = "create load balancer " + name
		r, err := w.elbv2.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{Name: &name, Type: types.LoadBalancerTypeEnumNetwork, Subnets: []string{defaultSubnet}})
		if err == nil {
			m.lbs = add(m.lbs, *r.LoadBalancers[0].LoadBalancerArn)
			m.lb[*r.LoadBalancers[0].LoadBalancerArn] = name
		}
		return call, "", err
	case 1:
		call = "delete load balancer " + lb
		delete(m.lb, lb)
		for arn, li := range m.listener {
			if li.lb == lb {
				delete(m.listener, arn)
			}
		}
		_, err = w.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &lb})
	case 2:
		call = fmt.Sprintf("create target group %s %s %d", name, protocol, port)
		for _, have := range m.group {
			if have.name == name && (have.protocol != protocol || have.port != port || have.interval != 30) {
				want = "DuplicateTargetGroupName"
			}
		}
		r, err := w.elbv2.CreateTargetGroup(ctx, targetsInput(name, protocol, port))
		if err == nil {
			arn := *r.TargetGroups[0].TargetGroupArn
			m.groups = add(m.groups, arn)
			if m.group[arn] == nil {
				m.group[arn] = &modelTargets{name, protocol, port, 30, nil}
			}
		}
		return call, want, err
	case 3:
		call = "delete target group " + group
		if m.isUsed(group, "") {
			want = "ResourceInUse"
		} else {
			delete(m.group, group)
		}
		_, err = w.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &group})
	case 4:
		call = fmt.Sprintf("create listener %s %d of %s to %s", protocol, port, lb, group)
		wanted := &modelListener{lb, group, protocol, port}
		same := ""
		for arn, have := range m.listener {
			if *have == *wanted {
				same = arn
			}
		}
		if same == "" {
			want = m.refusal("", wanted)
		}
		r, err := w.elbv2.CreateListener(ctx, listenerInput(lb, group, protocol, port))
		if err == nil && want == "" {
			arn := *r.Listeners[0].ListenerArn
			if same != "" && arn != same {
				t.Errorf("the same request: got listener %s, want %s", arn, same)
			}
			m.listeners, m.listener[arn] = add(m.listeners, arn), wanted
		}
		return call, want, err
	case 5:
		call = fmt.Sprintf("modify listener %s: %s %d to %s", listener, protocol, port, group)
		if want = "ListenerNotFound"; li != nil {
			wanted := &modelListener{li.lb, group, protocol, port}
			if want = m.refusal(listener, wanted); want == "" {
				m.listener[listener] = wanted
			}
		}
		_, err = w.elbv2.ModifyListener(ctx, &elbv2.ModifyListenerInput{ListenerArn: &listener, Port: &port, Protocol: protocol, DefaultActions: forwardTo(group)})
	case 6:
		call = "delete listener " + listener
		if want = "ListenerNotFound"; li != nil {
			want = ""
			delete(m.listener, listener)
		}
		_, err = w.elbv2.DeleteListener(ctx, &elbv2.DeleteListenerInput{ListenerArn: &listener})
	case 7:
		call = "register " + instance + " with " + group
		if want = "TargetGroupNotFound"; g != nil {
			want, g.targets = "", add(g.targets, instance)
		}
		_, err = w.elbv2.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: &group, Targets: targetsOf(instance)})
	case 8:
		call = "deregister " + instance + " from " + group
		if want = "TargetGroupNotFound"; g != nil {
			want, g.targets = "", slices.DeleteFunc(g.targets, func(id string) bool { return id == instance })
		}
		_, err = w.elbv2.DeregisterTargets(ctx, &elbv2.DeregisterTargetsInput{TargetGroupArn: &group, Targets: targetsOf(instance)})
	case 9:
		call = "set the interval of " + group
		interval := int32(30 + rng.IntN(2)) //nolint:gosec // small
		if want = "TargetGroupNotFound"; g != nil {
			want, g.interval = "", interval
		}
		_, err = w.elbv2.ModifyTargetGroup(ctx, &elbv2.ModifyTargetGroupInput{TargetGroupArn: &group, HealthCheckIntervalSeconds: &interval})
	case 10:
		if rng.IntN(2) == 0 {
			call = "replace " + instance
			must(w.cloud.DeleteInstance(ctx, cloudsim.InstanceID("i-"+instance[len(instance)-6:])))(t)
			m.instances = slices.DeleteFunc(m.instances, func(id string) bool { return id == instance })
			for _, g := range m.group {
				g.targets = slices.DeleteFunc(g.targets, func(id string) bool { return id == instance })
			}
			m.newInstance(t, w)
			return call, "", nil
		}
		call = "change the rules"
		rules := tcp(0, "0.0.0.0/0")
		rules.IpProtocol, rules.FromPort, rules.ToPort = sdk.String("-1"), nil, nil
		if m.open = !m.open; m.open {
			w.authorize(t, "sg-00100000000000001", rules)
		} else {
			w.revoke(t, "sg-00100000000000001", rules)
		}
	}
	return call, want, err
}

func add(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// isUsed reports whether a load balancer uses the target group. It ignores the load balancer with
// the ARN ignoredARN.
func (m *networkModel) isUsed(group, ignoredARN string) bool {
	for _, li := range m.listener {
		if li.group == group && li.lb != ignoredARN {
			return true
		}
	}
	return false
}

func transports(p types.ProtocolEnum) []string {
	switch p {
	case types.ProtocolEnumTcp:
		return []string{"tcp"}
	case types.ProtocolEnumUdp:
		return []string{"udp"}
	default:
		return []string{"tcp", "udp"}
	}
}

// refusal returns the code of the error that the dialect should return for a new or changed
// listener. It returns "" if the dialect should accept the listener.
func (m *networkModel) refusal(arn string, li *modelListener) string {
	g := m.group[li.group]
	switch {
	case m.lb[li.lb] == "":
		return "LoadBalancerNotFound"
	case g == nil:
		return "TargetGroupNotFound"
	case g.protocol != li.protocol && g.protocol != types.ProtocolEnumTcpUdp:
		return "IncompatibleProtocols"
	}
	for other, have := range m.listener {
		if other != arn && have.lb == li.lb && have.port == li.port && slices.ContainsFunc(transports(have.protocol), func(p string) bool { return slices.Contains(transports(li.protocol), p) }) {
			return "DuplicateListener"
		}
	}
	if m.isUsed(li.group, li.lb) {
		return "TargetGroupAssociationLimit"
	}
	return ""
}

// compare compares the answers of the dialect and the load balancers of the cloud with the model.
func (m *networkModel) compare(t *testing.T, w *world) {
	ctx := t.Context()
	lbs := map[string]string{}
	for _, l := range must(w.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{}))(t).LoadBalancers {
		lbs[*l.LoadBalancerArn] = *l.LoadBalancerName
	}
	if fmt.Sprint(lbs) != fmt.Sprint(m.lb) {
		t.Errorf("got load balancers %v, want %v", lbs, m.lb)
	}
	groups := 0
	for _, g := range must(w.elbv2.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{}))(t).TargetGroups {
		groups++
		want := m.group[*g.TargetGroupArn]
		if want == nil {
			t.Errorf("got the target group %s, want none", *g.TargetGroupArn)
			continue
		}
		got := modelTargets{name: *g.TargetGroupName, protocol: g.Protocol, port: *g.Port, interval: *g.HealthCheckIntervalSeconds}
		for _, d := range must(w.elbv2.DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{TargetGroupArn: g.TargetGroupArn}))(t).TargetHealthDescriptions {
			got.targets = append(got.targets, *d.Target.Id)
		}
		if fmt.Sprint(got) != fmt.Sprint(*want) || len(g.LoadBalancerArns) > 1 || m.isUsed(*g.TargetGroupArn, "") != (len(g.LoadBalancerArns) == 1) {
			t.Errorf("got target group %+v of %v, want %+v", got, g.LoadBalancerArns, *want)
		}
	}
	if groups != len(m.group) {
		t.Errorf("got %d target groups, want %d", groups, len(m.group))
	}
	for lb, name := range m.lb {
		var got, want []string
		for _, li := range must(w.elbv2.DescribeListeners(ctx, &elbv2.DescribeListenersInput{LoadBalancerArn: &lb}))(t).Listeners {
			if have := m.listener[*li.ListenerArn]; have == nil || *have != (modelListener{*li.LoadBalancerArn, *li.DefaultActions[0].TargetGroupArn, li.Protocol, *li.Port}) {
				t.Errorf("got listener %+v, want %+v", li, have)
			}
			got = append(got, *li.ListenerArn)
		}
		var spec []string
		for _, arn := range m.listeners {
			li := m.listener[arn]
			if li == nil || li.lb != lb {
				continue
			}
			want = append(want, arn)
			g := m.group[li.group]
			for _, p := range transports(li.protocol) {
				text := fmt.Sprintf("%s/%d to %d check tcp/%d", p, li.port, g.port, g.port)
				for _, id := range g.targets {
					if m.open {
						text += " i-" + id[len(id)-6:]
					}
				}
				spec = append(spec, text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("load balancer %s: got listeners %v, want %v", name, got, want)
		}
		if have := w.spec(t, name); !slices.Equal(have, spec) {
			t.Errorf("load balancer %s of the cloud: got listeners %q, want %q", name, have, spec)
		}
	}
}
