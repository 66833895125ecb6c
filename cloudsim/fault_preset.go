package cloudsim

import "slices"

// FaultPreset is a named incident: a set of faults that together simulate a
// typical cloud failure.
type FaultPreset struct {
	Name   string        `json:"name" example:"lost-reply"`
	About  string        `json:"about" doc:"Description of the incident, for people"`
	Faults []CreateFault `json:"faults" doc:"Faults of the preset. To use the preset, create each of them. In a fault with a zone, the client may choose another zone"`
}

// FaultPresetList lists the presets, least severe first.
type FaultPresetList struct {
	Items []FaultPreset `json:"items"`
}

// PresetZone is the default zone of the presets. If a fault of a preset affects only one
// zone, it affects PresetZone. The method InZone selects another zone.
const PresetZone = "sim-1a"

// Zoned reports whether p has a fault that affects only one zone.
func (p FaultPreset) Zoned() bool {
	return slices.ContainsFunc(p.Faults, func(f CreateFault) bool { return f.Match.Zone != "" })
}

// InZone returns a copy of p that affects the given zone instead of PresetZone.
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
// begins with its preset's name. A second use of the same preset adds no
// faults, because CreateFault is idempotent by name.
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
		one("flapping-not-found", "One read of an instance in three returns not found, although the instance exists. A client that trusts the first answer deletes a healthy node.",
			on("instances.get"), FaultWhen{Probability: new(1.0 / 3)}, FaultEffect{Type: FaultError, Kind: NotFound.Error(), Message: "no such instance"}),
		{"ghost-node", "Reads of instances are one minute old. A deleted instance still appears, so its Node stays. A new instance does not appear yet.", []CreateFault{
			{Name: "ghost-node-get", FaultSpec: FaultSpec{Match: on("instances.get"), Effect: FaultEffect{Type: FaultStaleRead, AgeSeconds: 60}}},
			{Name: "ghost-node-list", FaultSpec: FaultSpec{Match: on("instances.list"), Effect: FaultEffect{Type: FaultStaleRead, AgeSeconds: 60}}},
		}},
		{"born-tainted", "All reads of instances fail. A new Node keeps the taint node.cloudprovider.kubernetes.io/uninitialized. Pods that repair the Node must tolerate this taint.", []CreateFault{
			{Name: "born-tainted-get", FaultSpec: FaultSpec{Match: on("instances.get"), Effect: FaultEffect{Type: FaultError}}},
			{Name: "born-tainted-list", FaultSpec: FaultSpec{Match: on("instances.list"), Effect: FaultEffect{Type: FaultError}}},
		}},
		one("stopped-is-not-deleted", "A stopped instance cannot start, because the zone is full. The instance still exists. A controller that treats it as deleted deletes its Node.",
			on("instances.start"), FaultWhen{}, FaultEffect{Type: FaultStockOut}),
		{"thundering-describe", "Four of five reads are throttled. A client without backoff, or with one call per object, never finishes.", []CreateFault{
			{Name: "thundering-describe-get", FaultSpec: FaultSpec{Match: on("*.get"), When: often, Effect: throttle}},
			{Name: "thundering-describe-list", FaultSpec: FaultSpec{Match: on("*.list"), When: often, Effect: throttle}},
		}},
		one("lost-reply", "The next create succeeds, but its reply is lost. A client that does not repeat the call with the same name or Idempotency-Key creates a second object or loses the first.",
			on("*.create"), FaultWhen{Max: 1}, FaultEffect{Type: FaultLoseReply}),
		one("crash-mid-create", "The next create succeeds, but its reply is an error. A client that recorded nothing before the call leaves an orphan.",
			on("*.create"), FaultWhen{Max: 1}, FaultEffect{Type: FaultErrorAfterCommit}),
		one("crash-mid-delete", "The next delete succeeds, but its reply is an error. A client that does not treat not found as success retries forever.",
			on("*.delete"), FaultWhen{Max: 1}, FaultEffect{Type: FaultErrorAfterCommit}),
		one("twice", "The next change is applied twice, as when a proxy repeats a request. The client gets the second answer.",
			on("*"), FaultWhen{Max: 1}, FaultEffect{Type: FaultDuplicate}),
		one("quota-hit", "Every create exceeds its quota. A controller must report this and retry rarely.",
			on("*.create"), FaultWhen{}, FaultEffect{Type: FaultQuota}),
		one("zone-stockout", "A zone has no capacity for new instances. A client that does not try another zone waits forever.",
			FaultMatch{Operation: "instances.create", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultStockOut}),
		one("multi-attach", "Detach operations never finish. A pod that moves with its volume waits six minutes, or until a person acts.",
			on("disks.detach"), FaultWhen{}, FaultEffect{Type: FaultStuckState}),
		one("expired-token", "The secrets of new tokens are wrong, so calls with these tokens fail.",
			on("tokens.create"), FaultWhen{}, FaultEffect{Type: FaultCorruptToken}),
		one("zone-dark", "No connection reaches the instances of a zone, but the cloud reports them as running.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage, Scope: OutageData}),
		one("zone-api-down", "The instances of a zone keep running, but all API calls about them fail.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage, Scope: OutageAPI}),
		one("zone-down", "A zone fails: no connection reaches its instances, and all API calls about them fail.",
			FaultMatch{Operation: "*", Zone: PresetZone}, FaultWhen{}, FaultEffect{Type: FaultZoneOutage}),
		one("cloud-down", "All API calls fail, except calls that control the simulation, such as faults.delete. Instances keep running.",
			on("*"), FaultWhen{}, FaultEffect{Type: FaultError, Message: "the cloud is down"}),
	}
}
