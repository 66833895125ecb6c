package conform

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Level states how strictly the contract requires the behavior that a check tests.
type Level string

// These are the levels of checks, from strict to optional.
const (
	Must   Level = "MUST"   // the contract of cloud-provider or a KEP requires the behavior
	Should Level = "SHOULD" // users rely on the behavior, and most CCMs have it
)

// Check is one test of a CCM. The ID of a check never changes. docs/conformance.md describes every
// check.
type Check struct {
	ID    string `json:"id"`
	Level Level  `json:"level"`
	// Title is a statement that is true for a CCM that passes the check.
	Title string `json:"title"`
	// skipReason returns the reason if the run must skip the check. Otherwise it returns "".
	skipReason func(Capabilities) string
	// exclusive is true if no other check may run at the same time. An exclusive check restarts
	// the CCM, disturbs all calls, or takes a measurement.
	exclusive bool
	// needsRestart is true if the check restarts the CCM. If Config.Subject is nil, the run skips
	// the check.
	needsRestart bool
	// limitFactor is the factor for Config.Limit, the time limit of a check. If limitFactor is 0,
	// the factor is 1.
	limitFactor int
	// run returns nil if the CCM passes. If run returns a missingError, the verdict is Skip. Any
	// other error means that the check failed. If the conformance run ends during the check, the
	// verdict is Skip after every error.
	run func(context.Context, *env) error
}

// Checks returns all checks in the order of the documentation.
func Checks() []Check {
	return slices.Concat(nodeChecks, loadBalancerChecks, featureChecks, routeChecks, operationChecks)
}

// missingError means that Check.run has noticed that the check cannot run with this cloud or CCM.
// The check then has the verdict Skip. The text of the error is the reason.
type missingError string

func (m missingError) Error() string { return string(m) }

// requirements combines functions for Check.skipReason into one function. The combined function
// returns the first reason that is not empty, or "" if all reasons are empty.
func requirements(all ...func(Capabilities) string) func(Capabilities) string {
	return func(c Capabilities) string {
		for _, skipReason := range all {
			if reason := skipReason(c); reason != "" {
				return reason
			}
		}
		return ""
	}
}

// needsCapability returns a function for Check.skipReason. If claimed returns false, the returned
// function returns a reason that contains the name of the capability.
func needsCapability(name string, claimed func(Capabilities) bool) func(Capabilities) string {
	return func(c Capabilities) string {
		if claimed(c) {
			return ""
		}
		return fmt.Sprintf("the driver does not claim the capability %q", name)
	}
}

var (
	needsZones         = needsCapability("zones", func(c Capabilities) bool { return c.Zones })
	needsShutdown      = needsCapability("shutdown", func(c Capabilities) bool { return c.Shutdown })
	needsLoadBalancers = needsCapability("loadBalancers", func(c Capabilities) bool { return c.LoadBalancers })
	needsSourceRanges  = needsCapability("sourceRanges", func(c Capabilities) bool { return c.SourceRanges })
	needsUDP           = needsCapability("udp", func(c Capabilities) bool { return c.UDP })
	needsRoutes        = needsCapability("routes", func(c Capabilities) bool { return c.Routes })
	needsMixed         = needsCapability("mixedProtocols", func(c Capabilities) bool { return c.MixedProtocols })
	needsAffinity      = needsCapability("sessionAffinity", func(c Capabilities) bool { return c.SessionAffinity })
	needsDualStack     = needsCapability("dualStack", func(c Capabilities) bool { return c.DualStack })
	needsLocalTraffic  = needsCapability("localTraffic", func(c Capabilities) bool { return c.LocalTraffic })
	needsStaticIP      = needsCapability("staticIP", func(c Capabilities) bool { return c.StaticIP != "" })
	needsInternal      = needsCapability("internalAnnotations", func(c Capabilities) bool { return len(c.InternalAnnotations) > 0 })
	needsProxy         = needsCapability("proxyAnnotations", func(c Capabilities) bool { return len(c.ProxyAnnotations) > 0 })
	needsSharing       = needsCapability("sharedAnnotations", func(c Capabilities) bool { return len(c.SharedAnnotations) > 0 })
	needsElection      = needsCapability("leaderElection", func(c Capabilities) bool { return c.LeaderElection })
	needsMigration     = needsCapability("leaderMigration", func(c Capabilities) bool { return c.LeaderMigration })
	needsUser          = needsCapability("user", func(c Capabilities) bool { return c.User != "" })
	needsCalls         = needsCapability("calls", func(c Capabilities) bool { return c.Calls })
	needsAnyFault      = needsCapability("faults", func(c Capabilities) bool { return len(c.Faults) > 0 })
)

func needsFault(k FaultKind) func(Capabilities) string {
	return needsCapability("faults: "+string(k), func(c Capabilities) bool { return slices.Contains(c.Faults, k) })
}

// Verdict is the result of a check.
type Verdict string

// These are the verdicts.
const (
	Pass       Verdict = "PASS"
	Fail       Verdict = "FAIL"
	Skip       Verdict = "SKIP"        // the check did not run; Result.Reason states why
	KnownIssue Verdict = "KNOWN-ISSUE" // the check failed, and the capabilities name an issue
)

// Result contains the verdict of a check, the reason and the evidence.
type Result struct {
	ID      string        `json:"id"`
	Level   Level         `json:"level"`
	Title   string        `json:"title"`
	Verdict Verdict       `json:"verdict"`
	Reason  string        `json:"reason,omitempty"`
	Took    time.Duration `json:"tookNanoseconds"`
	// Timeline describes the recorded versions of the check's Nodes and Services, with their times.
	// It is empty if the check did not fail.
	Timeline []string `json:"timeline,omitempty"`
	// Calls contains the calls of the CCM to the cloud during the check. It also contains calls
	// that other checks caused at the same time. It is empty if the check did not fail, or if the
	// driver does not record calls.
	Calls []string `json:"calls,omitempty"`
	// Log contains the lines of the CCM's log that concern a failed check.
	Log []string `json:"log,omitempty"`
}
