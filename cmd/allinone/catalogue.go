package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// maxCatalogue is a megabyte: some thousands of zones and types.
const maxCatalogue = 1 << 20

// readCatalogue is the default catalogue with what a file has in the words of the
// API: regions and zones instead of those, types besides, or instead of one of
// the same name.
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
		return c, fmt.Errorf("%s: regions and zones go together: a zone is in a region of the same file", path)
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

// withNamed is have with what is given, in the place of what has its name.
func withNamed[T any](have, given []T, name func(T) string) []T {
	for _, g := range given {
		same := func(h T) bool { return name(h) == name(g) }
		if i := slices.IndexFunc(have, same); i >= 0 {
			have[i] = g
		} else {
			have = append(have, g)
		}
	}
	return have
}
