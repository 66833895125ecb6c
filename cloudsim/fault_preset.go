package cloudsim

// FaultPreset is a named incident: faults that show together what a cloud did
// to its users on a bad day.
type FaultPreset struct {
	Name   string
	About  string // what it shows, in a sentence
	Faults []CreateFault
}

// FaultPresets lists the presets, in the order of what they cost who meets
// them. Their faults are named after them, so that applying one twice makes
// nothing new.
func FaultPresets() []FaultPreset {
	one := func(name, about, operation string, when FaultWhen, effect FaultEffect) FaultPreset {
		return FaultPreset{name, about, []CreateFault{{Name: name, FaultSpec: FaultSpec{Match: FaultMatch{Operation: operation}, When: when, Effect: effect}}}}
	}
	return []FaultPreset{
		one("slow-cloud", "Every call takes half a second to a second and a half.",
			"*", FaultWhen{}, FaultEffect{Type: FaultLatency, LatencyMillis: 500, JitterMillis: 1000}),
		one("flapping-not-found", "One read of an instance in three says that it does not exist. Who believes the first answer deletes a healthy node.",
			"instances.get", FaultWhen{Probability: new(1.0 / 3)}, FaultEffect{Type: FaultError, Kind: new(NotFound), Message: "no such instance"}),
		{"thundering-describe", "Four reads of five are throttled. Who does not back off, or asks one by one, never gets through.", []CreateFault{
			{Name: "thundering-describe-get", FaultSpec: FaultSpec{Match: FaultMatch{Operation: "*.get"}, When: FaultWhen{Probability: new(0.8)}, Effect: FaultEffect{Type: FaultThrottle, RetryAfterSeconds: 2}}},
			{Name: "thundering-describe-list", FaultSpec: FaultSpec{Match: FaultMatch{Operation: "*.list"}, When: FaultWhen{Probability: new(0.8)}, Effect: FaultEffect{Type: FaultThrottle, RetryAfterSeconds: 2}}},
		}},
		one("lost-reply", "The next create is done, and its reply is lost. Who does not ask by the same name or Idempotency-Key makes a second one, or none.",
			"*.create", FaultWhen{Max: 1}, FaultEffect{Type: FaultLoseReply}),
		one("crash-mid-delete", "The next delete is done, and its reply is an error. Who does not take not found for done tries for ever.",
			"*.delete", FaultWhen{Max: 1}, FaultEffect{Type: FaultErrorAfterCommit}),
		one("cloud-down", "No call gets through. What runs goes on running; what needs the cloud waits.",
			"*", FaultWhen{}, FaultEffect{Type: FaultError, Message: "the cloud is down"}),
	}
}
