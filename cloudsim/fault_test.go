package cloudsim

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFaultValidateNamesTheField(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	with := func(change func(*CreateFault)) CreateFault {
		r := CreateFault{Name: "a", FaultSpec: FaultSpec{Match: FaultMatch{Operation: "instances.*"}, Effect: FaultEffect{Type: FaultError}}}
		change(&r)
		return r
	}
	outage := func(r *CreateFault) {
		r.Match, r.Effect.Type = FaultMatch{Operation: "*", Zone: "sim-1a"}, FaultZoneOutage
	}
	for name, tc := range map[string]struct {
		change func(*CreateFault)
		field  string // "" means valid
	}{
		"only required fields":           {func(r *CreateFault) {}, ""},
		"every operation":                {func(r *CreateFault) { r.Match.Operation = "*" }, ""},
		"probability 1":                  {func(r *CreateFault) { r.When.Probability = new(1.0) }, ""},
		"from and until":                 {func(r *CreateFault) { r.When.From, r.When.Until = new(at), new(at.Add(1)) }, ""},
		"internal":                       {func(r *CreateFault) { r.Effect.Kind = "internal" }, ""},
		"no name":                        {func(r *CreateFault) { r.Name = "" }, "name"},
		"no operation":                   {func(r *CreateFault) { r.Match.Operation = "" }, "match.operation"},
		"unclosed class in the pattern":  {func(r *CreateFault) { r.Match.Operation = "[a" }, "match.operation"},
		"caller":                         {func(r *CreateFault) { r.Match.Caller = "C C M" }, "match.caller"},
		"zone":                           {func(r *CreateFault) { r.Match.Zone = "-" }, "match.zone"},
		"label":                          {func(r *CreateFault) { r.Match.Labels = map[string]string{"": "x"} }, "match.labels"},
		"probability 0":                  {func(r *CreateFault) { r.When.Probability = new(0.0) }, "when.probability"},
		"probability above 1":            {func(r *CreateFault) { r.When.Probability = new(1.1) }, "when.probability"},
		"from and afterSeconds":          {func(r *CreateFault) { r.When.From, r.When.AfterSeconds = &at, 1 }, "when.afterSeconds"},
		"until and forSeconds":           {func(r *CreateFault) { r.When.Until, r.When.ForSeconds = &at, 1 }, "when.forSeconds"},
		"until not after from":           {func(r *CreateFault) { r.When.From, r.When.Until = &at, &at }, "when.until"},
		"negative delay":                 {func(r *CreateFault) { r.When.AfterSeconds = -1 }, "when.afterSeconds"},
		"no effect type":                 {func(r *CreateFault) { r.Effect.Type = "" }, "effect.type"},
		"success status":                 {func(r *CreateFault) { r.Effect.Status = 200 }, "effect.status"},
		"status of a drop":               {func(r *CreateFault) { r.Effect = FaultEffect{Type: FaultDrop, Status: 500} }, "effect.status"},
		"latency effect without latency": {func(r *CreateFault) { r.Effect.Type = FaultLatency }, "effect.latencyMillis"},
		"latency of an error effect":     {func(r *CreateFault) { r.Effect.LatencyMillis = 1 }, "effect.latencyMillis"},
		"stale read without an age":      {func(r *CreateFault) { r.Effect.Type = FaultStaleRead }, "effect.ageSeconds"},
		"age of an error effect":         {func(r *CreateFault) { r.Effect.AgeSeconds = 1 }, "effect.ageSeconds"},
		"scope of an error effect":       {func(r *CreateFault) { r.Effect.Scope = OutageAPI }, "effect.scope"},
		"unknown scope of an outage":     {func(r *CreateFault) { outage(r); r.Effect.Scope = "half" }, "effect.scope"},
		"zone outage":                    {outage, ""},
		"zone outage without a zone":     {func(r *CreateFault) { outage(r); r.Match.Zone = "" }, "match.zone"},
		"zone outage of one caller":      {func(r *CreateFault) { outage(r); r.Match.Caller = "ccm" }, "match"},
		"zone outage of one dialect":     {func(r *CreateFault) { outage(r); r.Match.DialectCall = "hcloud.*" }, "match"},
		"zone outage of one operation":   {func(r *CreateFault) { outage(r); r.Match.Operation = "zones.get" }, "match.operation"},
		"zone outage with a maximum":     {func(r *CreateFault) { outage(r); r.When.Max = 1 }, "when"},
		"type":                           {func(r *CreateFault) { r.Match.Type = "-" }, "match.type"},
		"too much jitter":                {func(r *CreateFault) { r.Effect = FaultEffect{Type: FaultLatency, JitterMillis: 600_001} }, "effect.jitterMillis"},
	} {
		t.Run(name, func(t *testing.T) {
			err := with(tc.change).Validate()
			if tc.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Kind != Invalid || len(e.Fields) != 1 || e.Fields[0].Field != tc.field {
				t.Fatalf("Validate: got error %#v, want Invalid with only the field %s", err, tc.field)
			}
		})
	}
	for _, typ := range FaultEffects() {
		r := with(func(r *CreateFault) { r.Effect.Type = typ })
		if typ == FaultLatency {
			r.Effect.JitterMillis = 1
		}
		if typ == FaultStaleRead {
			r.Effect.AgeSeconds = 1
		}
		if typ == FaultZoneOutage {
			r.Match = FaultMatch{Operation: "*", Zone: "sim-1a"}
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// TestFaultHitsAreDeterministic proves that a fault with the same seed and id always hits the same
// calls. A test with faults therefore has the same results on every machine and with every
// version of Go.
func TestFaultHitsAreDeterministic(t *testing.T) {
	f := Fault{ID: "fault-000001", FaultSpec: FaultSpec{
		When:   FaultWhen{Probability: new(0.3), Seed: 7, Skip: 2},
		Effect: FaultEffect{Type: FaultLatency, LatencyMillis: 100, JitterMillis: 50},
	}}
	var hits string
	for n := uint64(1); n <= 40; n++ {
		hits += map[bool]string{true: "x", false: "."}[f.Strikes(n)]
	}
	if want := "....x.x..x.........x.x..x.x.x.x.x...x.x."; hits != want {
		t.Errorf("hits of 40 calls: got %s, want %s", hits, want)
	}
	if d, want := f.Latency(3), 146_068_850*time.Nanosecond; d != want {
		t.Errorf("latency of the third call: got %s, want %s", d, want)
	}
	for name, other := range map[string]func(*Fault){
		"seed": func(f *Fault) { f.When.Seed++ },
		"id":   func(f *Fault) { f.ID = "fault-000002" },
	} {
		g, same := f, true
		other(&g)
		for n := uint64(1); n <= 40; n++ {
			same = same && f.Strikes(n) == g.Strikes(n)
		}
		if same {
			t.Errorf("fault with another %s: got the same hits, want other hits", name)
		}
	}
	count := 0
	f.When.Skip = 0
	for n := uint64(1); n <= 10_000; n++ {
		if f.Strikes(n) {
			count++
		}
		if d := f.Latency(n); d < 100*time.Millisecond || d >= 150*time.Millisecond {
			t.Fatalf("latency of call %d: got %s, want 100ms to 150ms", n, d)
		}
	}
	if count < 2850 || count > 3150 {
		t.Errorf("hits of 10000 calls with probability 0.3: got %d, want 2850 to 3150", count)
	}
}

func TestFaultCovers(t *testing.T) {
	for pattern, want := range map[string]map[string]bool{
		"*":                {"instances.get": true, "loadBalancers.setTargets": true},
		"instances.*":      {"instances.get": true, "instanceTypes.get": false},
		"*.create":         {"instances.create": true, "instances.get": false},
		"instances.create": {"instances.create": true, "instances.createX": false},
		"instance*.list":   {"instances.list": true, "instanceTypes.list": true},
	} {
		for operation, covers := range want {
			if (FaultMatch{Operation: pattern}).Covers(operation) != covers {
				t.Errorf("Covers: pattern %s and operation %s: got %t, want %t", pattern, operation, !covers, covers)
			}
		}
	}
}

func TestFaultWindow(t *testing.T) {
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) *time.Time { return new(made.Add(time.Duration(s) * time.Second)) }
	for name, tc := range map[string]struct {
		when FaultWhen
		want string // for 0, 5, 10, 15 and 20 seconds after the creation: "x" if the fault is active, "." if it is not
	}{
		"always":                      {FaultWhen{}, "xxxxx"},
		"afterSeconds":                {FaultWhen{AfterSeconds: 5}, ".xxxx"},
		"forSeconds":                  {FaultWhen{ForSeconds: 10}, "xx..."},
		"afterSeconds and forSeconds": {FaultWhen{AfterSeconds: 5, ForSeconds: 10}, ".xx.."},
		"from":                        {FaultWhen{From: at(10)}, "..xxx"},
		"until":                       {FaultWhen{Until: at(10)}, "xx..."},
		"from and forSeconds":         {FaultWhen{From: at(5), ForSeconds: 5}, ".x..."},
		"as many hits as the maximum": {FaultWhen{Max: 3}, "....."},
		"fewer hits than the maximum": {FaultWhen{Max: 4}, "xxxxx"},
	} {
		f := Fault{Meta: Meta{CreatedAt: made}, Hits: 3, FaultSpec: FaultSpec{When: tc.when}}
		var got string
		for s := 0; s <= 20; s += 5 {
			got += map[bool]string{true: "x", false: "."}[f.ActiveAt(*at(s))]
		}
		if got != tc.want {
			t.Errorf("%s: %s; want %s", name, got, tc.want)
		}
	}
}

// TestFaultPresets proves that every preset consists of valid faults. Each
// fault's name begins with the preset's name and is unique among all presets.
func TestFaultPresets(t *testing.T) {
	names := map[string]bool{}
	for _, p := range FaultPresets() {
		if p.About == "" || len(p.Faults) == 0 {
			t.Errorf("preset %s: no description or no faults", p.Name)
		}
		for _, f := range p.Faults {
			if err := f.Validate(); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			if !strings.HasPrefix(f.Name, p.Name) || names[f.Name] {
				t.Errorf("preset %s: the fault name %s does not begin with the name of the preset, or is not unique", p.Name, f.Name)
			}
			names[f.Name] = true
		}
	}
}
