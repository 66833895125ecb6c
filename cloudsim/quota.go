package cloudsim

import (
	"maps"
	"slices"
)

// QuotaName names what a project may have only so much of.
type QuotaName string

// The quotas. Each but the listeners is counted in a project. The registry counts
// its own, and not exactly.
const (
	QuotaInstances       QuotaName = "instances"
	QuotaDisks           QuotaName = "disks"
	QuotaDiskGiB         QuotaName = "diskGiB"
	QuotaSnapshots       QuotaName = "snapshots"
	QuotaLoadBalancers   QuotaName = "loadBalancers"
	QuotaListeners       QuotaName = "listenersPerLoadBalancer"
	QuotaAddresses       QuotaName = "addresses"
	QuotaServiceAccounts QuotaName = "serviceAccounts"
	QuotaNetworks        QuotaName = "networks" // with the one that every project has
	QuotaSubnets         QuotaName = "subnets"  // the same
	QuotaRoutes          QuotaName = "routes"   // of all its networks; each has a limit of its own besides
	QuotaRegistryGiB     QuotaName = "registryGiB"
	QuotaRegistryUploads QuotaName = "registryUploads" // that are open

	// QuotaNetworkAddresses counts the IPv4 addresses in the ranges and pod
	// ranges of a project's networks. Those of the cloud's configuration, which
	// all default networks share, do not count.
	QuotaNetworkAddresses QuotaName = "networkAddresses"
)

// DefaultQuotas is what every project may have until it is told otherwise:
// more than a machine can bear of most.
func DefaultQuotas() map[QuotaName]int64 {
	return map[QuotaName]int64{
		QuotaInstances: 50_000, QuotaDisks: 50_000, QuotaDiskGiB: 1 << 30, QuotaSnapshots: 50_000,
		QuotaLoadBalancers: 16_000, QuotaListeners: 100,
		QuotaAddresses:       16_000, // a quarter of the default range: one project cannot take all
		QuotaServiceAccounts: 1000, QuotaNetworks: 1000, QuotaSubnets: 10_000, QuotaRoutes: 50_000,
		QuotaNetworkAddresses: 1 << 20, // a /12: one project cannot take all private addresses
		QuotaRegistryGiB:      100, QuotaRegistryUploads: 1000,
	}
}

// QuotaNames lists the quotas, sorted.
func QuotaNames() []QuotaName { return slices.Sorted(maps.Keys(DefaultQuotas())) }

// Quota is how much of something a project may have, and has.
type Quota struct {
	Name    QuotaName `json:"name" example:"instances"`
	Project ProjectID `json:"project" example:"proj-000001"`
	Limit   int64     `json:"limit" doc:"No more than this" example:"100"`
	Used    *int64    `json:"used,omitempty" doc:"Of the project now; absent for a quota of each resource, and for those of the registry" example:"3"`
	Default int64     `json:"default" doc:"The limit of projects that were not told otherwise"`
}

// Quotas are the quotas of a project, sorted by name.
type Quotas struct {
	Items []Quota `json:"items"`
}

// SetQuota asks for another limit.
type SetQuota struct {
	Limit *int64 `json:"limit,omitempty" minimum:"0" maximum:"1099511627776" example:"200" doc:"The new limit; absent for the default. One below what is used stops growth and takes nothing away"`
}

// maxQuota bounds a limit, so that no sum of two overflows.
const maxQuota = 1 << 40

// Validate checks what needs no other state.
func (r SetQuota) Validate() error {
	var c checks
	if r.Limit != nil && (*r.Limit < 0 || *r.Limit > maxQuota) {
		c.addf("limit", "must be between 0 and %d, got %d", int64(maxQuota), *r.Limit)
	}
	return c.err()
}

// ValidateQuotas checks limits by their names.
func ValidateQuotas(limits map[QuotaName]int64) error {
	var c checks
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if _, ok := DefaultQuotas()[name]; !ok {
			c.addf("quotas", "has %q; there are %v", clip(string(name)), QuotaNames())
		}
		if n := limits[name]; n < 0 || n > maxQuota {
			c.addf("quotas."+string(name), "must be between 0 and %d, got %d", int64(maxQuota), n)
		}
	}
	return c.err()
}
