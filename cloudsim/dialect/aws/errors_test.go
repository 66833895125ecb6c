package aws_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	elbAction    = "Version=2012-06-01&Action="
	runInstances = "Action=RunInstances&ImageId=ami-12345678&InstanceType=small"
	runOne       = runInstances + "&MinCount=1&MaxCount=1"
	createVolume = "Action=CreateVolume&AvailabilityZone=sim-1a"
	createRoute  = "Action=CreateRoute&RouteTableId=rtb-00000000000000001&DestinationCidrBlock=10.244.1.0/24"
	elbPolicy    = elbAction + "CreateLoadBalancerPolicy&LoadBalancerName=a&PolicyName=p"
	elbProxy     = "&PolicyAttributes.member.1.AttributeName=ProxyProtocol&PolicyAttributes.member.1.AttributeValue="
	elbCreate    = elbAction + "CreateLoadBalancer&Listeners.member.1.Protocol=TCP&Listeners.member.1.LoadBalancerPort=80&Listeners.member.1.InstancePort=30080"
)

const (
	nlbAction = "Version=2015-12-01&Action="
	nlbCreate = nlbAction + "CreateLoadBalancer&Name=a&Subnets.member.1=subnet-00000000000000001"
	nlbGroup  = nlbAction + "CreateTargetGroup&Name=b&Port=80&VpcId=vpc-00000000000000001"
	nlbARN    = "arn:aws:elasticloadbalancing:sim-1:000000000001:"
	nlbLB     = "LoadBalancerArn=" + nlbARN + "loadbalancer/net/net/0000000000000001"
	nlbTG     = "TargetGroupArn=" + nlbARN + "targetgroup/web/0000000000000001"
	nlbListen = nlbAction + "CreateListener&Protocol=TCP&Port=80&" + nlbLB
)

// startNetwork starts a cloud with a network load balancer, a target group and a listener for the
// port 443. The ids of the load balancer and the target group have the number 1. The id of the
// listener has the number 2.
func startNetwork(t *testing.T) *world {
	t.Helper()
	w := start(t)
	for _, query := range []string{
		strings.Replace(nlbCreate, "Name=a", "Name=net", 1) + "&Type=network",
		strings.Replace(nlbGroup, "Name=b", "Name=web", 1) + "&Protocol=TCP",
		strings.Replace(nlbListen, "Port=80", "Port=443", 1) + "&DefaultActions.member.1.Type=forward&DefaultActions.member.1." + nlbTG,
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if status, _, body := w.call(t, form); status != http.StatusOK {
			t.Fatalf("%s: got %d %s", query, status, body)
		}
	}
	return w
}

