package servecli

import (
	"fmt"
	"io"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// maxCatalogue is the largest size of a catalogue file in bytes. It is large enough for some
// thousands of zones and types.
const maxCatalogue = 1 << 20

// readCatalogue returns the default catalogue with the changes in the file at path. The file has
// the format of the catalogue in the API. The regions and zones of the file replace all default
// regions and zones. readCatalogue adds the types of the file to the default types. A type of the
// file replaces the default type with the same name.
func readCatalogue(path string) (cloudsim.Catalogue, error) {
	c := cloudsim.DefaultCatalogue()
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxCatalogue+1))
	if err != nil {
		return c, err
	}
	if len(raw) > maxCatalogue {
		return c, fmt.Errorf("%s has more than %d bytes", path, maxCatalogue)
	}
	var given cloudsim.Catalogue
	if err := yaml.UnmarshalStrict(raw, &given); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if (len(given.Regions) == 0) != (len(given.Zones) == 0) {
		return c, fmt.Errorf("%s: regions and zones must be set together, because each zone needs a region of the same file", path)
	}
	if err := given.Validate(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if len(given.Zones) != 0 {
		c.Regions, c.Zones = given.Regions, given.Zones
	}
	c.InstanceTypes = withNamed(c.InstanceTypes, given.InstanceTypes, func(t cloudsim.InstanceType) string { return t.Name })
	c.DiskTypes = withNamed(c.DiskTypes, given.DiskTypes, func(t cloudsim.DiskType) string { return t.Name })
	return c, nil
}

// withNamed returns the elements of defaults and overrides. An element of overrides replaces the
// element of defaults with the same name.
func withNamed[T any](defaults, overrides []T, name func(T) string) []T {
	for _, g := range overrides {
		same := func(h T) bool { return name(h) == name(g) }
		if i := slices.IndexFunc(defaults, same); i >= 0 {
			defaults[i] = g
		} else {
			defaults = append(defaults, g)
		}
	}
	return defaults
}
