package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

func codeOf(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// modelInstance contains the values that an instance should have.
type modelInstance struct {
	id        string
	typ       types.InstanceType
	on, check bool
}

// TestRandomInstanceCalls makes random calls for instances. After each call, it compares the code
// of the error, and all instances, with a model. In the model, the key of an instance is the
// ClientToken of the instance.
func TestRandomInstanceCalls(t *testing.T) {
	w, ctx := start(t), t.Context()
	rng := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // a repeatable test
	model := map[string]*modelInstance{}
	for step := range 250 {
		token := fmt.Sprintf("token-%d", rng.IntN(4))
		op, typ := rng.IntN(6), []types.InstanceType{"small", "medium"}[rng.IntN(2)]
		want, err := instanceStep(ctx, w, op, token, typ, rng.IntN(2) == 0, model)
		if got := codeOf(err); got != want {
			t.Fatalf("step %d, operation %d on %s: got error %v, want code %q", step, op, token, err, want)
		}
		byID := map[string]*modelInstance{}
		for _, m := range model {
			byID[m.id] = m
		}
		all := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t).Reservations
		if len(all) != len(model) {
			t.Fatalf("step %d: got %d instances, want %d", step, len(all), len(model))
		}
		running := 0
		for _, r := range all {
			i := r.Instances[0]
			m := byID[*i.InstanceId]
			if m == nil || i.InstanceType != m.typ || (i.State.Name == types.InstanceStateNameRunning) != m.on || *i.SourceDestCheck != m.check || *i.NetworkInterfaces[0].SourceDestCheck != m.check {
				t.Fatalf("step %d: got instance %+v, want %+v", step, i, m)
			}
			if m.on {
				running++
			}
		}
		if got := must(w.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{}))(t).InstanceStatuses; len(got) != running {
			t.Fatalf("step %d: got %d statuses of running instances, want %d", step, len(got), running)
		}
	}
}

// instanceStep makes one call, and makes the same changes in the model that the call should make in
// the cloud. It returns the code of the expected error, and the error of the call.
func instanceStep(ctx context.Context, w *world, op int, token string, typ types.InstanceType, flag bool, model map[string]*modelInstance) (want string, err error) {
	have := model[token]
	if op == 0 {
		in := runRequest(1, 1)
		in.ClientToken, in.InstanceType = &token, typ
		made, err := w.RunInstances(ctx, in)
		switch {
		case have != nil && have.typ != typ:
			return "IdempotentParameterMismatch", err
		case err != nil:
			return "", err
		case have == nil:
			model[token] = &modelInstance{id: *made.Instances[0].InstanceId, typ: typ, on: true, check: true}
		case *made.Instances[0].InstanceId != have.id:
			return "", fmt.Errorf("the repeated request created the instance %s", *made.Instances[0].InstanceId)
		}
		return "", nil
	}
	if have == nil {
		_, err = w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{"i-000000000000fffff"}})
		return "InvalidInstanceID.NotFound", err
	}
	ids := []string{have.id}
	switch op {
	case 1:
		have.on = true
		_, err = w.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
	case 2:
		have.on = false
		_, err = w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
	case 3:
		if !have.on {
			want = "IncorrectInstanceState"
		}
		_, err = w.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: ids})
	case 4:
		have.check = flag
		_, err = w.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &have.id, SourceDestCheck: &types.AttributeBooleanValue{Value: &flag}})
	default:
		delete(model, token)
		_, err = w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	}
	return want, err
}

// modelVolume contains the values that a volume should have.
type modelVolume struct {
	id       string
	size     int32
	typ      types.VolumeType
	instance int // number of the instance, or -1
	device   string
}

// volumeProgram makes random calls for volumes.
type volumeProgram struct {
	*world
	rng     *rand.Rand
	nodes   []string // ids of instances; the last one is in another zone than the volumes
	running []bool
	model   map[string]*modelVolume // the keys are ClientTokens
}

// TestRandomVolumeCalls makes random calls for volumes. After each call, it compares the code of
// the error, all volumes, and the block devices of all instances with a model.
func TestRandomVolumeCalls(t *testing.T) {
	p := &volumeProgram{world: start(t), rng: rand.New(rand.NewPCG(7, 7)), model: map[string]*modelVolume{}} //nolint:gosec // a repeatable test
	ctx := t.Context()
	for _, zone := range []string{"sim-1a", "sim-1a", "sim-1b"} {
		in := runRequest(1, 1)
		in.Placement = &types.Placement{AvailabilityZone: &zone}
		p.nodes, p.running = append(p.nodes, *must(p.RunInstances(ctx, in))(t).Instances[0].InstanceId), append(p.running, true)
	}
	for step := range 300 {
		token := fmt.Sprintf("token-%d", p.rng.IntN(4))
		op := p.rng.IntN(8)
		want, err := p.step(ctx, op, token)
		if got := codeOf(err); got != want {
			t.Fatalf("step %d, operation %d on %s: got error %v, want code %q", step, op, token, err, want)
		}
		p.compare(t, step)
	}
}

