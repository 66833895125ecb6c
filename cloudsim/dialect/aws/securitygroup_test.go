package aws_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

const allowAll = "Action=AuthorizeSecurityGroupIngress&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0&GroupId="

// TestRefusedRule proves that a refused rule does not change the source ranges of load balancers.
func TestRefusedRule(t *testing.T) {
	w := start(t)
	w.succeed(t, "sim-1", elbCreate+"&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001")
	query := allowAll + "sg-00100000000000001&IpPermissions.1.IpRanges.1.Description=" + strings.Repeat("x", cloudsim.MaxRecordDocument)
	if status, code, body := w.query(t, "sim-1", query); code != "InvalidParameterValue" || !strings.Contains(body, "IpPermissions.1.IpRanges.1.Description") {
		t.Errorf("long description: got %d %s, want an error with the parameter", status, body)
	}
	if l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001"); err != nil || len(l.SourceRanges) != 0 {
		t.Errorf("load balancer after a refused rule: got source ranges %v, error %v; want none", l.SourceRanges, err)
	}
}

// TestStaleRule proves that load balancers keep their source ranges if each attempt to store a new
// rule fails with Stale.
func TestStaleRule(t *testing.T) {
	w := start(t)
	w.succeed(t, "sim-1", elbCreate+"&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001")
	w.succeed(t, "sim-1", strings.Replace(allowAll, "0.0.0.0/0", "10.0.0.0/8", 1)+"sg-00100000000000001")
	w.breakCalls(t, "records.update", cloudsim.FaultWhen{}, cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "stale"})
	if status, code, body := w.query(t, "sim-1", allowAll+"sg-00100000000000001"); status < 400 {
		t.Errorf("rule that the cloud cannot store: got %d %s %s, want an error", status, code, body)
	}
	if l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001"); err != nil || !slices.Equal(l.SourceRanges, []string{"10.0.0.0/8"}) {
		t.Errorf("load balancer: got source ranges %v, error %v; want only 10.0.0.0/8", l.SourceRanges, err)
	}
}

// TestStaleTargets proves that a load balancer keeps its targets if each attempt to store a new
// target fails with Stale.
func TestStaleTargets(t *testing.T) {
	w := startNetwork(t)
	w.succeed(t, "sim-1", allowAll+"sg-00100000000000001")
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", runOne)
	const register = nlbAction + "RegisterTargets&" + nlbTG + "&Targets.member.1.Id=i-0000000000000000"
	w.succeed(t, "sim-1", register+"1")
	w.breakCalls(t, "records.update", cloudsim.FaultWhen{}, cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "stale"})
	if status, code, body := w.query(t, "sim-1", register+"2"); status < 400 {
		t.Errorf("target that the cloud cannot store: got %d %s %s, want an error", status, code, body)
	}
	l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || len(l.Listeners) != 1 || !slices.Equal(l.Listeners[0].Targets, []cloudsim.Target{{Instance: "i-000001"}}) {
		t.Errorf("load balancer: got listeners %+v, error %v; want only the target i-000001", l.Listeners, err)
	}
}

// TestGroupsOfTargets proves that the rules of a target's security group do not permit connections
// to other targets.
func TestGroupsOfTargets(t *testing.T) {
	w := startNetwork(t)
	first := func(expression, body string) string {
		m := regexp.MustCompile(expression).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("the answer has no match for %s: %s", expression, body)
		}
		return m[1]
	}
	for _, name := range []string{"open", "closed"} {
		id := first(`<groupId>(.*?)<`, w.succeed(t, "sim-1", "Action=CreateSecurityGroup&GroupDescription=x&GroupName="+name))
		if name == "open" {
			w.succeed(t, "sim-1", allowAll+id)
		}
		w.succeed(t, "sim-1", runOne+"&SecurityGroupId.1="+id)
	}
	group := first(`<TargetGroupArn>(.*?)<`, w.succeed(t, "sim-1", strings.Replace(nlbGroup, "Name=b", "Name=db", 1)+"&Protocol=TCP"))
	w.succeed(t, "sim-1", nlbListen+"&DefaultActions.member.1.Type=forward&DefaultActions.member.1.TargetGroupArn="+group)
	const open, closed = "&Targets.member.1.Id=i-00000000000000001", "&Targets.member.2.Id=i-00000000000000002"
	w.succeed(t, "sim-1", nlbAction+"RegisterTargets&"+nlbTG+open+closed)
	w.succeed(t, "sim-1", nlbAction+"RegisterTargets&TargetGroupArn="+group+strings.Replace(closed, "member.2", "member.1", 1))
	l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || !slices.Equal(l.SourceRanges, []string{"0.0.0.0/0"}) || len(l.Listeners) != 2 {
		t.Fatalf("got load balancer %+v, error %v", l, err)
	}
	for n, want := range [][]cloudsim.Target{{{Instance: "i-000001"}}, {}} {
		if got := l.Listeners[n].Targets; !slices.Equal(got, want) {
			t.Errorf("listener at port %d: got targets %v, want %v", l.Listeners[n].Port, got, want)
		}
	}
}

