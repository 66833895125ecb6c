package interop

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const image = "ami-0123456789abcdef0"

func runRequest(least, most int32) *ec2.RunInstancesInput {
	return &ec2.RunInstancesInput{ImageId: sdk.String(image), InstanceType: "small", MinCount: &least, MaxCount: &most}
}

func ownInstance(id string) cloudsim.InstanceID {
	return dialect.ID[cloudsim.InstanceID]("i", dialect.Number(id))
}

// testInstances makes each call about instances, from their creation to their termination.
func testInstances(t *testing.T, w *world) {
	ctx := t.Context()
	all := must(w.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{}))(t).InstanceTypes
	if len(all) != 3 {
		t.Fatalf("instance types: got %d, want 3", len(all))
	}
	small := must(w.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"small"}}))(t).InstanceTypes
	if len(small) != 1 || small[0].InstanceType != "small" || *small[0].VCpuInfo.DefaultVCpus != 2 || *small[0].MemoryInfo.SizeInMiB != 4096 || small[0].ProcessorInfo.SupportedArchitectures[0] != types.ArchitectureTypeX8664 || *small[0].NetworkInfo.MaximumNetworkInterfaces != 1 {
		t.Errorf("instance type: got %+v", small)
	}
	group := w.createGroup(t, "workers")
	must(w.cloud.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "node"}))(t)
	in := runRequest(2, 2)
	in.ClientToken, in.SubnetId, in.SecurityGroupIds = sdk.String("workers-1"), sdk.String("subnet-00000000000000001"), []string{group}
	in.Placement = &types.Placement{AvailabilityZone: sdk.String("sim-1b"), Tenancy: types.TenancyDefault}
	in.UserData, in.Monitoring = sdk.String(base64.StdEncoding.EncodeToString([]byte("#cloud-config"))), &types.RunInstancesMonitoringEnabled{Enabled: sdk.Bool(false)}
	in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: sdk.String("node")}
	in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: sdk.String("Name"), Value: sdk.String("worker")}}}}
	made := must(w.RunInstances(ctx, in))(t)
	if len(made.Instances) != 2 || *made.OwnerId != "000000000001" || *made.ReservationId == "" || *made.Instances[0].InstanceId == *made.Instances[1].InstanceId {
		t.Fatalf("new instances: got %+v", made)
	}
	i := made.Instances[0]
	id := *i.InstanceId
	if *i.ImageId != image || i.InstanceType != "small" || *i.Placement.AvailabilityZone != "sim-1b" || *i.SubnetId != "subnet-00000000000000001" || i.State.Name != types.InstanceStateNameRunning || len(i.Tags) != 1 || *i.Tags[0].Value != "worker" ||
		len(i.SecurityGroups) != 1 || *i.SecurityGroups[0].GroupId != group || *i.SecurityGroups[0].GroupName != "workers" || !*i.SourceDestCheck || *i.PrivateIpAddress == "" || *i.IamInstanceProfile.Id == "" {
		t.Errorf("new instance: got %+v", i)
	}
	if got := must(w.cloud.GetUserData(ctx, ownInstance(id)))(t); got.UserData != "#cloud-config" {
		t.Errorf("user data: got %q", got.UserData)
	}
	again := must(w.RunInstances(ctx, in))(t)
	if len(again.Instances) != 2 || *again.Instances[0].InstanceId != id || *again.Instances[1].InstanceId != *made.Instances[1].InstanceId {
		t.Errorf("repeated request: got %+v, want the same instances", again.Instances)
	}
	in.InstanceType = "medium"
	_, err := w.RunInstances(ctx, in)
	mustFail(t, err, "IdempotentParameterMismatch")

	shown := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{{Name: sdk.String("instance.group-id"), Values: []string{group}}}}))(t)
	if len(shown.Reservations) != 2 || *shown.Reservations[0].Instances[0].SecurityGroups[0].GroupName != "workers" {
		t.Errorf("instances with the group: got %+v", shown.Reservations)
	}
	_, err = w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &group})
	mustFail(t, err, "DependencyViolation")

	must(w.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &id, SourceDestCheck: &types.AttributeBooleanValue{Value: sdk.Bool(false)}}))(t)
	updates := len(must(w.cloud.Audit(ctx, cloudsim.AuditOptions{Operation: "instances.update"}))(t).Items)
	must(w.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &id, SourceDestCheck: &types.AttributeBooleanValue{Value: sdk.Bool(false)}}))(t)
	if got := len(must(w.cloud.Audit(ctx, cloudsim.AuditOptions{Operation: "instances.update"}))(t).Items); got != updates {
		t.Errorf("attribute with the present value: got %d more updates of the instance, want none", got-updates)
	}
	interfaces := must(w.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{{Name: sdk.String("attachment.instance-id"), Values: []string{id}}}}))(t).NetworkInterfaces
	if len(interfaces) != 1 || *interfaces[0].SourceDestCheck || *interfaces[0].Attachment.InstanceId != id || *interfaces[0].PrivateIpAddress != *i.PrivateIpAddress || *interfaces[0].AvailabilityZone != "sim-1b" || *interfaces[0].Groups[0].GroupId != group || *interfaces[0].Attachment.AttachmentId == "" {
		t.Errorf("network interfaces: got %+v", interfaces)
	}
	must(w.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &id, Groups: []string{"sg-00100000000000001"}}))(t)
	if g := w.shownInstance(t, id).SecurityGroups; len(g) != 1 || *g[0].GroupName != "default" {
		t.Errorf("new groups: got %+v", g)
	}

	stopped := must(w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id, *made.Instances[1].InstanceId}}))(t).StoppingInstances
	if len(stopped) != 2 || *stopped[0].InstanceId != id || stopped[0].PreviousState.Name != types.InstanceStateNameRunning || stopped[0].CurrentState.Name != types.InstanceStateNameStopped || *stopped[0].CurrentState.Code != 80 {
		t.Errorf("stopped instances: got %+v", stopped)
	}
	_, err = w.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	mustFail(t, err, "IncorrectInstanceState")
	if s := must(w.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: []string{id}}))(t).InstanceStatuses; len(s) != 0 {
		t.Errorf("status of a stopped instance: got %+v, want none", s)
	}
	if s := must(w.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: []string{id}, IncludeAllInstances: sdk.Bool(true)}))(t).InstanceStatuses; len(s) != 1 || s[0].InstanceStatus.Status != types.SummaryStatusNotApplicable {
		t.Errorf("status of a stopped instance with IncludeAllInstances: got %+v, want not-applicable", s)
	}
	started := must(w.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}}))(t).StartingInstances
	if len(started) != 1 || started[0].PreviousState.Name != types.InstanceStateNameStopped || started[0].CurrentState.Name != types.InstanceStateNameRunning {
		t.Errorf("started instance: got %+v", started)
	}
	must(w.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}}))(t)
	must(w.cloud.AnnounceNotice(ctx, ownInstance(id), cloudsim.CreateNotice{Type: cloudsim.NoticeMaintenance, InSeconds: 3600}))(t)
	must(w.cloud.CrashInstance(ctx, ownInstance(id)))(t)
	s := must(w.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: []string{id}}))(t).InstanceStatuses
	if len(s) != 1 || s[0].InstanceStatus.Status != types.SummaryStatusImpaired || s[0].SystemStatus.Status != types.SummaryStatusOk || s[0].InstanceState.Name != types.InstanceStateNameRunning || len(s[0].Events) != 1 || s[0].Events[0].Code != types.EventCodeInstanceReboot {
		t.Errorf("status of a crashed instance with a notice: got %+v", s)
	}

	for range 2 { // the second call changes nothing
		gone := must(w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))(t).TerminatingInstances
		if len(gone) != 1 || gone[0].CurrentState.Name != types.InstanceStateNameTerminated {
			t.Errorf("result of TerminateInstances: got %+v, want terminated", gone)
		}
	}
	if got := w.shownInstance(t, id); got.State.Name != types.InstanceStateNameTerminated || len(got.Tags) != 1 || got.PrivateIpAddress != nil || got.VpcId != nil || len(got.NetworkInterfaces) != 0 {
		t.Errorf("DescribeInstances of a terminated instance: got %+v, want terminated, 1 tag, no addresses and no VPC", got)
	}
	_, err = w.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	mustFail(t, err, "IncorrectInstanceState")
	must(w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*made.Instances[1].InstanceId}}))(t)
	must(w.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &group}))(t)
}

