package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
)

// DefaultDialectAddress is the default address of a dialect.
const DefaultDialectAddress = "127.0.0.1:8190"

// Dialects returns all dialects. A dialect translates the API of another cloud. Each call returns
// new values.
func Dialects() []dialect.Dialect { return []dialect.Dialect{hcloud.New(), aws.New()} }

// DialectNames returns the names of all dialects.
func DialectNames() []string {
	var all []string
	for _, d := range Dialects() {
		all = append(all, d.Name)
	}
	return all
}

// FindDialect returns the dialect with the given name, or an error that lists all names.
func FindDialect(name string) (dialect.Dialect, error) {
	for _, d := range Dialects() {
		if d.Name == name {
			return d, nil
		}
	}
	return dialect.Dialect{}, fmt.Errorf("no dialect is named %q: choose %s", name, Join(DialectNames()))
}

// dialectsNamed returns the dialects with these names. It ignores unknown names.
func dialectsNamed(names []string) (all []dialect.Dialect) {
	for _, d := range Dialects() {
		if slices.Contains(names, d.Name) {
			all = append(all, d)
		}
	}
	return all
}

// DiskLinks returns a function for the dialects with the given names. For a disk, this function
// returns the device paths that clients of these dialects expect. DiskLinks ignores unknown names.
func DiskLinks(names []string) func(cloudsim.DiskID) []string {
	dialects := dialectsNamed(names)
	return func(id cloudsim.DiskID) (all []string) {
		for _, d := range dialects {
			if d.DiskLink != nil {
				all = append(all, d.DiskLink(id))
			}
		}
		return all
	}
}

// RegistryHosts returns a function for the dialects with the given names. For a project and a
// region, this function returns the host names at which clients of these dialects expect the image
// registry. RegistryHosts ignores unknown names.
func RegistryHosts(names []string) func(cloudsim.ProjectID, string) []string {
	dialects := dialectsNamed(names)
	return func(project cloudsim.ProjectID, region string) (all []string) {
		for _, d := range dialects {
			if d.RegistryHost != nil {
				all = append(all, d.RegistryHost(project, region))
			}
		}
		return all
	}
}

// MetadataTrees returns the metadata trees of the dialects with the given names. The key of each
// tree is the name of its dialect. A metadata tree contains the additional paths that the dialect
// needs in the metadata service. MetadataTrees ignores unknown names.
func MetadataTrees(names []string) map[string]cloudsim.MetadataTreeSpec {
	all := map[string]cloudsim.MetadataTreeSpec{}
	for _, d := range dialectsNamed(names) {
		if d.Metadata != nil {
			all[d.Name] = *d.Metadata
		}
	}
	return all
}

// DialectAt is a dialect and the address at which it listens.
type DialectAt struct {
	dialect.Dialect
	Address string
}

// ParseDialects parses the values of a flag. Each value has the form NAME=HOST:PORT. It
// returns an error if two values name the same dialect.
func ParseDialects(flag string, given []string) ([]DialectAt, error) {
	var all []DialectAt
	for _, s := range given {
		name, address, ok := strings.Cut(s, "=")
		if !ok || address == "" {
			return nil, BadFlag(flag, s, "NAME=HOST:PORT, such as hcloud="+DefaultDialectAddress)
		}
		d, err := FindDialect(name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		for _, have := range all {
			if have.Name == name {
				return nil, BadFlag(flag, s, "each dialect at most once")
			}
		}
		all = append(all, DialectAt{d, address})
	}
	return all, nil
}
