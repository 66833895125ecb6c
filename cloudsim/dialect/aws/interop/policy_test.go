package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// proxyPolicy returns the request that AWS's cloud controller manager sends to create a policy of
// the load balancer "shop".
func proxyPolicy(name string) *elb.CreateLoadBalancerPolicyInput {
	return &elb.CreateLoadBalancerPolicyInput{
		LoadBalancerName: sdk.String("shop"), PolicyName: &name, PolicyTypeName: sdk.String("ProxyProtocolPolicyType"),
		PolicyAttributes: []types.PolicyAttribute{{AttributeName: sdk.String("ProxyProtocol"), AttributeValue: sdk.String("true")}},
	}
}

func (w *world) setPolicies(t *testing.T, port int32, names ...string) error {
	t.Helper()
	_, err := w.elb.SetLoadBalancerPoliciesForBackendServer(t.Context(), &elb.SetLoadBalancerPoliciesForBackendServerInput{LoadBalancerName: sdk.String("shop"), InstancePort: &port, PolicyNames: append([]string{}, names...)})
	return err
}

func (w *world) deletePolicy(t *testing.T, name string) error {
	t.Helper()
	_, err := w.elb.DeleteLoadBalancerPolicy(t.Context(), &elb.DeleteLoadBalancerPolicyInput{LoadBalancerName: sdk.String("shop"), PolicyName: &name})
	return err
}

// policies describes the policies of the load balancer "shop", for example "a b 30080=a". In this
// example, a and b are the policies, and the instance port 30080 has the policy a.
func (w *world) policies(t *testing.T) string {
	t.Helper()
	d := w.describe(t, "shop")
	all := slices.Clone(d.Policies.OtherPolicies)
	for _, b := range d.BackendServerDescriptions {
		all = append(all, fmt.Sprintf("%d=%s", *b.InstancePort, strings.Join(b.PolicyNames, ",")))
	}
	return strings.Join(all, " ")
}