func (w *world) shownInstance(t *testing.T, id string) types.Instance {
	t.Helper()
	return must(w.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))(t).Reservations[0].Instances[0]
}

// TestInstanceStates checks the EC2 states pending (during a start), stopping (during a stop) and
// shutting-down (during a termination). It also proves that the SDK's waiters wait until the start,
// the stop or the termination ends.
func TestInstanceStates(t *testing.T) {
	w, ctx := start(t, cloudtest.WithProfile(engine.Profile{Provision: time.Second, Boot: time.Second, Shutdown: time.Second})), t.Context()
	made := must(w.RunInstances(ctx, runRequest(1, 1)))(t).Instances[0]
	if made.State.Name != types.InstanceStateNamePending || *made.Placement.AvailabilityZone != "sim-1a" {
		t.Errorf("new instance: got %+v", made)
	}
	one := &ec2.DescribeInstancesInput{InstanceIds: []string{*made.InstanceId}}
	_, err := w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: one.InstanceIds})
	mustFail(t, err, "IncorrectInstanceState")
	status := &ec2.DescribeInstanceStatusInput{InstanceIds: one.InstanceIds, IncludeAllInstances: sdk.Bool(true)}
	if s := must(w.DescribeInstanceStatus(ctx, status))(t).InstanceStatuses[0]; s.InstanceStatus.Status != types.SummaryStatusInitializing {
		t.Errorf("status of a pending instance: got %+v", s)
	}
	if err := ec2.NewInstanceRunningWaiter(w, func(o *ec2.InstanceRunningWaiterOptions) {
		o.MinDelay = 50 * time.Millisecond
		o.MaxDelay = time.Second
	}).Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := ec2.NewInstanceStatusOkWaiter(w).Wait(ctx, status, time.Minute); err != nil {
		t.Fatal(err)
	}
	stop := must(w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: one.InstanceIds}))(t).StoppingInstances[0]
	if stop.CurrentState.Name != types.InstanceStateNameStopping || stop.PreviousState.Name != types.InstanceStateNameRunning {
		t.Errorf("stop: got %+v", stop)
	}
	_, err = w.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: one.InstanceIds})
	mustFail(t, err, "IncorrectInstanceState")
	if err := ec2.NewInstanceStoppedWaiter(w, func(o *ec2.InstanceStoppedWaiterOptions) {
		o.MinDelay = 50 * time.Millisecond
		o.MaxDelay = time.Second
	}).Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := must(w.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: one.InstanceIds}))(t).StartingInstances[0]; s.CurrentState.Name != types.InstanceStateNamePending {
		t.Errorf("start: got %+v", s)
	}
	if s := must(w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: one.InstanceIds}))(t).TerminatingInstances[0]; s.CurrentState.Name != types.InstanceStateNameShuttingDown || s.PreviousState.Name != types.InstanceStateNamePending {
		t.Errorf("termination: got %+v", s)
	}
	if err := ec2.NewInstanceTerminatedWaiter(w, func(o *ec2.InstanceTerminatedWaiterOptions) {
		o.MinDelay = 50 * time.Millisecond
		o.MaxDelay = time.Second
	}).Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// TestRunInstancesWithinQuota calls RunInstances with a quota of fewer than MaxCount instances. If
