package cloudsim

import (
	"maps"
	"slices"
)

// QuotaName names a quota, which limits the use of one resource by a project.
type QuotaName string

// The quotas. Each quota limits the resources of one project. The exception is QuotaListeners,
// which limits the listeners of one load balancer. The image registry, and not the store, counts
// the resources of QuotaRegistryGiB and QuotaRegistryUploads. These two counts are approximate.
const (
	QuotaInstances       QuotaName = "instances"
	QuotaDisks           QuotaName = "disks"
	QuotaDiskGiB         QuotaName = "diskGiB"
	QuotaSnapshots       QuotaName = "snapshots"
	QuotaLoadBalancers   QuotaName = "loadBalancers"
	QuotaListeners       QuotaName = "listenersPerLoadBalancer"
	QuotaAddresses       QuotaName = "addresses"
	QuotaServiceAccounts QuotaName = "serviceAccounts"
	QuotaNetworks        QuotaName = "networks" // including the default network
	QuotaSubnets         QuotaName = "subnets"  // including the default subnet
	QuotaRoutes          QuotaName = "routes"   // sum over all networks; each network also has its own limit
	QuotaRecords         QuotaName = "records"
	QuotaRegistryGiB     QuotaName = "registryGiB"
	QuotaRegistryUploads QuotaName = "registryUploads" // open uploads

	// QuotaNetworkAddresses limits the IPv4 addresses in the ranges and pod ranges of a
	// project's networks. If a range of a default network comes from the cloud's
	// configuration, this quota does not limit the range.
	QuotaNetworkAddresses QuotaName = "networkAddresses"
)

// DefaultQuotas returns the default limits of a project. Most of these limits
// exceed the capacity of one machine.
func DefaultQuotas() map[QuotaName]int64 {
	return map[QuotaName]int64{
		QuotaInstances: 50_000, QuotaDisks: 50_000, QuotaDiskGiB: 1 << 30, QuotaSnapshots: 50_000,
		QuotaLoadBalancers: 16_000, QuotaListeners: 100,
		QuotaAddresses:       16_000, // a quarter of the cloud's default range, so that one project cannot take all addresses
		QuotaServiceAccounts: 1000, QuotaNetworks: 1000, QuotaSubnets: 10_000, QuotaRoutes: 50_000,
		QuotaRecords:          10_000,  // limits the disk space of a project, because a record has up to 64 KiB
		QuotaNetworkAddresses: 1 << 20, // the size of a /12, so that one project cannot take all private addresses
		QuotaRegistryGiB:      100, QuotaRegistryUploads: 1000,
	}
}

// QuotaNames lists the quotas, sorted.
func QuotaNames() []QuotaName { return slices.Sorted(maps.Keys(DefaultQuotas())) }

// Quota contains one limit of a project and the project's current use.
type Quota struct {
	Name    QuotaName `json:"name" example:"instances"`
	Project ProjectID `json:"project" example:"proj-000001"`
	Limit   int64     `json:"limit" doc:"Limit of the quota" example:"100"`
	Used    *int64    `json:"used,omitempty" doc:"Current use of the project; absent for quotas that apply to each resource separately, and for quotas of the registry" example:"3"`
	Default int64     `json:"default" doc:"Limit of projects without their own limit"`
}

// Quotas lists the quotas of a project, sorted by name.
type Quotas struct {
	Items []Quota `json:"items"`
}

// SetQuota changes the limit of a quota.
type SetQuota struct {
	Limit *int64 `json:"limit,omitempty" minimum:"0" maximum:"1099511627776" example:"200" doc:"New limit; absent for the default. If the limit is below the current use, existing resources stay, and the project cannot create more"`
}

// maxQuota is the largest limit that a user can set. It is small enough that the sums in
// the quota checks do not overflow.
const maxQuota = 1 << 40

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r SetQuota) Validate() error {
	var c checks
	if r.Limit != nil && (*r.Limit < 0 || *r.Limit > maxQuota) {
		c.addf("limit", "must be between 0 and %d, got %d", int64(maxQuota), *r.Limit)
	}
	return c.err()
}

// ValidateQuotas checks the names and values of limits. If entries are invalid, it returns
// an error of kind Invalid that names these entries.
func ValidateQuotas(limits map[QuotaName]int64) error {
	var c checks
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if _, ok := DefaultQuotas()[name]; !ok {
			c.addf("quotas", "has the unknown name %q: use one of %q", Clip(string(name)), QuotaNames())
		}
		if n := limits[name]; n < 0 || n > maxQuota {
			c.addf("quotas."+string(name), "must be between 0 and %d, got %d", int64(maxQuota), n)
		}
	}
	return c.err()
}
