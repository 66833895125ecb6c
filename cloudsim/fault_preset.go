package cloudsim

import "slices"

// FaultPreset is a named incident: a set of faults that together simulate a
// typical cloud failure.
type FaultPreset struct {
	Name   string
	About  string // description of the incident in a sentence
	Faults []CreateFault
}

// PresetZone is the zone that presets affect unless InZone sets another zone.
const PresetZone = "sim-1a"

// Zoned reports whether p affects one zone.
func (p FaultPreset) Zoned() bool {
	return slices.ContainsFunc(p.Faults, func(f CreateFault) bool { return f.Match.Zone != "" })
}

// InZone returns p for another zone.
func (p FaultPreset) InZone(zone string) FaultPreset {
	p.Faults = slices.Clone(p.Faults)
	for i := range p.Faults {
		if p.Faults[i].Match.Zone != "" {
			p.Faults[i].Match.Zone = zone
		}
	}
	return p
}

// FaultPresets lists the presets, least severe first. The name of each fault
// begins with its preset's name. Because faults are idempotent by name,
// applying a preset twice adds nothing.
func FaultPresets() []FaultPreset {
	one := func(name, about string, match FaultMatch, when FaultWhen, effect FaultEffect) FaultPreset {
		return FaultPreset{name, about, []CreateFault{{Name: name, FaultSpec: FaultSpec{Match: match, When: when, Effect: effect}}}}
	}
	on := func(operation string) FaultMatch { return FaultMatch{Operation: operation} }
	throttle := FaultEffect{Type: FaultThrottle, RetryAfterSeconds: 2}
	often := FaultWhen{Probability: new(0.8)}
	return []FaultPreset{
		one("slow-cloud", "Every call takes half a second to a second and a half.",
			on("*"), FaultWhen{}, FaultEffect{Type: FaultLatency, LatencyMillis: 500, JitterMillis: 1000}),
		one("flapping-not-found", "One read of an instance in three says that it does not exist. Who believes the first answer deletes a healthy node.",
			on("instances.get"), FaultWhen{Probability: new(1.0 / 3)}, FaultEffect{Type: FaultError, Kind: NotFound.Error(), Message: "no such instance"}),
		{"ghost-node", "Reads of instances are a minute old: one that was deleted is still there, and its Node stays; one that was made is not there yet.", []CreateFault{
			{Name: "ghost-node-get", FaultSpec: FaultSpec{Match: on("instances.get"), Effect: FaultEffect{Type: FaultStaleRead, AgeSeconds: 60}}},
			{Name: "ghost-node-list", FaultSpec: FaultSpec{Match: on("instances.list"), Effect: FaultEffect{Type: FaultStaleRead, AgeSeconds: 60}}},
		}},
		{"born-tainted", "Nobody can read instances. A new Node keeps the taint node.cloudprovider.kubernetes.io/uninitialized, and what must run there to repair it has to tolerate that.", []CreateFault{
			{Name: "born-tainted-get", FaultSpec: FaultSpec{Match: on("instances.get"), Effect: FaultEffect{Type: FaultError}}},
			{Name: "born-tainted-list", FaultSpec: FaultSpec{Match: on("instances.list"), Effect: FaultEffect{Type: FaultError}}},
		}},
		one("stopped-is-not-deleted", "An instance that was stopped cannot start: there is no room for it. It exists, and who takes it for deleted throws its Node away.",
			on("instances.start"), FaultWhen{}, FaultEffect{Type: FaultStockOut}),
		{"thundering-describe", "Four reads of five are throttled. Who does not back off, or asks one by one, never gets through.", []CreateFault{
			{Name: "thundering-describe-get", FaultSpec: FaultSpec{Match: on("*.get"), When: often, Effect: throttle}},
			{Name: "thundering-describe-list", FaultSpec: FaultSpec{Match: on("*.list"), When: often, Effect: throttle}},
		}},
		one("lost-reply", "The next create is done, and its reply is lost. Who does not ask by the same name or Idempotency-Key makes a second one, or none.",
			on("*.create"), FaultWhen{Max: 1}, FaultEffect{Type: FaultLoseReply}),
		one("crash-mid-create", "The next create is done, and its reply is an error. Who wrote nothing down before it asked has an orphan now.",
			on("*.create"), FaultWhen{Max: 1}, FaultEffect{Type: FaultErrorAfterCommit}),
		one("crash-mid-delete", "The next delete is done, and its reply is an error. Who does not take not found for done tries for ever.",
			on("*.delete"), FaultWhen{Max: 1}, FaultEffect{Type: FaultErrorAfterCommit}),
		one("twice", "The next change is done twice, as when a proxy repeats a request, and the answer is the second one's.",
			on("*"), FaultWhen{Max: 1}, FaultEffect{Type: FaultDuplicate}),
		one("quota-hit", "No create finds room in its quota. What waits must say so, and try again later and rarely.",
			on("*.create"), FaultWhen{}, FaultEffect{Type: FaultQuota}),
		one("zone-stockout", "A zone has no more instances. Who does not try another zone waits for ever.",
			FaultMatch{Operation: "instances.create", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultStockOut}),
		one("multi-attach", "No disk comes off its instance: detaching does not end. What moves with its volume waits, for six minutes or for a person.",
			on("disks.detach"), FaultWhen{}, FaultEffect{Type: FaultStuckState}),
		one("expired-token", "Tokens that are made open nothing. Who falls back to no token at all is refused in other words.",
			on("tokens.create"), FaultWhen{}, FaultEffect{Type: FaultCorruptToken}),
		one("zone-dark", "Nothing reaches what runs in a zone, and the cloud says that all of it runs.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage, Scope: OutageData}),
		one("zone-api-down", "What runs in a zone goes on, and no call about it gets through.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage, Scope: OutageAPI}),
		one("zone-down", "A zone is gone: nothing reaches what runs there, and no call about it gets through.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage}),
		one("cloud-down", "No call gets through. What runs goes on running; what needs the cloud waits.",
			on("*"), FaultWhen{}, FaultEffect{Type: FaultError, Message: "the cloud is down"}),
	}
}