// the quota permits at least MinCount instances, RunInstances must create as many instances as the
// quota permits. Otherwise it must create no instance.
func TestRunInstancesWithinQuota(t *testing.T) {
	w, ctx := start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Quotas = map[cloudsim.QuotaName]int64{cloudsim.QuotaInstances: 3} })), t.Context()
	_, err := w.RunInstances(ctx, runRequest(4, 5))
	mustFail(t, err, "InstanceLimitExceeded")
	if all := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t); len(all.Reservations) != 0 {
		t.Fatalf("instances after a failed request: got %d, want none", len(all.Reservations))
	}
	made := must(w.RunInstances(ctx, runRequest(2, 5)))(t).Instances
	if len(made) != 3 {
		t.Fatalf("got %d instances, want the 3 that the quota permits", len(made))
	}
	var names []string
	for _, i := range made {
		names = append(names, *i.PrivateDnsName)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 3 {
		t.Errorf("private DNS names: got %v, want three different ones", names)
	}
}

// lostReply returns a fault that drops the reply to one call of the given operation.
func lostReply(operation string) cloudsim.CreateFault {
	return cloudsim.CreateFault{Name: "lost", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: operation}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply},
	}}
}

// TestRetriedRun proves that the SDK creates only one instance if the reply is lost and the SDK
// repeats the request.
func TestRetriedRun(t *testing.T) {
	w, ctx := start(t), t.Context()
	must(w.cloud.CreateFault(ctx, lostReply("instances.create")))(t)
	made := must(w.RunInstances(ctx, runRequest(1, 1)))(t).Instances
	all := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t).Reservations
	if len(made) != 1 || len(all) != 1 || *all[0].Instances[0].InstanceId != *made[0].InstanceId {
		t.Errorf("result of RunInstances: got %+v, instances in the list: got %+v; want the same one instance", made, all)
	}
}