// TestLimitCodes proves that a request that exceeds the quota of a resource kind gets AWS's error
// code for this kind.
func TestLimitCodes(t *testing.T) {
	w := start(t)
	for _, operation := range []string{"disks.create", "instances.create", "loadBalancers.create", "records.create"} {
		w.breakCall(t, operation, cloudsim.FaultQuota)
	}
	for query, want := range map[string]string{
		createVolume + "&Size=10": "VolumeLimitExceeded",
		runOne:                    "InstanceLimitExceeded",
		elbCreate + "&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001": "TooManyLoadBalancers",
		nlbCreate + "&Type=network":                                 "TooManyLoadBalancers",
		nlbGroup + "&Protocol=TCP":                                  "TooManyTargetGroups",
		"Action=CreateSecurityGroup&GroupName=a&GroupDescription=x": "SecurityGroupLimitExceeded",
	} {
		if status, code, body := w.query(t, "sim-1", query); code != want {
			t.Errorf("%s: got %d %s, want %s", query, status, body, want)
		}
	}
}

// TestForeignLoadBalancer proves that a change of a security group does not change a load balancer
// of Hetzner's dialect in the same network. The test gives this load balancer the label in which
// both dialects store the network of a load balancer. The test also adds this label to a classic
// load balancer, and proves that DescribeLoadBalancers still lists this load balancer.
func TestForeignLoadBalancer(t *testing.T) {
	w := start(t)
	foreign, err := w.cloud.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{
		Name: "foreign", Region: "sim-1", Labels: map[string]string{dialect.LabelPrefix + "network": "net-000001"},
		LoadBalancerSpec: cloudsim.LoadBalancerSpec{Listeners: []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 80}}, HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.succeed(t, "sim-1", allowAll+"sg-00100000000000001")
	if l, err := w.cloud.GetLoadBalancer(t.Context(), foreign.ID); err != nil || len(l.Listeners) != 1 {
		t.Errorf("after a new rule: got listeners %v, error %v; want one", l.Listeners, err)
	}
	if body := w.succeed(t, "sim-1", nlbAction+"DescribeLoadBalancers"); strings.Contains(body, "foreign") {
		t.Errorf("got %s, want no load balancer", body)
	}
	w.succeed(t, "sim-1", elbCreate+"&LoadBalancerName=own&Subnets.member.1=subnet-00000000000000001")
	own, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000002")
	if err != nil {
		t.Fatal(err)
	}
	own.Labels[dialect.LabelPrefix+"network"] = "net-000001" // Hetzner's dialect attaches the load balancer to a network
	if _, err := w.cloud.UpdateLoadBalancer(t.Context(), own.ID, cloudsim.UpdateLoadBalancer{Labels: own.Labels, LoadBalancerSpec: own.LoadBalancerSpec}, own.Revision); err != nil {
		t.Fatal(err)
	}
	if body := w.succeed(t, "sim-1", elbAction+"DescribeLoadBalancers"); !strings.Contains(body, "<LoadBalancerName>own<") {
		t.Errorf("got %s, want the classic load balancer", body)
	}
}

// recordCalls maps calls of the cloud's API to requests that make these calls. Each request changes
// a record, and also a load balancer that startWithRecords creates.
var recordCalls = map[string][]string{
	"records.create": {
		nlbListen + "&DefaultActions.member.1.Type=forward&DefaultActions.member.1." + nlbTG,
		allowAll + "sg-00100000000000001", // the first rule creates the record of the default group
	},
	"records.delete": {nlbAction + "DeleteListener&ListenerArn=" + nlbARN + "listener/net/net/0000000000000001/0000000000000002"},
	"records.update": {nlbAction + "ModifyTargetGroupAttributes&Attributes.member.1.Key=deregistration_delay.timeout_seconds&Attributes.member.1.Value=7&" + nlbTG},
}

// startWithRecords starts the cloud of startNetwork, and adds a classic load balancer.
func startWithRecords(t *testing.T) *world {
	t.Helper()
	w := startNetwork(t)
	w.succeed(t, "sim-1", elbCreate+"&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001")
	return w
}

// checkUnchanged checks that the load balancers of startWithRecords still have their first settings.
func (w *world) checkUnchanged(t *testing.T) {
	t.Helper()
	l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || len(l.Listeners) != 1 || l.Listeners[0].Port != 443 || l.DrainTimeoutSeconds != 300 {
		t.Errorf("got listeners %v with drain timeout %d, error %v; want no change", l.Listeners, l.DrainTimeoutSeconds, err)
	}
	if l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000002"); err != nil || len(l.SourceRanges) != 0 {
		t.Errorf("got source ranges %v, error %v; want none", l.SourceRanges, err)
	}
}

