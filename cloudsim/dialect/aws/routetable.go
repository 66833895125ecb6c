package aws

import "github.com/cloudsim-dev/allinone/cloudsim"

type routeTable struct {
	ID           string                       `xml:"routeTableId"`
	VPCID        string                       `xml:"vpcId"`
	Owner        string                       `xml:"ownerId"`
	Routes       items[route]                 `xml:"routeSet"`
	Associations items[routeTableAssociation] `xml:"associationSet"`
	Tags         items[tag]                   `xml:"tagSet"`
}

type route struct {
	Destination string `xml:"destinationCidrBlock"`
	Gateway     string `xml:"gatewayId,omitempty"`
	Instance    string `xml:"instanceId,omitempty"`
	State       string `xml:"state"`
	Origin      string `xml:"origin"`
}

type routeTableAssociation struct {
	ID    string `xml:"routeTableAssociationId"`
	Table string `xml:"routeTableId"`
	Main  bool   `xml:"main"`
	State string `xml:"associationState>state"`
}

type describeRouteTablesAnswer struct {
	ec2Answer
	Tables items[routeTable] `xml:"routeTableSet"`
	Next   string            `xml:"nextToken,omitempty"`
}

// routeTables describes the main route table of each VPC. A VPC has no other route tables. The
// number of a route table is the number of its VPC.
var routeTables = kind[cloudsim.Network, cloudsim.NetworkID]{
	one: "route table", param: "RouteTableId", prefix: prefixRouteTable, code: "InvalidRouteTableID", own: vpcs.own,
	get: vpcs.get, all: vpcs.all,
	meta: func(cloudsim.Network) cloudsim.Meta { return cloudsim.Meta{} }, // the labels of a network are the tags of its VPC
	id:   vpcs.id,
	values: map[string]func(cloudsim.Network) []string{
		"association.main": func(cloudsim.Network) []string { return []string{"true"} },
		"route-table-id":   func(n cloudsim.Network) []string { return []string{idOf(prefixRouteTable, n.ID)} },
		"vpc-id":           func(n cloudsim.Network) []string { return []string{idOf(prefixVPC, n.ID)} },
	},
}

// describeRouteTables lists the main route tables. Each table has a local route, and a route to
// an internet gateway, because all subnets of this cloud can have public load balancers. The
// routes of the network follow.
func describeRouteTables(q *query) (any, error) {
	found, next, err := list(q, routeTables, nil)
	if err != nil {
		return nil, err
	}
	out := &describeRouteTablesAnswer{Next: next}
	for _, n := range found {
		id := idOf(prefixRouteTable, n.ID)
		t := routeTable{
			ID: id, VPCID: idOf(prefixVPC, n.ID), Owner: account(n.Project),
			Associations: items[routeTableAssociation]{Items: []routeTableAssociation{{ID: idOf("rtbassoc", n.ID), Table: id, Main: true, State: "associated"}}},
			Routes: items[route]{Items: []route{
				{Destination: n.IPv4, Gateway: "local", State: "active", Origin: "CreateRouteTable"},
				{Destination: "0.0.0.0/0", Gateway: idOf("igw", n.ID), State: "active", Origin: "CreateRoute"},
			}},
		}
		routes, err := routesOf(q, n.ID)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			state := "active"
			if r.State == cloudsim.RouteBlackhole {
				state = "blackhole"
			}
			t.Routes.Items = append(t.Routes.Items, route{Destination: r.Destination, Instance: idOf(prefixInstance, r.NextHop), State: state, Origin: "CreateRoute"})
		}
		out.Tables.Items = append(out.Tables.Items, t)
	}
	return out, nil
}

// routesOf returns all routes of a network.
func routesOf(q *query, n cloudsim.NetworkID) ([]cloudsim.Route, error) {
	all, _, err := cloudsim.All(q.Context(), q.Cloud.ListRoutes, cloudsim.ListOptions{Network: n})
	return all, err
}