// step makes one call, and makes the same changes in the model that the call should make in the
// cloud. It returns the code of the expected error, and the error of the call.
func (p *volumeProgram) step(ctx context.Context, op int, token string) (want string, err error) {
	n := p.rng.IntN(len(p.nodes))
	node, device, size := p.nodes[n], fmt.Sprintf("/dev/xvdb%c", 'a'+p.rng.IntN(2)), int32(10+p.rng.IntN(20)) //nolint:gosec // small
	typ := []types.VolumeType{types.VolumeTypeGp2, types.VolumeTypeGp3, types.VolumeTypeStandard}[p.rng.IntN(3)]
	have := p.model[token]
	switch {
	case op == 0:
		if p.running[n] = !p.running[n]; p.running[n] {
			_, err = p.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{node}})
		} else {
			_, err = p.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{node}})
		}
	case have == nil:
		in := newVolume(size, typ)
		in.ClientToken = &token
		made, createErr := p.CreateVolume(ctx, in)
		if err = createErr; err == nil {
			p.model[token] = &modelVolume{id: *made.VolumeId, size: size, typ: typ, instance: -1}
		}
	case op < 4:
		want = p.attach(have, n, device)
		_, err = p.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &have.id, InstanceId: &node, Device: &device})
	case op == 4:
		force := p.rng.IntN(2) == 0
		want = p.detach(have, n, force)
		_, err = p.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &have.id, InstanceId: &node, Force: &force})
	case op == 5:
		if want = "InvalidParameterValue"; size >= have.size {
			want, have.size, have.typ = "", size, typ
		}
		_, err = p.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &have.id, Size: &size, VolumeType: typ})
	case op == 6:
		in := newVolume(size, typ)
		in.ClientToken, in.TagSpecifications = &token, []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{Key: sdk.String("other"), Value: sdk.String("yes")}}}}
		want = "IdempotentParameterMismatch"
		_, err = p.CreateVolume(ctx, in)
	default:
		if want = "VolumeInUse"; have.instance < 0 {
			want = ""
			delete(p.model, token)
		}
		_, err = p.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &have.id})
	}
	return want, err
}

// attach makes the same changes in the model that AttachVolume should make in the cloud. It returns
// the code of the expected error.
func (p *volumeProgram) attach(have *modelVolume, n int, device string) (want string) {
	switch {
	case have.instance >= 0:
		return "VolumeInUse"
	case n == len(p.nodes)-1:
		return "InvalidVolume.ZoneMismatch"
	}
	for _, other := range p.model {
		if other.instance == n && other.device == device {
			return "InvalidParameterValue"
		}
	}
	have.instance, have.device = n, device
	return ""
}

// detach makes the same changes in the model that DetachVolume should make in the cloud. It returns
// the code of the expected error.
func (p *volumeProgram) detach(have *modelVolume, n int, force bool) (want string) {
	switch {
	case have.instance < 0 || have.instance == n && force && p.running[n]:
		return "IncorrectState"
	case have.instance != n:
		return "InvalidAttachment.NotFound"
	}
	have.instance, have.device = -1, ""
	return ""
}

// compare compares all volumes and the block devices of all instances with the model.
func (p *volumeProgram) compare(t *testing.T, step int) {
	t.Helper()
	all := must(p.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{}))(t).Volumes
	if len(all) != len(p.model) {
		t.Fatalf("step %d: got %d volumes, want %d", step, len(all), len(p.model))
	}
	byID, devices := map[string]*modelVolume{}, map[string]string{}
	for _, m := range p.model {
		byID[m.id] = m
		if m.instance >= 0 {
			devices[m.id+" on "+p.nodes[m.instance]] = m.device
		}
	}
	for _, v := range all {
		m := byID[*v.VolumeId]
		attached := m != nil && m.instance >= 0
		if m == nil || *v.Size != m.size || v.VolumeType != m.typ || (v.State == types.VolumeStateInUse) != attached || (len(v.Attachments) == 1) != attached {
			t.Fatalf("step %d: got volume %+v, want %+v", step, v, m)
		}
		for _, a := range v.Attachments {
			if devices[*v.VolumeId+" on "+*a.InstanceId] != *a.Device {
				t.Fatalf("step %d: got attachment %+v, want one of %v", step, a, devices)
			}
		}
	}
	for _, r := range must(p.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}))(t).Reservations {
		for _, b := range r.Instances[0].BlockDeviceMappings {
			key := *b.Ebs.VolumeId + " on " + *r.Instances[0].InstanceId
			if devices[key] != *b.DeviceName {
				t.Fatalf("step %d: got block device %+v of %s, want one of %v", step, b, *r.Instances[0].InstanceId, devices)
			}
			delete(devices, key)
		}
	}
	if len(devices) > 0 {
		t.Fatalf("step %d: the instances do not have the block devices %v", step, devices)
	}
}
