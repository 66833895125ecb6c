package aws

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// tableRecords is the kind of the records that store the tags of route tables. The labels of a
// record are the tags of one route table. The name of the record is the id of the table's network.
const tableRecords = "aws-route-table"

// mainTable is the main route table of a network. The record in mainTable.tags stores the tags of
// the table. The id of the record is "" until a caller changes the tags for the first time.
type mainTable struct {
	cloudsim.Network
	tags cloudsim.Record
}

type routeTable struct {
	ID           string                       `xml:"routeTableId"`
	VPCID        string                       `xml:"vpcId"`
	Owner        string                       `xml:"ownerId"`
	Routes       items[route]                 `xml:"routeSet"`
	Associations items[routeTableAssociation] `xml:"associationSet"`
	Tags         items[tag]                   `xml:"tagSet"`
}

type route struct {
	IPv4      string `xml:"destinationCidrBlock,omitempty"`
	IPv6      string `xml:"destinationIpv6CidrBlock,omitempty"`
	Gateway   string `xml:"gatewayId,omitempty"`
	Instance  string `xml:"instanceId,omitempty"`
	Owner     string `xml:"instanceOwnerId,omitempty"`
	Interface string `xml:"networkInterfaceId,omitempty"`
	State     string `xml:"state"`
	Origin    string `xml:"origin"`
}

func (r route) withDestination(destination string) route {
	if strings.Contains(destination, ":") {
		r.IPv6 = destination
	} else {
		r.IPv4 = destination
	}
	return r
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

// routeTables describes the route tables. The only route table of a VPC is its main route table.
// The ids of the VPC and of its route table contain the same number.
var routeTables = kind[mainTable, cloudsim.NetworkID]{
	one: "route table", param: "RouteTableId", prefix: prefixRouteTable, code: "InvalidRouteTableID", own: vpcs.own,
	get: getTable, all: listTables,
	meta: func(t mainTable) cloudsim.Meta { return t.tags.Meta }, // the labels of the network are the tags of the VPC
	id:   func(t mainTable) string { return string(t.ID) },
	values: map[string]func(mainTable) []string{
		"association.main": func(mainTable) []string { return []string{"true"} },
		"route-table-id":   func(t mainTable) []string { return []string{idOf(prefixRouteTable, t.ID)} },
		"vpc-id":           func(t mainTable) []string { return []string{idOf(prefixVPC, t.ID)} },
	},
}

func getTable(c *client.Client, ctx context.Context, id cloudsim.NetworkID) (t mainTable, err error) { //nolint:revive // the order of a method expression
	if t.Network, err = c.GetNetwork(ctx, id); err != nil {
		return t, err
	}
	l, err := c.ListRecords(ctx, cloudsim.ListOptions{Kind: tableRecords, Name: string(id)})
	if err == nil && len(l.Items) > 0 {
		t.tags = l.Items[0]
	}
	return t, err
}

func listTables(c *client.Client, ctx context.Context, o cloudsim.ListOptions) (out cloudsim.List[mainTable], err error) { //nolint:revive // the order of a method expression
	networks, err := c.ListNetworks(ctx, o)
	if err != nil {
		return out, err
	}
	records, _, err := cloudsim.All(ctx, c.ListRecords, cloudsim.ListOptions{Kind: tableRecords})
	if err != nil {
		return out, err
	}
	tags := map[string]cloudsim.Record{}
	for _, r := range records {
		tags[r.Name] = r
	}
	out = cloudsim.List[mainTable]{Revision: networks.Revision, Next: networks.Next}
	for _, n := range networks.Items {
		out.Items = append(out.Items, mainTable{n, tags[string(n.ID)]})
	}
	return out, nil
}

// storeTags stores the tags of a route table. It returns Stale if another caller has changed the
// tags after this caller read the table.
func (t mainTable) storeTags(q *query, tags map[string]string) error {
	if t.tags.ID != "" {
		_, err := q.Cloud.UpdateRecord(q.Context(), t.tags.ID, cloudsim.UpdateRecord{Labels: tags, Document: t.tags.Document}, t.tags.Revision)
		return err
	}
	_, err := q.Cloud.CreateRecord(q.Context(), cloudsim.CreateRecord{Kind: tableRecords, Name: string(t.ID), Labels: tags, Document: json.RawMessage("{}")})
	if errors.Is(err, cloudsim.Exists) {
		return cloudsim.Errorf(cloudsim.Stale, "another caller has set the tags of the route table: repeat the request")
	}
	return err
}

const internet = "0.0.0.0/0" // destination of the route to the internet gateway

// describeRouteTables lists the main route tables. The routes of each table are in this order:
//   - local routes
//   - a route to an internet gateway. By this route, AWS's cloud controller manager finds the
//     subnets that can have public load balancers. In this cloud, all subnets can have them.
//   - the routes of the network in this cloud
func describeRouteTables(q *query) (any, error) {
	found, next, err := listMatching(q, routeTables, nil)
	if err != nil {
		return nil, err
	}
	out := &describeRouteTablesAnswer{Next: next}
	for _, n := range found {
		id := idOf(prefixRouteTable, n.ID)
		t := routeTable{
			ID: id, VPCID: idOf(prefixVPC, n.ID), Owner: accountOf(n.Project), Tags: tagsOf(n.tags.Meta),
			Associations: items[routeTableAssociation]{Items: []routeTableAssociation{{ID: idOf("rtbassoc", n.ID), Table: id, Main: true, State: "associated"}}},
		}
		for _, p := range n.Ranges() {
			t.Routes.Items = append(t.Routes.Items, route{Gateway: "local", State: "active", Origin: "CreateRouteTable"}.withDestination(p.String()))
		}
		t.Routes.Items = append(t.Routes.Items, route{IPv4: internet, Gateway: idOf("igw", n.ID), State: "active", Origin: "CreateRoute"})
		routes, err := routesOf(q, n.ID)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.State == cloudsim.RouteDeleting {
				continue // EC2 never shows a deleted route
			}
			shown, err := routeOf(q, r)
			if err != nil {
				return nil, err
			}
			t.Routes.Items = append(t.Routes.Items, shown)
		}
		out.Tables.Items = append(out.Tables.Items, t)
	}
	return out, nil
}

// routeOf returns a route in EC2's format. If the next hop is a terminated instance, the result
// contains the network interface of the instance, but not the instance. AWS's cloud controller
// manager reads each instance in a route table. If the result contained a terminated instance, this
// read would fail, and the controller could not list the routes.
func routeOf(q *query, r cloudsim.Route) (route, error) {
	out := route{Interface: idOf(prefixInterface, r.NextHop), State: "active", Origin: "CreateRoute"}.withDestination(r.Destination)
	exists := true
	if r.State == cloudsim.RouteBlackhole {
		out.State = "blackhole"
		_, err := q.Cloud.GetInstance(q.Context(), r.NextHop)
		if exists = !errors.Is(err, cloudsim.NotFound); exists && err != nil {
			return out, err
		}
	}
	if exists {
		out.Instance, out.Owner = idOf(prefixInstance, r.NextHop), accountOf(r.Project)
	}
	return out, nil
}

func routesOf(q *query, n cloudsim.NetworkID) ([]cloudsim.Route, error) {
	all, _, err := cloudsim.All(q.Context(), q.Cloud.ListRoutes, cloudsim.ListOptions{Network: n})
	return all, err
}
