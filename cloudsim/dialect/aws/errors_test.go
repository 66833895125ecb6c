package aws_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	elbAction    = "Version=2012-06-01&Action="
	runInstances = "Action=RunInstances&ImageId=ami-12345678&InstanceType=small"
	runOne       = runInstances + "&MinCount=1&MaxCount=1"
	createVolume = "Action=CreateVolume&AvailabilityZone=sim-1a"
	createRoute  = "Action=CreateRoute&RouteTableId=rtb-00000000000000001&DestinationCidrBlock=10.244.1.0/24"
	elbCreate    = elbAction + "CreateLoadBalancer&Listeners.member.1.Protocol=TCP&Listeners.member.1.LoadBalancerPort=80&Listeners.member.1.InstancePort=30080"
)

// TestErrors proves that each wrong request gets AWS's error. The error names the wrong
// parameter, and nothing changes.
func TestErrors(t *testing.T) {
	w := start(t)
	i, err := w.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ query, code, message string }{
		{"Action=CreateVpc", "UnsupportedOperation", "ec2.CreateVpc"},
		{"Action=CreateLoadBalancerPolicy&Version=2012-06-01", "UnsupportedOperation", "elb.CreateLoadBalancerPolicy"},
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

// TestProjects proves that a caller does not see the instances of another project.
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
