package aws_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const allowAll = "Action=AuthorizeSecurityGroupIngress&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0&GroupId="

// TestRefusedRule proves that a request for a rule that the cloud cannot store does not change the
// source ranges of load balancers.
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

// TestGroupsOfTargets proves that the rules of a target's security group do not permit connections
// to other targets.
func TestGroupsOfTargets(t *testing.T) {
	w := startNetwork(t)
	first := func(expression, body string) string {
		m := regexp.MustCompile(expression).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no %s in %s", expression, body)
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

// TestLimitCodes proves that a request that exceeds a quota gets the error code of AWS for this
// resource.
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
