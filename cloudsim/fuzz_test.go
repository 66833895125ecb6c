package cloudsim_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// FuzzValidate proves that, for every JSON request, Validate returns nil or an error of kind
// Invalid. Each FieldError in this error names a field, is valid UTF-8 and has a limited length.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{
		`{"name":"a","zone":"sim-1a","type":"small","role":"viewer","labels":{"a":"b"}}`,
		`{"name":"-","labels":{"":"\u0000","a b":""},"role":"root","ttlSeconds":-1}`,
		`{"name":"lb-000001","region":"sim-1","ip":"::1","listeners":[{"protocol":"tcp","port":80,"targetPort":1},{"protocol":"tcp","port":80,"targetPort":2}],"healthCheck":{"protocol":"http","path":"x"}}`,
		`{"name":"d","replicaZones":["a","a"],"type":"fast","sizeGiB":-1,"iops":-1,"sourceDisk":"d","sourceSnapshot":"s","disks":["x","x",""]}`,
		`{"targets":[{"instance":"i-1"},{"instance":"i-1"},{}],"healthCheck":{"protocol":"udp","port":-1,"intervalMillis":-1}}`,
		`{"name":"n","ipv4":"10.0.0.0/8","ipv6":"fd00::/8","podRanges":{"ipv4":"10.1.0.0/16","ipv4Mask":24,"ipv6Mask":-1},"maxRoutes":-1}`,
		`{"name":"n","network":"net-1","zone":"-","ipv4":"::ffff:1.2.3.4/96","ipv6":"fe80::%eth0/64"}`,
		`{"name":"r","destination":"10.0.0.1/8","nextHop":""}`,
	} {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"name":"` + strings.Repeat("x", 2000) + `"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		check[cloudsim.CreateProject](t, raw)
		check[cloudsim.CreateToken](t, raw)
		check[cloudsim.CreateAccessKey](t, raw)
		check[cloudsim.CreateInstance](t, raw)
		check[cloudsim.CreateAddress](t, raw)
		check[cloudsim.CreateNotice](t, raw)
		check[cloudsim.CreateIdentityDocument](t, raw)
		check[cloudsim.RotateSigningKey](t, raw)
		check[cloudsim.CreateLoadBalancer](t, raw)
		check[cloudsim.UpdateLoadBalancer](t, raw)
		check[cloudsim.SetTargets](t, raw)
		check[cloudsim.CreateDisk](t, raw)
		check[cloudsim.ModifyDisk](t, raw)
		check[cloudsim.CreateSnapshot](t, raw)
		check[cloudsim.CreateSnapshotGroup](t, raw)
		check[cloudsim.SetDiskPool](t, raw)
		check[cloudsim.CreateNetwork](t, raw)
		check[cloudsim.UpdateNetwork](t, raw)
		check[cloudsim.CreateSubnet](t, raw)
		check[cloudsim.CreateRoute](t, raw)
		check[cloudsim.CreateRole](t, raw)
		check[cloudsim.CreateRoleBinding](t, raw)
		check[cloudsim.CreateServiceAccount](t, raw)
		check[cloudsim.CreateHold](t, raw)
		check[cloudsim.WorkDurations](t, raw)
		check[cloudsim.SetClock](t, raw)
		check[cloudsim.AdvanceClock](t, raw)
		check[cloudsim.SaveState](t, raw)
		check[cloudsim.UpdateInstance](t, raw)
		check[cloudsim.UpdateDisk](t, raw)
		check[cloudsim.AttachDisk](t, raw)
		check[cloudsim.DetachDisk](t, raw)
		check[cloudsim.ResizeDisk](t, raw)
		check[cloudsim.Problem](t, raw)
		check[cloudsim.Event](t, raw)
	})
}

func check[R any](t *testing.T, raw []byte) {
	t.Helper()
	var req R
	if json.Unmarshal(raw, &req) != nil {
		return
	}
	v, ok := any(req).(interface{ Validate() error })
	if !ok {
		return
	}
	err := v.Validate()
	if err == nil {
		return
	}
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || len(e.Fields) == 0 {
		t.Fatalf("Validate of %T: got error %#v, want nil or Invalid with fields", req, err)
	}
	for _, f := range e.Fields {
		if f.Field == "" || f.Reason == "" || !utf8.ValidString(f.Field+f.Reason) || len(f.Field+f.Reason) > 1000 {
			t.Errorf("Validate of %T: got the field error %+v, want a field and a reason, valid UTF-8 and at most 1000 bytes", req, f)
		}
	}
}
