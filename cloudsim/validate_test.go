package cloudsim

import (
	"errors"
	"strings"
	"testing"
)

func TestValidateNamesTheField(t *testing.T) {
	good := LoadBalancerSpec{
		Listeners:   []Listener{{TCP, 80, 30080}},
		Targets:     []Target{{"i-000001"}},
		HealthCheck: HealthCheck{Protocol: HealthTCP},
	}
	with := func(change func(*LoadBalancerSpec)) CreateLoadBalancer {
		s := good
		change(&s)
		return CreateLoadBalancer{Name: "lb", Region: "sim-1", LoadBalancerSpec: s}
	}
	long := strings.Repeat("x", 64)
	for name, tc := range map[string]struct {
		req   interface{ Validate() error }
		field string // "" means valid
	}{
		"instance":                {CreateInstance{Name: "a", Zone: "z", Type: "t"}, ""},
		"instance without name":   {CreateInstance{Zone: "z", Type: "t"}, "name"},
		"instance upper case":     {CreateInstance{Name: "A", Zone: "z", Type: "t"}, "name"},
		"instance name too long":  {CreateInstance{Name: long, Zone: "z", Type: "t"}, "name"},
		"instance name newline":   {CreateInstance{Name: "a\n", Zone: "z", Type: "t"}, "name"},
		"instance without zone":   {CreateInstance{Name: "a", Type: "t"}, "zone"},
		"label key":               {CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"": "v"}}, "labels"},
		"label value":             {CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"k": "a\x00b"}}, "labels.k"},
		"load balancer":           {with(func(*LoadBalancerSpec) {}), ""},
		"no listener":             {with(func(s *LoadBalancerSpec) { s.Listeners = nil }), "listeners"},
		"listener port 0":         {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{TCP, 0, 1}} }), "listeners[0].port"},
		"listener port too big":   {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{TCP, 1, 65536}} }), "listeners[0].targetPort"},
		"listener twice":          {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{TCP, 1, 1}, {TCP, 1, 2}} }), "listeners[1].port"},
		"listener protocol":       {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{"sctp", 1, 1}} }), "listeners[0].protocol"},
		"target twice":            {with(func(s *LoadBalancerSpec) { s.Targets = []Target{{"i-1"}, {"i-1"}} }), "targets[1].instance"},
		"target empty":            {with(func(s *LoadBalancerSpec) { s.Targets = []Target{{""}} }), "targets[0].instance"},
		"health protocol":         {with(func(s *LoadBalancerSpec) { s.HealthCheck.Protocol = "ping" }), "healthCheck.protocol"},
		"health path":             {with(func(s *LoadBalancerSpec) { s.HealthCheck.Path = "healthz" }), "healthCheck.path"},
		"health interval":         {with(func(s *LoadBalancerSpec) { s.HealthCheck.IntervalMillis = -1 }), "healthCheck.intervalMillis"},
		"load balancer ip":        {CreateLoadBalancer{Name: "lb", Region: "r", IP: "1.2.3", LoadBalancerSpec: good}, "ip"},
		"disk":                    {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: 1}, ""},
		"disk without size":       {CreateDisk{Name: "a", Zone: "z", Type: "t"}, "sizeGiB"},
		"disk too big for a file": {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: MaxDiskGiB + 1}, "sizeGiB"},
		"disk iops":               {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: 1, IOPS: -1}, "iops"},
		"attach to nothing":       {AttachDisk{}, "instance"},
		"detach from nothing":     {DetachDisk{Force: true}, "instance"},
		"resize to nothing":       {ResizeDisk{}, "sizeGiB"},
		"disk type":               {Catalogue{DiskTypes: []DiskType{{Meta: Meta{Name: "t"}, MinGiB: 2, MaxGiB: 1, DefaultIOPS: 1, MaxIOPS: 1}}}, "diskTypes.t"},
		"too many disks":          {Catalogue{InstanceTypes: []InstanceType{{Meta: Meta{Name: "t"}, CPUs: 1, MemoryMiB: 1, MaxDisks: 26}}}, "instanceTypes.t.maxDisks"},
		"token role":              {CreateToken{Name: "t", Role: "root"}, "role"},
		"token ttl":               {CreateToken{Name: "t", Role: RoleViewer, TTLSeconds: -1}, "ttlSeconds"},
		"catalogue zone's region": {Catalogue{Zones: []Zone{{Meta: Meta{Name: "z"}, Region: "nope"}}}, "zones.z"},
		"default catalogue":       {DefaultCatalogue(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.req.Validate()
			if tc.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Kind != Invalid || len(e.Fields) == 0 || e.Fields[0].Field != tc.field {
				t.Fatalf("= %#v; want Invalid that names %s", err, tc.field)
			}
		})
	}
}

// A person fixes a request once: every wrong field is named.
func TestValidateNamesAllFields(t *testing.T) {
	err := CreateInstance{}.Validate()
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Fields) != 3 {
		t.Fatalf("= %v; want three fields", err)
	}
}

// What people read in a terminal and what probes write into a request holds
// nothing that either takes for a command.
func TestValidateRefusesControls(t *testing.T) {
	label := func(v string) error {
		return CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"k": v}}.Validate()
	}
	path := func(p string) error {
		return UpdateLoadBalancer{LoadBalancerSpec: LoadBalancerSpec{
			Listeners: []Listener{{TCP, 80, 30080}}, HealthCheck: HealthCheck{Protocol: HealthHTTP, Path: p},
		}}.Validate()
	}
	for _, err := range []error{label("\u009b31m"), label("\x7f"), path("/\r\nX: y"), path("/%zz"), path("*")} {
		if !errors.Is(err, Invalid) {
			t.Errorf("= %v; want Invalid", err)
		}
	}
	for _, err := range []error{label("é👩‍🚀"), path(""), path("/healthz?full=1")} {
		if err != nil {
			t.Error(err)
		}
	}
}