// TestRefusedRecord proves that load balancers keep their settings if the cloud refuses a change of
// a record. The dialect stores listeners, target groups and security groups in records.
func TestRefusedRecord(t *testing.T) {
	w := startWithRecords(t)
	w.breakCall(t, "records.create", cloudsim.FaultQuota)
	w.breakCall(t, "records.update", cloudsim.FaultError)
	w.breakCall(t, "records.delete", cloudsim.FaultError)
	for _, queries := range recordCalls {
		for _, query := range queries {
			if status, _, body := w.query(t, "sim-1", query); status == http.StatusOK {
				t.Errorf("%s: got %d %s, want an error", query, status, body)
			}
			w.checkUnchanged(t)
		}
	}
}

// TestRecordWithoutClient proves that load balancers keep their settings if the client disconnects
// before the cloud has changed a record.
func TestRecordWithoutClient(t *testing.T) {
	for operation, queries := range recordCalls {
		for _, query := range queries {
			t.Run(operation, func(t *testing.T) {
				w := startWithRecords(t)
				<-w.abandon(t, query, w.breakCall(t, operation, cloudsim.FaultHang))
				w.checkUnchanged(t)
			})
		}
	}
}

// TestFailedLaunchLeavesNoInstance proves that a failed call of RunInstances leaves only instances
// that the cloud is deleting. The call fails because the caller's role does not permit disks.list.
func TestFailedLaunchLeavesNoInstance(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	_, err := w.cloud.CreateRole(ctx, cloudsim.CreateRole{Name: "launcher", Permissions: []cloudsim.Permission{"instances.*", "instanceTypes.*", "networks.*", "subnets.*", "zones.*", "regions.*"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "launcher"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "launcher", Role: "launcher", ServiceAccount: "launcher"}); err != nil {
		t.Fatal(err)
	}
	if w.key, err = w.cloud.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: "launcher"}); err != nil {
		t.Fatal(err)
	}
	if status, code, body := w.query(t, "sim-1", runOne); code != "UnauthorizedOperation" || !strings.Contains(body, "disks.list") {
		t.Errorf("RunInstances: got %d %s %s, want UnauthorizedOperation with the permission disks.list", status, code, body)
	}
	w.checkInstances(t, 0)
}

// checkInstances checks the number of instances that the cloud is not terminating.
func (w *world) checkInstances(t *testing.T, want int) {
	t.Helper()
	l, err := w.cloud.ListInstances(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if all := slices.DeleteFunc(l.Items, func(i cloudsim.Instance) bool { return i.State == cloudsim.InstanceTerminating }); len(all) != want {
		t.Errorf("got %d instances, want %d: %+v", len(all), want, all)
	}
}

// TestFailedLaunchTerminatesAll proves that a failed call of RunInstances without a ClientToken
// terminates all instances that it has created:
//   - The call also terminates an instance if the reply to its creation is lost.
//   - If the termination of one instance fails, the call still terminates the other instances.
func TestFailedLaunchTerminatesAll(t *testing.T) {
	fault := func(name, operation string, skip uint64, effect cloudsim.FaultEffect) cloudsim.CreateFault {
		return cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{
			Match: cloudsim.FaultMatch{Operation: operation}, When: cloudsim.FaultWhen{Skip: skip, Max: 1}, Effect: effect,
		}}
	}
	for name, tc := range map[string]struct {
		counts string
		faults []cloudsim.CreateFault
		want   int // number of instances after the call
	}{
		"error after commit": {"&MinCount=2&MaxCount=2", []cloudsim.CreateFault{fault("a", "instances.create", 1, cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit})}, 0},
		"lost reply":         {"&MinCount=2&MaxCount=2", []cloudsim.CreateFault{fault("a", "instances.create", 1, cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply})}, 0},
		"quota after commit": {"&MinCount=1&MaxCount=2", []cloudsim.CreateFault{fault("a", "instances.create", 1, cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit, Kind: "exhausted"})}, 1},
		"failed termination": {"&MinCount=3&MaxCount=3", []cloudsim.CreateFault{
			fault("a", "disks.list", 0, cloudsim.FaultEffect{Type: cloudsim.FaultError}), fault("b", "instances.delete", 0, cloudsim.FaultEffect{Type: cloudsim.FaultError}),
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			for _, f := range tc.faults {
				if _, err := w.cloud.CreateFault(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			form, err := url.ParseQuery(runInstances + tc.counts)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := http.DefaultClient.Do(w.request(t, time.Now(), form)); err == nil { // the fault loseReply closes the connection
				resp.Body.Close()
			}
			w.checkInstances(t, tc.want)
		})
	}
}

// TestLaunchWithoutClient proves that RunInstances terminates the new instances if the client
// disconnects before it gets the answer.
func TestLaunchWithoutClient(t *testing.T) {
	w := start(t)
	<-w.abandon(t, runInstances+"&MinCount=2&MaxCount=2", w.breakCall(t, "disks.list", cloudsim.FaultHang))
	w.checkInstances(t, 0)
}