// proxied describes the listeners of the load balancer "shop" in this cloud, for example "80
// 443:v1". In this example, the listener with the port 443 sends PROXY headers of the version v1.
func (w *world) proxied(t *testing.T) string {
	t.Helper()
	var all []string
	for _, li := range w.ownLoadBalancer(t, "shop").Listeners {
		text := fmt.Sprint(li.Port)
		if li.ProxyProtocol != "" {
			text += ":" + string(li.ProxyProtocol)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// testPolicies makes each call about policies for the load balancer "shop", in the same order as
// AWS's cloud controller manager. Before the test, the only listener of the load balancer has the
// port 80 and the instance port 30080.
func testPolicies(t *testing.T, w *world) {
	ctx, shop := t.Context(), sdk.String("shop")
	describe := &elb.DescribeLoadBalancerPoliciesInput{LoadBalancerName: shop, PolicyNames: []string{"proxy"}}
	_, err := w.elb.DescribeLoadBalancerPolicies(ctx, describe)
	mustFail(t, err, "PolicyNotFound")
	mustFail(t, w.setPolicies(t, 30080, "proxy"), "PolicyNotFound")
	for range 2 { // the second call changes nothing
		must(w.elb.CreateLoadBalancerPolicy(ctx, proxyPolicy("proxy")))(t)
	}
	p := must(w.elb.DescribeLoadBalancerPolicies(ctx, describe))(t).PolicyDescriptions
	if len(p) != 1 || *p[0].PolicyName != "proxy" || *p[0].PolicyTypeName != "ProxyProtocolPolicyType" || len(p[0].PolicyAttributeDescriptions) != 1 ||
		*p[0].PolicyAttributeDescriptions[0].AttributeName != "ProxyProtocol" || *p[0].PolicyAttributeDescriptions[0].AttributeValue != "true" {
		t.Errorf("policies: got %+v", p)
	}
	if got := w.proxied(t); got != "80" {
		t.Errorf(`listeners before the instance port has the policy: got %q, want "80"`, got)
	}
	if err := w.setPolicies(t, 30080, "proxy"); err != nil {
		t.Fatal(err)
	}
	if got := w.policies(t) + "; " + w.proxied(t); got != "proxy 30080=proxy; 80:v1" {
		t.Errorf(`policies and listeners with the policy: got %q, want "proxy 30080=proxy; 80:v1"`, got)
	}
	mustFail(t, w.deletePolicy(t, "proxy"), "InvalidConfigurationRequest")

	// The deletion of a listener must not delete the policy of its instance port. Otherwise a new
	// listener with the same instance port would have no policy, because the cloud controller
	// manager does not set the policy again.
	must(w.elb.DeleteLoadBalancerListeners(ctx, &elb.DeleteLoadBalancerListenersInput{LoadBalancerName: shop, LoadBalancerPorts: []int32{80}}))(t)
	must(w.elb.CreateLoadBalancerListeners(ctx, &elb.CreateLoadBalancerListenersInput{LoadBalancerName: shop, Listeners: []types.Listener{listen(81, 30080), listen(80, 30081)}}))(t)
	if got := w.policies(t) + "; " + w.proxied(t); got != "proxy 30080=proxy; 81:v1 80" {
		t.Errorf(`policies and listeners with a new listener for the instance port: got %q, want "proxy 30080=proxy; 81:v1 80"`, got)
	}
	if err := w.setPolicies(t, 30080); err != nil {
		t.Fatal(err)
	}
	if err := w.deletePolicy(t, "proxy"); err != nil {
		t.Fatal(err)
	}
	if got := w.policies(t) + "; " + w.proxied(t); got != "; 81 80" {
		t.Errorf(`policies and listeners after the removal of the policy: got %q, want "; 81 80"`, got)
	}

	long := func(n int) *elb.CreateLoadBalancerPolicyInput {
		return proxyPolicy(strings.Repeat("x", 63) + fmt.Sprint(n))
	}
	for n := range 3 {
		must(w.elb.CreateLoadBalancerPolicy(ctx, long(n)))(t)
	}
	_, err = w.elb.CreateLoadBalancerPolicy(ctx, long(3)) // the value of the label cannot contain so many characters
	mustFail(t, err, "TooManyPolicies")
}

// TestRandomPolicyCalls makes random calls about policies and listeners. After each call, it
// compares the error, the policies and the listeners of the cloud with a model.
func TestRandomPolicyCalls(t *testing.T) {
	w, ctx := start(t), t.Context()
	must(w.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{LoadBalancerName: sdk.String("shop"), Listeners: []types.Listener{listen(80, 30080)}, Subnets: []string{"subnet-00000000000000001"}}))(t)
	rng := rand.New(rand.NewPCG(4, 7)) //nolint:gosec // a repeatable test
	var policies []string
	backends := map[int32][]string{}        // policies by instance port
	listeners := map[int32]int32{80: 30080} // instance ports by port
	for step := range 300 {
		name, other := string("ab"[rng.IntN(2)]), string("ab"[rng.IntN(2)])
		port, instancePort := int32(80+rng.IntN(3)), int32(30080+rng.IntN(3)) //nolint:gosec // small
		var call, want string
		var err error
		switch rng.IntN(5) {
		case 0:
			call = "create policy " + name
			policies = add(policies, name)
			_, err = w.elb.CreateLoadBalancerPolicy(ctx, proxyPolicy(name))
		case 1:
			call = "delete policy " + name
			for _, names := range backends {
				if slices.Contains(names, name) {
					want = "InvalidConfigurationRequest"
				}
			}
			if want == "" {
				policies = slices.DeleteFunc(policies, func(s string) bool { return s == name })
			}
			err = w.deletePolicy(t, name)
		case 2:
			names := [][]string{nil, {name}, {name, other}}[rng.IntN(3)]
			call = fmt.Sprint("set policies of ", instancePort, " to ", names)
			names = slices.Compact(slices.Sorted(slices.Values(names)))
			missing := slices.ContainsFunc(names, func(s string) bool { return !slices.Contains(policies, s) })
			switch {
			case missing:
				want = "PolicyNotFound"
			case len(names) == 0:
				delete(backends, instancePort)
			default:
				backends[instancePort] = names
			}
			err = w.setPolicies(t, instancePort, names...)
		case 3:
			call = fmt.Sprint("create listener ", port, " to ", instancePort)
			if have := listeners[port]; have != 0 && have != instancePort {
				want = "DuplicateListener"
			} else {
				listeners[port] = instancePort
			}
			_, err = w.elb.CreateLoadBalancerListeners(ctx, &elb.CreateLoadBalancerListenersInput{LoadBalancerName: sdk.String("shop"), Listeners: []types.Listener{listen(port, instancePort)}})
		default:
			call = fmt.Sprint("delete listener ", port)
			delete(listeners, port)
			_, err = w.elb.DeleteLoadBalancerListeners(ctx, &elb.DeleteLoadBalancerListenersInput{LoadBalancerName: sdk.String("shop"), LoadBalancerPorts: []int32{port}})
		}
		if got := codeOf(err); got != want {
			t.Fatalf("step %d, %s: got error %v, want code %q", step, call, err, want)
		}
		wanted := slices.Clone(policies)
		for _, port := range slices.Sorted(maps.Keys(backends)) {
			wanted = append(wanted, fmt.Sprintf("%d=%s", port, strings.Join(backends[port], ",")))
		}
		if got := w.policies(t); got != strings.Join(wanted, " ") {
			t.Fatalf("step %d, %s: got policies %s, want %s", step, call, got, wanted)
		}
		for _, li := range w.ownLoadBalancer(t, "shop").Listeners {
			version := cloudsim.ProxyProtocol("")
			if backends[listeners[int32(li.Port)]] != nil { //nolint:gosec // small
				version = cloudsim.ProxyV1
			}
			if li.ProxyProtocol != version {
				t.Fatalf("step %d, %s: got version %q of listener %d, want %q", step, call, li.ProxyProtocol, li.Port, version)
			}
		}
	}
}
