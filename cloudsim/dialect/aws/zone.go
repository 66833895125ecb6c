package aws

import (
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

type zone struct {
	Name     string `xml:"zoneName"`
	ID       string `xml:"zoneId"`
	State    string `xml:"zoneState"`
	Region   string `xml:"regionName"`
	Type     string `xml:"zoneType"`
	OptIn    string `xml:"optInStatus"`
	Group    string `xml:"groupName"`
	Boundary string `xml:"networkBorderGroup"`
}

type describeZonesAnswer struct {
	ec2Answer
	Zones items[zone] `xml:"availabilityZoneInfo"`
}

var zones = kind[cloudsim.Zone, string]{
	one: "zone", all: (*client.Client).ListZones, meta: func(z cloudsim.Zone) cloudsim.Meta { return z.Meta }, id: func(z cloudsim.Zone) string { return z.Name },
	values: map[string]func(cloudsim.Zone) []string{
		"region-name": func(z cloudsim.Zone) []string { return []string{z.Region} },
		"state":       func(z cloudsim.Zone) []string { return []string{stateOfZone(z)} },
		"zone-id":     func(z cloudsim.Zone) []string { return []string{z.Name} },
		"zone-name":   func(z cloudsim.Zone) []string { return []string{z.Name} },
	},
}

func stateOfZone(z cloudsim.Zone) string {
	if z.Outage != nil {
		return "impaired"
	}
	return "available"
}

func describeZones(q *query) (any, error) {
	names, ids, filters := q.textList("ZoneName"), q.textList("ZoneId"), q.decodeFilters()
	_ = q.flag("AllAvailabilityZones") // this cloud has no zones that a caller must enable
	if err := q.finish(); err != nil {
		return nil, err
	}
	match, err := zones.matcher(filters)
	if err != nil {
		return nil, err
	}
	all, err := listAll(q, zones)
	if err != nil {
		return nil, err
	}
	region := q.region()
	wanted := newRequestedNames(append(names, ids...))
	out := &describeZonesAnswer{}
	for _, z := range all {
		if z.Region == region && wanted.match(z.Name) && match(z) {
			out.Zones.Items = append(out.Zones.Items, zone{
				Name: z.Name, ID: z.Name, State: stateOfZone(z), Region: z.Region, Type: "availability-zone", OptIn: "opt-in-not-required", Group: z.Region, Boundary: z.Region,
			})
		}
	}
	return out, wanted.checkFound("InvalidParameterValue", "zone")
}

type region struct {
	Name     string `xml:"regionName"`
	Endpoint string `xml:"regionEndpoint"`
	OptIn    string `xml:"optInStatus"`
}

type describeRegionsAnswer struct {
	ec2Answer
	Regions items[region] `xml:"regionInfo"`
}

var regions = kind[cloudsim.Region, string]{
	one: "region", all: (*client.Client).ListRegions, meta: func(r cloudsim.Region) cloudsim.Meta { return r.Meta }, id: func(r cloudsim.Region) string { return r.Name },
	values: map[string]func(cloudsim.Region) []string{
		"region-name": func(r cloudsim.Region) []string { return []string{r.Name} },
	},
}

func describeRegions(q *query) (any, error) {
	names, filters := q.textList("RegionName"), q.decodeFilters()
	_ = q.flag("AllRegions") // this cloud has no regions that a caller must enable
	if err := q.finish(); err != nil {
		return nil, err
	}
	match, err := regions.matcher(filters)
	if err != nil {
		return nil, err
	}
	all, err := listAll(q, regions)
	if err != nil {
		return nil, err
	}
	wanted := newRequestedNames(names)
	out := &describeRegionsAnswer{}
	for _, r := range all {
		if wanted.match(r.Name) && match(r) {
			out.Regions.Items = append(out.Regions.Items, region{Name: r.Name, Endpoint: q.Host, OptIn: "opt-in-not-required"})
		}
	}
	return out, wanted.checkFound("InvalidParameterValue", "region")
}