// TestNetworkErrors proves that each wrong request about network load balancers changes nothing and
// gets AWS's error. The error names the wrong parameter.
func TestNetworkErrors(t *testing.T) {
	w := startNetwork(t)
	revision := func() (all string) {
		l, err := w.cloud.GetLoadBalancer(t.Context(), "lb-000001")
		r, err2 := w.cloud.ListRecords(t.Context(), cloudsim.ListOptions{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(l.Revision, r.Items)
	}
	before := revision()
	action := "&DefaultActions.member.1.Type=forward&DefaultActions.member.1."
	for _, tc := range []struct{ query, code, message string }{
		{nlbAction + "CreateRule", "UnsupportedOperation", "elbv2.CreateRule"},
		{nlbAction + "CreateLoadBalancer&Type=network", "MissingParameter", "Name"},
		{nlbCreate, "UnsupportedOperation", "type application"},
		{nlbCreate + "&Type=gateway", "UnsupportedOperation", "gateway"},
		{nlbCreate + "&Type=classic", "InvalidParameterValue", "Type"},
		{nlbCreate + "&Type=network&Scheme=private", "InvalidParameterValue", "Scheme"},
		{nlbCreate + "&Type=network&IpAddressType=dualstack", "UnsupportedOperation", "dualstack"},
		{nlbCreate + "&Type=network&CustomerOwnedIpv4Pool=x", "UnknownParameter", "CustomerOwnedIpv4Pool"},
		{nlbCreate + "&Type=network&SubnetMappings.member.1.SubnetId=x&SubnetMappings.member.1.AllocationId=eipalloc-1", "UnsupportedOperation", "AllocationId"},
		{nlbCreate + "&Type=network&SecurityGroups.member.1=sg-00000000000000099", "InvalidSecurityGroup", "sg-00000000000000099"},
		{nlbAction + "CreateLoadBalancer&Name=a&Type=network", "InvalidConfigurationRequest", "Subnets"},
		{nlbAction + "CreateLoadBalancer&Name=internal-a&Type=network", "InvalidParameterValue", "internal-"},
		{nlbAction + "CreateLoadBalancer&Name=a&Type=network&Subnets.member.1=subnet-00000000000000099", "SubnetNotFound", "subnet-00000000000000099"},
		{strings.Replace(nlbCreate, "Name=a", "Name=net", 1) + "&Type=network&Scheme=internal", "DuplicateLoadBalancerName", "net"},
		{strings.Replace(nlbCreate, "Name=a", "Name=net", 1) + "&Type=network&Tags.member.1.Key=a&Tags.member.1.Value=b", "DuplicateLoadBalancerName", "net"},
		{nlbAction + "DescribeLoadBalancers&Names.member.1=none", "LoadBalancerNotFound", "none"},
		{nlbAction + "DescribeLoadBalancers&Names.member.1=net&LoadBalancerArns.member.1=x", "ValidationError", "only one"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=x", "ValidationError", "a load balancer"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=" + nlbARN + "targetgroup/web/0000000000000001", "ValidationError", "a load balancer"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=" + nlbARN + "loadbalancer/net/net/0000000000000002", "LoadBalancerNotFound", "0000000000000002"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=" + nlbARN + "loadbalancer/net/net/ffffffffffffffff", "LoadBalancerNotFound", "ffffffffffffffff"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=" + nlbARN + "loadbalancer/net/other/0000000000000001", "LoadBalancerNotFound", "other"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=" + nlbARN + "loadbalancer/app/net/0000000000000001", "LoadBalancerNotFound", "app"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=arn:aws:elasticloadbalancing:sim-1:000000000002:loadbalancer/net/net/0000000000000001", "LoadBalancerNotFound", "000000000002"},
		{nlbAction + "DescribeLoadBalancers&LoadBalancerArns.member.1=arn:aws:elasticloadbalancing:sim-2:000000000001:loadbalancer/net/net/0000000000000001", "LoadBalancerNotFound", "sim-2"},
		{nlbAction + "DescribeLoadBalancers&PageSize=401", "InvalidParameterValue", "PageSize"},
		{nlbAction + "DescribeTargetGroups&Marker=*", "InvalidParameterValue", "Marker"},
		{nlbAction + "DescribeTargetGroups&Names.member.1=none", "TargetGroupNotFound", "none"},
		{nlbAction + "DescribeTargetGroups&Names.member.1=web&" + nlbLB, "ValidationError", "only one"},
		{nlbAction + "DescribeTargetGroups&TargetGroupArns.member.1=" + nlbARN + "targetgroup/none/0000000000000001", "TargetGroupNotFound", "none"},
		{nlbAction + "DescribeTargetGroups&TargetGroupArns.member.1=" + nlbARN + "targetgroup/web/0000000000000002", "TargetGroupNotFound", "0000000000000002"}, // the record with the number 2 is a listener
		{nlbAction + "DescribeListeners", "ValidationError", "ListenerArns"},
		{nlbAction + "DescribeListeners&ListenerArns.member.1=" + nlbARN + "listener/net/net/0000000000000001/0000000000000001", "ListenerNotFound", "listener"},
		{nlbAction + "DescribeListeners&ListenerArns.member.1=" + nlbARN + "listener/net/net/0000000000000009/0000000000000002", "ListenerNotFound", "0000000000000009"},
		{nlbAction + "DeleteListener&ListenerArn=" + nlbARN + "loadbalancer/net/net/0000000000000001", "ValidationError", "a listener"},
		{nlbAction + "DeleteLoadBalancer", "MissingParameter", "LoadBalancerArn"},
		{nlbAction + "DeleteTargetGroup&" + nlbTG, "ResourceInUse", "loadbalancer/net/net"},
		{nlbAction + "SetSecurityGroups&SecurityGroups.member.1=sg-00100000000000001&" + nlbLB, "InvalidConfigurationRequest", "without security groups"},
		{nlbGroup, "MissingParameter", "Protocol"},
		{nlbGroup + "&Protocol=TLS", "UnsupportedOperation", "a target group with the protocol TLS"},
		{nlbGroup + "&Protocol=X", "InvalidParameterValue", "Protocol"},
		{nlbGroup + "&Protocol=TCP&TargetType=ip", "UnsupportedOperation", "target type ip"},
		{nlbGroup + "&Protocol=TCP&IpAddressType=ipv6", "UnsupportedOperation", "ipv6"},
		{nlbGroup + "&Protocol=TCP&HealthCheckEnabled=false", "InvalidParameterValue", "HealthCheckEnabled"},
		{nlbGroup + "&Protocol=TCP&HealthCheckProtocol=UDP", "InvalidParameterValue", "HealthCheckProtocol"},
		{nlbGroup + "&Protocol=TCP&HealthCheckPath=/x", "InvalidParameterValue", "HealthCheckPath"},
		{nlbGroup + "&Protocol=TCP&HealthCheckProtocol=HTTP&HealthCheckPath=x", "InvalidParameterValue", "path"},
		{nlbGroup + "&Protocol=TCP&HealthCheckProtocol=HTTP&Matcher.HttpCode=x", "InvalidParameterValue", "expectedCodes"},
		{nlbGroup + "&Protocol=TCP&HealthCheckPort=0", "InvalidParameterValue", "HealthCheckPort"},
		{nlbGroup + "&Protocol=TCP&HealthCheckIntervalSeconds=4", "InvalidParameterValue", "HealthCheckIntervalSeconds"},
		{nlbGroup + "&Protocol=TCP&HealthCheckIntervalSeconds=5&HealthCheckTimeoutSeconds=6", "InvalidParameterValue", "HealthCheckTimeoutSeconds"},
		{nlbGroup + "&Protocol=TCP&HealthyThresholdCount=11", "InvalidParameterValue", "HealthyThresholdCount"},
		{nlbGroup + "&Protocol=TCP&VpcId=vpc-00000000000000001", "InvalidParameterCombination", "VpcId"},
		{strings.Replace(nlbGroup, "Name=b", "Name=web", 1) + "&Protocol=UDP", "DuplicateTargetGroupName", "web"},
		{strings.Replace(nlbGroup, "VpcId=vpc-00000000000000001", "VpcId=vpc-00000000000000099", 1) + "&Protocol=TCP", "InvalidVpcID.NotFound", "vpc-00000000000000099"},
		{nlbAction + "ModifyTargetGroup&HealthyThresholdCount=2", "MissingParameter", "TargetGroupArn"},
		{nlbAction + "ModifyTargetGroup&HealthyThresholdCount=1&" + nlbTG, "InvalidParameterValue", "HealthyThresholdCount"},
		{nlbAction + "ModifyTargetGroup&Port=1&" + nlbTG, "UnknownParameter", "Port"},
		{nlbListen, "MissingParameter", "DefaultActions"},
		{nlbListen + action + "TargetGroupArn=x", "ValidationError", "a target group"},
		{nlbListen + "&DefaultActions.member.1.Type=redirect", "UnsupportedOperation", "redirect"},
		{nlbListen + action + nlbTG + "&DefaultActions.member.2.Type=forward&DefaultActions.member.2." + nlbTG, "TooManyActions", "DefaultActions"},
		{nlbListen + action + nlbTG + "&DefaultActions.member.1.ForwardConfig.TargetGroups.member.1.Weight=1", "UnknownParameter", "ForwardConfig"},
		{nlbListen + action + nlbTG + "&Certificates.member.1.CertificateArn=x", "UnknownParameter", "Certificates"},
		{strings.Replace(nlbListen, "Protocol=TCP", "Protocol=TLS", 1) + action + nlbTG, "UnsupportedOperation", "a listener with the protocol TLS"},
		{strings.Replace(nlbListen, "Protocol=TCP", "Protocol=UDP", 1) + action + nlbTG, "IncompatibleProtocols", "UDP"},
		{nlbAction + "ModifyListener&Port=0&ListenerArn=" + nlbARN + "listener/net/net/0000000000000001/0000000000000002", "InvalidParameterValue", "Port"},
		{nlbAction + "RegisterTargets&" + nlbTG, "MissingParameter", "Targets"},
		{nlbAction + "RegisterTargets&Targets.member.1.Id=i-00000000000000099&" + nlbTG, "InvalidTarget", "i-00000000000000099"},
		{nlbAction + "RegisterTargets&Targets.member.1.Id=127.0.0.1&" + nlbTG, "InvalidTarget", "17 hex digits"},
		{nlbAction + "RegisterTargets&Targets.member.1.Id=i-00000000000000099&Targets.member.1.Port=81&" + nlbTG, "UnsupportedOperation", "port 81"},
		{nlbAction + "RegisterTargets&Targets.member.1.Id=i-00000000000000099&Targets.member.1.AvailabilityZone=all&" + nlbTG, "UnknownParameter", "AvailabilityZone"},
		{nlbAction + "DeregisterTargets&Targets.member.1.Id=x&" + nlbTG, "InvalidTarget", "17 hex digits"},
		{nlbAction + "DescribeTargetHealth&Targets.member.1.Id=x&" + nlbTG, "InvalidTarget", "17 hex digits"},
		{nlbAction + "ModifyLoadBalancerAttributes&" + nlbLB, "MissingParameter", "Attributes"},
		{nlbAction + "ModifyLoadBalancerAttributes&Attributes.member.1.Key=x&Attributes.member.1.Value=y&" + nlbLB, "InvalidConfigurationRequest", "x"},
		{nlbAction + "ModifyLoadBalancerAttributes&Attributes.member.1.Key=access_logs.s3.enabled&Attributes.member.1.Value=true&" + nlbLB, "UnsupportedOperation", "access_logs.s3.enabled"},
		{nlbAction + "ModifyLoadBalancerAttributes&Attributes.member.1.Key=deletion_protection.enabled&Attributes.member.1.Value=yes&" + nlbLB, "InvalidConfigurationRequest", "true or false"},
		{nlbAction + "ModifyTargetGroupAttributes&Attributes.member.1.Key=stickiness.enabled&Attributes.member.1.Value=true&" + nlbTG, "UnsupportedOperation", "stickiness.enabled"},
		{nlbAction + "ModifyTargetGroupAttributes&Attributes.member.1.Key=deregistration_delay.timeout_seconds&Attributes.member.1.Value=3601&" + nlbTG, "InvalidConfigurationRequest", "3600"},
		{nlbAction + "ModifyTargetGroupAttributes&Attributes.member.1.Key=slow_start.duration_seconds&Attributes.member.1.Value=30&" + nlbTG, "InvalidConfigurationRequest", "slow_start"},
		{nlbAction + "AddTags&ResourceArns.member.1=" + nlbARN + "loadbalancer/net/net/0000000000000001", "MissingParameter", "Tags"},
		{nlbAction + "AddTags&Tags.member.1.Key=a", "InvalidParameterValue", "ResourceArns"},
		{nlbAction + "AddTags&Tags.member.1.Key=a&ResourceArns.member.1=" + nlbARN + "loadbalancer/net/net/0000000000000001&ResourceArns.member.2=" + nlbARN + "targetgroup/web/0000000000000009", "TargetGroupNotFound", "0000000000000009"},
		{nlbAction + "AddTags&Tags.member.1.Key=dialect.cloudsim.dev/network&ResourceArns.member.1=" + nlbARN + "loadbalancer/net/net/0000000000000001", "InvalidParameterValue", "reserved"},
		{nlbAction + "RemoveTags&ResourceArns.member.1=" + nlbARN + "loadbalancer/net/net/0000000000000001", "MissingParameter", "TagKeys"},
		{nlbAction + "DescribeTags&ResourceArns.member.1=" + nlbARN + "truststore/web/0000000000000009", "ValidationError", "truststore"},
	} {
		form, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		if status, code, body := w.call(t, form); status < 400 || code != tc.code || !strings.Contains(body, tc.message) {
			t.Errorf("%s: got %d %s %s, want code %s with %q", tc.query, status, code, body, tc.code, tc.message)
		}
	}
	if after := revision(); after != before {
		t.Errorf("revision of the load balancer and records after wrong requests: got %s, want %s", after, before)
	}
}

// TestNetworkProjects proves that a caller cannot find the resources of another project, not even
// by their ARNs.
func TestNetworkProjects(t *testing.T) {
	w := start(t)
	p, err := w.cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	shop := *w.cloud
	shop.Project = p.ID
	if _, err := shop.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{
		Name: "net", Region: "sim-1", Labels: map[string]string{"dialect.cloudsim.dev/network": "net-000001"}, LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.CreateRecord(t.Context(), cloudsim.CreateRecord{Kind: "aws-target-group", Name: "sim-1/web", Document: []byte(`{"name":"web","region":"sim-1","network":"net-000001","protocol":"TCP","port":80}`)}); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{"000000000001", "000000000002"} {
		arn := "arn:aws:elasticloadbalancing:sim-1:" + account + ":"
		for _, tc := range []struct{ query, code string }{
			{"DescribeLoadBalancers&LoadBalancerArns.member.1=" + arn + "loadbalancer/net/net/0000000000000001", "LoadBalancerNotFound"},
			{"DescribeTargetGroups&TargetGroupArns.member.1=" + arn + "targetgroup/web/0000000000000001", "TargetGroupNotFound"},
			{"AddTags&Tags.member.1.Key=a&ResourceArns.member.1=" + arn + "loadbalancer/net/net/0000000000000001", "LoadBalancerNotFound"},
			{"RegisterTargets&Targets.member.1.Id=i-00000000000000001&TargetGroupArn=" + arn + "targetgroup/web/0000000000000001", "TargetGroupNotFound"},
		} {
			form, err := url.ParseQuery(nlbAction + tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if _, code, body := w.call(t, form); code != tc.code {
				t.Errorf("%s: got %s %s, want %s", tc.query, code, body, tc.code)
			}
		}
	}
	for _, call := range []string{"DescribeLoadBalancers", "DescribeTargetGroups"} {
		if _, _, body := w.call(t, url.Values{"Version": {"2015-12-01"}, "Action": {call}}); strings.Contains(body, "arn:") {
			t.Errorf("%s: got a resource of another project: %s", call, body)
		}
	}
}

// TestErrors proves that each wrong request changes nothing and gets AWS's error. The error names
// the wrong parameter.
func TestErrors(t *testing.T) {
	w := start(t)
	i, err := w.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ query, code, message string }{
		{"Action=CreateVpc", "UnsupportedOperation", "ec2.CreateVpc"},
		{"Action=SetLoadBalancerPoliciesOfListener&Version=2012-06-01", "UnsupportedOperation", "elb.SetLoadBalancerPoliciesOfListener"},
		{"Action=", "MissingAction", "Action"},
		{"Action=Describe%20Instances", "MissingAction", "Action"},
		{"Action=DescribeInstances&Version=2000-01-01", "NoSuchVersion", "2000-01-01"},
		{"Action=DescribeInstances&InstanceId.1=i-1", "InvalidInstanceID.Malformed", "i-1"},
		{"Action=DescribeInstances&InstanceId.1=i-0000000000000000G", "InvalidInstanceID.Malformed", "17 hex digits"},
		{"Action=DescribeInstances&InstanceId.1=i-00000000000000000", "InvalidInstanceID.Malformed", "17 hex digits"},
		{"Action=DescribeInstances&InstanceId.1=i-fffffffffffffffff", "InvalidInstanceID.Malformed", "17 hex digits"},
		{"Action=DescribeInstances&InstanceId.1=vol-00000000000000001", "InvalidInstanceID.Malformed", "vol-"},
		{"Action=DescribeInstances&InstanceId.1=i-00000000000000001&InstanceId.2=i-00000000000000099", "InvalidInstanceID.NotFound", "i-00000000000000099"},
		{"Action=DescribeInstances&InstanceId.1=i-00000000000000001&MaxResults=5", "InvalidParameterCombination", "MaxResults"},
		{"Action=DescribeInstances&InstanceId.2=i-00000000000000001", "UnknownParameter", "InstanceId.2"},
		{"Action=DescribeInstances&MaxResults=4", "InvalidParameterValue", "MaxResults"},
		{"Action=DescribeInstances&MaxResults=x", "InvalidParameterValue", "MaxResults"},
		{"Action=DescribeInstances&NextToken=***", "InvalidParameterValue", "NextToken"},
		{"Action=DescribeInstances&NextToken=dm9sLTE", "InvalidParameterValue", "after"},
		{"Action=DescribeInstances&Filter.1.Name=color&Filter.1.Value.1=red", "InvalidParameterValue", "color"},
		{"Action=DescribeInstances&Filter.1.Name=vpc-id", "InvalidParameterValue", "vpc-id"},
		{"Action=DescribeInstances&Filter.1.Name=&Filter.1.Value.1=x", "InvalidParameterValue", "Filter.1.Name"},
		{"Action=DescribeInstances&Wanted=all", "UnknownParameter", "Wanted"},
		{"Action=DescribeInstances&DryRun=yes", "InvalidParameterValue", "DryRun"},
		{"Action=DescribeInstances&DryRun=true", "DryRunOperation", "would have succeeded"},
		{"Action=DescribeInstances&Action=DescribeVpcs", "InvalidParameterCombination", "twice"},
		{"Action=DescribeInstanceTypes&InstanceType.1=m5.large", "InvalidInstanceType", "m5.large"},
		{"Action=DescribeNetworkInterfaces&NetworkInterfaceId.1=eni-00000000000000099", "InvalidNetworkInterfaceID.NotFound", "eni-00000000000000099"},
		{runInstances + "&MinCount=1", "MissingParameter", "MaxCount"},
		{runInstances + "&MinCount=2&MaxCount=1", "InvalidParameterValue", "MaxCount"},
		{runInstances + "&MinCount=0&MaxCount=1", "InvalidParameterValue", "MinCount"},
		{"Action=RunInstances&InstanceType=small&MinCount=1&MaxCount=1", "MissingParameter", "ImageId"},
		{"Action=RunInstances&InstanceType=small&MinCount=1&MaxCount=1&ImageId=debian-13", "InvalidAMIID.Malformed", "ImageId"},
		{"Action=RunInstances&ImageId=ami-12345678&MinCount=1&MaxCount=1", "MissingParameter", "InstanceType"},
		{"Action=RunInstances&ImageId=ami-12345678&MinCount=1&MaxCount=1&InstanceType=m5.large", "InvalidParameterValue", "InstanceType"},
		{runOne + "&UserData=*", "InvalidUserData.Malformed", "UserData"},
		{runOne + "&ClientToken=" + strings.Repeat("x", 65), "InvalidParameterValue", "ClientToken"},
		{runOne + "&KeyName=me", "UnknownParameter", "KeyName"},
		{runOne + "&Monitoring.Enabled=true", "UnsupportedOperation", "Monitoring.Enabled"},
		{runOne + "&Placement.Tenancy=dedicated", "UnsupportedOperation", "dedicated"},
		{runOne + "&Placement.AvailabilityZone=us-east-1a", "InvalidZone.NotFound", "Placement.AvailabilityZone"},
		{runOne + "&SubnetId=subnet-00000000000000099", "InvalidSubnetID.NotFound", "subnet-00000000000000099"},
		{runOne + "&SecurityGroupId.1=sg-00000000000000099", "InvalidGroup.NotFound", "sg-00000000000000099"},
		{runOne + "&IamInstanceProfile.Name=unknown", "InvalidParameterValue", "unknown"},
		{runOne + "&TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=a", "InvalidParameterValue", "TagSpecification.1.ResourceType"},
		{runInstances + "&MinCount=1&MaxCount=2&PrivateIpAddress=127.64.0.9", "InvalidParameterCombination", "PrivateIpAddress"},
		{"Action=StartInstances", "MissingParameter", "InstanceId"},
		{"Action=StartInstances&InstanceId=i-00000000000000001", "MissingParameter", "InstanceId"}, // an element of a list must have a number
		{"Action=StopInstances&InstanceId.1=i-00000000000000099", "InvalidInstanceID.NotFound", "i-00000000000000099"},
		{"Action=StopInstances&InstanceId.1=i-00000000000000001&InstanceId.2=i-1", "InvalidInstanceID.Malformed", "i-1"},
		{"Action=StopInstances&InstanceId.1=i-00000000000000001&Force=true", "UnsupportedOperation", "Force"},
		{"Action=ModifyInstanceAttribute&InstanceId=i-00000000000000001", "InvalidParameterCombination", "exactly one"},
		{"Action=ModifyInstanceAttribute&InstanceId=i-00000000000000001&GroupId.1=sg-00000000000000099", "InvalidGroup.NotFound", "sg-00000000000000099"},
		{"Action=ModifyInstanceAttribute&InstanceId=i-00000000000000001&InstanceType.Value=large&SourceDestCheck.Value=false", "UnknownParameter", "InstanceType.Value"},
		{"Action=TerminateInstances&InstanceId.1=i-00000000000000001&DryRun=true", "DryRunOperation", "would have succeeded"},
		{"Action=DescribeVolumes&VolumeId.1=vol-1", "InvalidVolumeID.Malformed", "vol-1"},
		{createVolume, "MissingParameter", "Size"},
		{createVolume + "&Size=0", "InvalidParameterValue", "Size"},
		{createVolume + "&Size=20000&VolumeType=gp3", "InvalidParameterValue", "Size"},
		{"Action=CreateVolume&Size=1", "MissingParameter", "AvailabilityZone"},
		{"Action=CreateVolume&Size=1&AvailabilityZone=us-east-1a", "InvalidZone.NotFound", "AvailabilityZone"},
		{createVolume + "&AvailabilityZoneId=sim-1a&Size=1", "UnknownParameter", "AvailabilityZoneId"},
		{createVolume + "&Size=1&VolumeType=st1", "UnsupportedOperation", "st1"},
		{createVolume + "&Size=1&VolumeType=gp9", "InvalidParameterValue", "VolumeType"},
		{createVolume + "&Size=1&VolumeType=gp2&Iops=3000", "InvalidParameterCombination", "Iops"},
		{createVolume + "&Size=1&VolumeType=io2&Iops=3000&Throughput=200", "InvalidParameterCombination", "Throughput"},
		{createVolume + "&Size=10&VolumeType=io2", "MissingParameter", "Iops"},
		{createVolume + "&Size=10&VolumeType=gp3&Iops=20000", "InvalidParameterValue", "Iops"},
		{createVolume + "&Size=10&VolumeType=gp3&MultiAttachEnabled=true", "InvalidParameterValue", "MultiAttachEnabled"},
		{createVolume + "&Size=10&Encrypted=true", "UnsupportedOperation", "Encrypted"},
		{createVolume + "&Size=10&KmsKeyId=x", "UnknownParameter", "KmsKeyId"},
		{createVolume + "&SnapshotId=snap-1", "InvalidSnapshotID.Malformed", "snap-1"},
		{createVolume + "&SnapshotId=snap-00000000000000099", "InvalidSnapshot.NotFound", "snap-00000000000000099"},
		{"Action=AttachVolume&VolumeId=vol-00000000000000099&InstanceId=i-00000000000000001&Device=/dev/xvdba", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=AttachVolume&VolumeId=vol-00000000000000099&InstanceId=i-00000000000000099&Device=/dev/xvdba", "InvalidInstanceID.NotFound", "i-00000000000000099"},
		{"Action=AttachVolume&VolumeId=vol-00000000000000099&InstanceId=i-00000000000000001&Device=xvdba", "InvalidParameterValue", "Device"},
		{"Action=AttachVolume&VolumeId=vol-00000000000000099&InstanceId=i-00000000000000001", "MissingParameter", "Device"},
		{"Action=DetachVolume&VolumeId=vol-00000000000000099", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=DeleteVolume&VolumeId=vol-00000000000000099", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=ModifyVolume&VolumeId=vol-00000000000000099", "MissingParameter", "Size"},
		{"Action=ModifyVolume&VolumeId=vol-00000000000000099&Size=10", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=DescribeVolumesModifications&VolumeId.1=vol-00000000000000099", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=CreateSnapshot&VolumeId=vol-00000000000000099", "InvalidVolume.NotFound", "vol-00000000000000099"},
		{"Action=CreateSnapshot&VolumeId=vol-00000000000000099&Description=" + strings.Repeat("x", 257), "InvalidParameterValue", "Description"},
		{"Action=DeleteSnapshot&SnapshotId=snap-00000000000000099", "InvalidSnapshot.NotFound", "snap-00000000000000099"},
		{"Action=CreateTags&ResourceId.1=snap-00000000000000099&Tag.1.Key=a", "InvalidSnapshot.NotFound", "snap-00000000000000099"},
		{createRoute, "MissingParameter", "InstanceId"},
		{createRoute + "&InstanceId=i-00000000000000001&NetworkInterfaceId=eni-00000000000000001", "InvalidParameterCombination", "InstanceId"},
		{createRoute + "&GatewayId=igw-00000000000000001", "MissingParameter", "InstanceId"},
		{createRoute + "&InstanceId=i-00000000000000099", "InvalidInstanceID.NotFound", "i-00000000000000099"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000001&InstanceId=i-00000000000000001", "MissingParameter", "DestinationCidrBlock"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000001&InstanceId=i-00000000000000001&DestinationCidrBlock=10.244.1.1/24", "InvalidParameterValue", "DestinationCidrBlock"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000001&InstanceId=i-00000000000000001&DestinationIpv6CidrBlock=10.244.1.0/24", "InvalidParameterValue", "DestinationIpv6CidrBlock"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000001&InstanceId=i-00000000000000001&DestinationCidrBlock=0.0.0.0/0", "RouteAlreadyExists", "0.0.0.0/0"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000001&InstanceId=i-00000000000000001&DestinationCidrBlock=127.64.0.0/24", "InvalidParameterValue", "DestinationCidrBlock"},
		{"Action=CreateRoute&RouteTableId=rtb-00000000000000099&InstanceId=i-00000000000000001&DestinationCidrBlock=10.244.1.0/24", "InvalidRouteTableID.NotFound", "rtb-00000000000000099"},
		{"Action=DeleteRoute&RouteTableId=rtb-00000000000000001&DestinationCidrBlock=10.244.1.0/24", "InvalidRoute.NotFound", "10.244.1.0/24"},
		{"Action=DeleteRoute&RouteTableId=rtb-00000000000000001&DestinationCidrBlock=0.0.0.0/0", "InvalidParameterValue", "DestinationCidrBlock"},
		{"Action=ReplaceRoute&RouteTableId=rtb-00000000000000001&DestinationCidrBlock=10.244.1.0/24&InstanceId=i-00000000000000001", "InvalidParameterValue", "10.244.1.0/24"},
		{"Action=DescribeVolumes&VolumeId.1=vol-00000000000000001", "InvalidVolume.NotFound", "vol-00000000000000001"},
		{"Action=DescribeInstances&Filter.1.Name=tag:a&Filter.1.Value.1=b&Filter.1.Value.2=" + strings.Repeat("*", 80_000), "InvalidParameterValue", "Filter.1.Value.2"},
		{"Action=DescribeVpcs&VpcId.1=vpc-00000000000000099", "InvalidVpcID.NotFound", "vpc-00000000000000099"},
		{"Action=DescribeSubnets&SubnetId.1=subnet-00000000000000099", "InvalidSubnetID.NotFound", "subnet-00000000000000099"},
		{"Action=DescribeAvailabilityZones&ZoneName.1=us-east-1a", "InvalidParameterValue", "us-east-1a"},
		{"Action=DescribeRegions&RegionName.1=us-east-1", "InvalidParameterValue", "us-east-1"},
		{"Action=CreateTags&Tag.1.Key=a&Tag.1.Value=b", "MissingParameter", "ResourceId"},
		{"Action=CreateTags&ResourceId.1=i-00000000000000001&ResourceId.2=i-00000000000000099&Tag.1.Key=a&Tag.1.Value=b", "InvalidInstanceID.NotFound", "i-00000000000000099"},
		{"Action=CreateTags&ResourceId.1=vpc-00000000000000001&Tag.1.Key=a&Tag.1.Value=b", "InvalidID", "vpc-00000000000000001"},
		{"Action=CreateTags&ResourceId.1=i-00000000000000001&Tag.1.Key=dialect.cloudsim.dev%2Fx&Tag.1.Value=b", "InvalidParameterValue", "reserved"},
		{"Action=CreateTags&ResourceId.1=i-00000000000000001&Tag.1.Key=" + strings.Repeat("k", 129) + "&Tag.1.Value=b", "InvalidParameterValue", "labels"},
		{"Action=DescribeSecurityGroups&GroupId.1=sg-1", "InvalidGroupId.Malformed", "sg-1"},
		{"Action=DescribeSecurityGroups&GroupId.1=sg-00000000000000099", "InvalidGroup.NotFound", "sg-00000000000000099"},
		{"Action=DescribeSecurityGroups&GroupId.1=sg-00100000000000099", "InvalidGroup.NotFound", "sg-00100000000000099"},
		{"Action=DescribeSecurityGroups&GroupName.1=default", "UnknownParameter", "GroupName.1"},
		{"Action=DescribeRouteTables&RouteTableId.1=rtb-00000000000000099", "InvalidRouteTableID.NotFound", "rtb-00000000000000099"},
		{"Action=CreateSecurityGroup&GroupName=a", "MissingParameter", "GroupDescription"},
		{"Action=CreateSecurityGroup&GroupName=default&GroupDescription=x", "InvalidParameterValue", "GroupName"},
		{"Action=CreateSecurityGroup&GroupName=sg-a&GroupDescription=x", "InvalidParameterValue", "GroupName"},
		{"Action=CreateSecurityGroup&GroupName=a&GroupDescription=%22x%22", "InvalidParameterValue", "GroupDescription"},
		{"Action=CreateSecurityGroup&GroupName=a&GroupDescription=x&VpcId=vpc-00000000000000099", "InvalidVpcID.NotFound", "vpc-00000000000000099"},
		{"Action=CreateSecurityGroup&GroupName=a&GroupDescription=x&TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=a", "InvalidParameterValue", "TagSpecification.1.ResourceType"},
		{"Action=DeleteSecurityGroup", "MissingParameter", "GroupId"},
		{"Action=DeleteSecurityGroup&GroupId=sg-00100000000000001", "CannotDelete", "default group"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001", "MissingParameter", "IpPermissions"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&CidrIp=10.0.0.0/8&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "UnknownParameter", "CidrIp"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=gre&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "InvalidParameterValue", "IpPermissions.1.IpProtocol"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "MissingParameter", "IpPermissions.1.FromPort"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=9&IpPermissions.1.ToPort=8&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "InvalidParameterValue", "IpPermissions.1.ToPort"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/33", "InvalidParameterValue", "IpPermissions.1.IpRanges.1.CidrIp"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=-1&IpPermissions.1.Ipv6Ranges.1.CidrIpv6=10.0.0.0/8", "InvalidParameterValue", "IPv6"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=-1", "MissingParameter", "source"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=-1&IpPermissions.1.Groups.1.GroupId=sg-00000000000000099", "InvalidGroup.NotFound", "sg-00000000000000099"},
		{"Action=RevokeSecurityGroupIngress&GroupId=sg-00100000000000001&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "InvalidPermission.NotFound", "10.0.0.0/8"},
		{"Action=CreateLoadBalancer&Version=2012-06-01&LoadBalancerName=a", "MissingParameter", "Listeners"},
		{elbCreate + "&LoadBalancerName=a_b", "InvalidParameterValue", "LoadBalancerName"},
		{elbCreate + "&LoadBalancerName=a", "InvalidConfigurationRequest", "Subnets"},
		{elbCreate + "&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000099", "SubnetNotFound", "subnet-00000000000000099"},
		{elbCreate + "&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001&SecurityGroups.member.1=sg-00000000000000099", "InvalidSecurityGroup", "sg-00000000000000099"},
		{elbCreate + "&LoadBalancerName=a&Subnets.member.1=subnet-00000000000000001&Scheme=private", "InvalidScheme", "private"},
		{elbCreate + "&LoadBalancerName=a&AvailabilityZones.member.1=sim-1a", "UnknownParameter", "AvailabilityZones.member.1"},
		{elbCreate + "&LoadBalancerName=a&Listeners.member.2.Protocol=HTTP&Listeners.member.2.LoadBalancerPort=81&Listeners.member.2.InstancePort=81", "UnsupportedOperation", "HTTP"},
		{elbCreate + "&LoadBalancerName=a&Listeners.member.2.Protocol=TCP&Listeners.member.2.LoadBalancerPort=0&Listeners.member.2.InstancePort=81", "InvalidParameterValue", "Listeners.member.2.LoadBalancerPort"},
		{elbCreate + "&LoadBalancerName=a&Listeners.member.2.Protocol=TCP&Listeners.member.2.LoadBalancerPort=81", "MissingParameter", "Listeners.member.2.InstancePort"},
		{elbCreate + "&LoadBalancerName=a&Listeners.member.2.Protocol=TCP&Listeners.member.2.LoadBalancerPort=80&Listeners.member.2.InstancePort=81&Subnets.member.1=subnet-00000000000000001", "DuplicateListener", "80"},
		{elbAction + "DescribeLoadBalancers&LoadBalancerNames.member.1=none", "LoadBalancerNotFound", "none"},
		{elbAction + "DescribeLoadBalancers&PageSize=401", "InvalidParameterValue", "PageSize"},
		{elbAction + "DescribeLoadBalancers&Marker=*", "InvalidParameterValue", "Marker"},
		{elbAction + "DeleteLoadBalancer", "MissingParameter", "LoadBalancerName"},
		{elbAction + "DeleteLoadBalancerListeners&LoadBalancerName=a", "MissingParameter", "LoadBalancerPorts"},
		{elbAction + "DeleteLoadBalancerListeners&LoadBalancerName=a&LoadBalancerPorts.member.1=x", "InvalidParameterValue", "LoadBalancerPorts.member.1"},
		{elbAction + "RegisterInstancesWithLoadBalancer&LoadBalancerName=a", "MissingParameter", "Instances"},
		{elbAction + "DeregisterInstancesFromLoadBalancer&LoadBalancerName=a&Instances.member.1.InstanceId=x", "InvalidInstance", "17 hex digits"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=UDP:1", "InvalidParameterValue", "HealthCheck.Target"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=TCP:70000", "InvalidParameterValue", "HealthCheck.Target"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=HTTP:80", "InvalidParameterValue", "HealthCheck.Target"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=SSL:443", "UnsupportedOperation", "SSL"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=TCP:80&HealthCheck.Interval=4", "InvalidParameterValue", "HealthCheck.Interval"},
		{elbAction + "ConfigureHealthCheck&LoadBalancerName=a&HealthCheck.Target=TCP:80&HealthCheck.Interval=5&HealthCheck.Timeout=5&HealthCheck.HealthyThreshold=2&HealthCheck.UnhealthyThreshold=2", "InvalidParameterValue", "less than HealthCheck.Interval"},
		{elbAction + "ModifyLoadBalancerAttributes&LoadBalancerName=a&LoadBalancerAttributes.AccessLog.Enabled=true", "UnsupportedOperation", "AccessLog"},
		{elbAction + "ModifyLoadBalancerAttributes&LoadBalancerName=a&LoadBalancerAttributes.ConnectionSettings.IdleTimeout=4001", "InvalidParameterValue", "IdleTimeout"},
		{elbAction + "ModifyLoadBalancerAttributes&LoadBalancerName=a&LoadBalancerAttributes.AdditionalAttributes.member.1.Key=x", "UnknownParameter", "AdditionalAttributes"},
		{elbAction + "ModifyLoadBalancerAttributes&LoadBalancerName=a&LoadBalancerAttributes.ConnectionDraining.Timeout=30", "MissingParameter", "ConnectionDraining.Enabled"},
		{elbPolicy, "MissingParameter", "PolicyTypeName"},
		{elbPolicy + "&PolicyTypeName=ProxyProtocolPolicyType", "InvalidConfigurationRequest", "ProxyProtocol"},
		{elbPolicy + "&PolicyTypeName=ProxyProtocolPolicyType" + elbProxy + "false", "InvalidConfigurationRequest", "true"},
		{elbPolicy + "&PolicyTypeName=ProxyProtocolPolicyType" + elbProxy + "true&PolicyAttributes.member.2.AttributeName=x", "InvalidConfigurationRequest", "only the attribute"},
		{elbPolicy + "&PolicyTypeName=ProxyProtocolPolicyType" + elbProxy + "true", "LoadBalancerNotFound", "a"},
		{strings.Replace(elbPolicy, "=p", "=a,b", 1) + "&PolicyTypeName=ProxyProtocolPolicyType" + elbProxy + "true", "InvalidParameterValue", "PolicyName"},
		{elbPolicy + "&PolicyTypeName=SSLNegotiationPolicyType&PolicyAttributes.member.1.AttributeName=Reference-Security-Policy", "UnsupportedOperation", "SSLNegotiationPolicyType"},
		{elbPolicy + "&PolicyTypeName=x", "PolicyTypeNotFound", "ProxyProtocolPolicyType"},
		{elbAction + "DeleteLoadBalancerPolicy&LoadBalancerName=a", "MissingParameter", "PolicyName"},
		{elbAction + "DescribeLoadBalancerPolicies", "MissingParameter", "LoadBalancerName"},
		{elbAction + "SetLoadBalancerPoliciesForBackendServer&LoadBalancerName=a", "MissingParameter", "InstancePort"},
		{elbAction + "SetLoadBalancerPoliciesForBackendServer&LoadBalancerName=a&InstancePort=70000", "InvalidParameterValue", "InstancePort"},
		{elbAction + "AddTags&LoadBalancerNames.member.1=a&LoadBalancerNames.member.2=b&Tags.member.1.Key=a", "InvalidParameterValue", "LoadBalancerNames"},
		{elbAction + "AddTags&LoadBalancerNames.member.1=a", "MissingParameter", "Tags"},
		{"Action=GetCallerIdentity&Version=2011-06-15&X=1", "UnknownParameter", "X"},
	} {
		form, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		if status, code, body := w.call(t, form); status < 400 || code != tc.code || !strings.Contains(body, tc.message) {
			t.Errorf("%s: got %d %s %s, want code %s with %q", tc.query, status, code, body, tc.code, tc.message)
		}
	}
	got, err := w.cloud.GetInstance(t.Context(), i.ID)
	if err != nil || got.Revision != i.Revision {
		t.Errorf("instance after wrong requests: got %+v, error %v; want revision %d", got, err, i.Revision)
	}
	if all, err := w.cloud.ListInstances(t.Context(), cloudsim.ListOptions{}); err != nil || len(all.Items) != 1 {
		t.Errorf("instances after wrong requests: got %d, error %v; want 1", len(all.Items), err)
	}
}

// TestProjects proves that a caller can neither see nor change the instances of another project.
func TestProjects(t *testing.T) {
	w := start(t)
	p, err := w.cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	shop := *w.cloud
	shop.Project = p.ID
	if _, err := shop.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"DescribeInstances", "StartInstances", "StopInstances", "RebootInstances", "TerminateInstances"} {
		if _, code, _ := w.call(t, url.Values{"Action": {action}, "InstanceId.1": {"i-00000000000000001"}}); code != "InvalidInstanceID.NotFound" {
			t.Errorf("%s for an instance of another project: got code %q, want InvalidInstanceID.NotFound", action, code)
		}
	}
	if i, err := shop.DeleteInstance(t.Context(), "i-000001"); err != nil || i.State != cloudsim.InstanceTerminated {
		t.Fatalf("deletion: got %+v, error %v", i, err)
	}
	if _, code, _ := w.call(t, url.Values{"Action": {"DescribeInstances"}, "InstanceId.1": {"i-00000000000000001"}}); code != "InvalidInstanceID.NotFound" {
		t.Errorf("terminated instance of another project: got code %q, want InvalidInstanceID.NotFound", code)
	}
	if _, _, body := w.call(t, url.Values{"Action": {"DescribeInstances"}}); strings.Contains(body, "i-0") {
		t.Errorf("list: got an instance of another project: %s", body)
	}
}

// TestConcurrentChangeIsIncorrectState proves that a call returns IncorrectState if each of its
// attempts to write the resource fails with Stale. An attempt fails with Stale if another caller
// has changed the resource in the meantime.
func TestConcurrentChangeIsIncorrectState(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	if _, err := w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
	w.breakCalls(t, "instances.update", cloudsim.FaultWhen{}, cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "stale"})
	for _, call := range []string{
		"Action=ModifyInstanceAttribute&InstanceId=i-00000000000000001&SourceDestCheck.Value=false",
		"Action=CreateTags&ResourceId.1=i-00000000000000001&Tag.1.Key=a&Tag.1.Value=b",
	} {
		form, err := url.ParseQuery(call)
		if err != nil {
			t.Fatal(err)
		}
		if status, code, body := do(t, w.request(t, time.Now(), form)); status != http.StatusBadRequest || code != "IncorrectState" {
			t.Errorf("%s: got status %d, code %s, want 400 and IncorrectState: %s", call, status, code, body)
		}
	}
}
