package aws

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Prefixes of AWS's ids.
const (
	prefixGroup      = "sg"
	prefixInstance   = "i"
	prefixInterface  = "eni"
	prefixRouteTable = "rtb"
	prefixSubnet     = "subnet"
	prefixVolume     = "vol"
	prefixVPC        = "vpc"
)

// instanceState is the state of an instance in EC2's format.
type instanceState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

// instanceStates maps the states of an instance to EC2's states. EC2 has no state for a
// reboot.
var instanceStates = map[cloudsim.InstanceState]instanceState{
	cloudsim.InstanceProvisioning: {0, "pending"}, cloudsim.InstanceStarting: {0, "pending"},
	cloudsim.InstanceRunning: {16, "running"}, cloudsim.InstanceRebooting: {16, "running"},
	cloudsim.InstanceTerminating: {32, "shutting-down"}, cloudsim.InstanceTerminated: {48, "terminated"},
	cloudsim.InstanceStopping: {64, "stopping"}, cloudsim.InstanceStopped: {80, "stopped"},
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// tagsOf returns the labels of a resource as tags, sorted by key.
func tagsOf(m cloudsim.Meta) items[tag] {
	labels := dialect.Visible(m.Labels)
	var all items[tag]
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all.Items = append(all.Items, tag{k, labels[k]})
	}
	return all
}

type instance struct {
	ID              string                  `xml:"instanceId"`
	State           instanceState           `xml:"instanceState"`
	PrivateDNSName  string                  `xml:"privateDnsName"`
	PublicDNSName   string                  `xml:"dnsName"`
	LaunchIndex     int                     `xml:"amiLaunchIndex"`
	Type            string                  `xml:"instanceType"`
	LaunchTime      string                  `xml:"launchTime"`
	Placement       placement               `xml:"placement"`
	Monitoring      string                  `xml:"monitoring>state"`
	SubnetID        string                  `xml:"subnetId,omitempty"`
	VPCID           string                  `xml:"vpcId,omitempty"`
	PrivateIP       string                  `xml:"privateIpAddress,omitempty"`
	PublicIP        string                  `xml:"ipAddress,omitempty"`
	SourceDestCheck bool                    `xml:"sourceDestCheck"`
	Architecture    string                  `xml:"architecture"`
	Tags            items[tag]              `xml:"tagSet"`
	Interfaces      items[networkInterface] `xml:"networkInterfaceSet"`
	Groups          items[groupIdentifier]  `xml:"groupSet"`
}

type placement struct {
	Zone    string `xml:"availabilityZone"`
	Group   string `xml:"groupName"`
	Tenancy string `xml:"tenancy"`
}

type networkInterface struct {
	ID              string                 `xml:"networkInterfaceId"`
	SubnetID        string                 `xml:"subnetId"`
	VPCID           string                 `xml:"vpcId"`
	Status          string                 `xml:"status"`
	PrivateIP       string                 `xml:"privateIpAddress"`
	SourceDestCheck bool                   `xml:"sourceDestCheck"`
	Attachment      attachment             `xml:"attachment"`
	PrivateIPs      items[privateIP]       `xml:"privateIpAddressesSet"`
	IPv6            items[ipv6]            `xml:"ipv6AddressesSet"`
	Groups          items[groupIdentifier] `xml:"groupSet"`
}

type attachment struct {
	DeviceIndex int    `xml:"deviceIndex"`
	Status      string `xml:"status"`
}

type privateIP struct {
	Address string `xml:"privateIpAddress"`
	Primary bool   `xml:"primary"`
}

type ipv6 struct {
	Address string `xml:"ipv6Address"`
}

// timestamp returns a time in EC2's format.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// instanceOf returns the instance in EC2's format. The private DNS name is the name of the
// instance, because this name is also its host name. So the nodes of a lab have the private DNS
// names of their instances, as AWS's cloud controller manager demands. Each instance has one
// network interface, which has the internal addresses. Its security group is the default group of
// its VPC.
func instanceOf(i cloudsim.Instance) instance {
	out := instance{
		ID: idOf(prefixInstance, i.ID), State: instanceStates[i.State], PrivateDNSName: i.Name, Type: i.Type, LaunchTime: timestamp(i.CreatedAt),
		Placement: placement{Zone: i.Zone, Tenancy: "default"}, Monitoring: "disabled", SourceDestCheck: true, Architecture: "x86_64", Tags: tagsOf(i.Meta),
	}
	eni := networkInterface{ID: idOf(prefixInterface, i.ID), Status: "in-use", SourceDestCheck: true, Attachment: attachment{Status: "attached"}}
	if i.Network != "" {
		out.VPCID = idOf(prefixVPC, i.Network)
		out.Groups.Items = []groupIdentifier{{ID: defaultGroupID(i.Network), Name: defaultGroup}}
	}
	if i.Subnet != "" {
		out.SubnetID = idOf(prefixSubnet, i.Subnet)
	}
	eni.VPCID, eni.SubnetID, eni.Groups = out.VPCID, out.SubnetID, out.Groups
	for _, a := range i.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil: // a host name
		case a.Type == cloudsim.AddressExternal && ip.Is4() && out.PublicIP == "":
			out.PublicIP = a.Address
		case a.Type == cloudsim.AddressInternal && ip.Is4():
			eni.PrivateIPs.Items = append(eni.PrivateIPs.Items, privateIP{a.Address, eni.PrivateIP == ""})
			if eni.PrivateIP == "" {
				eni.PrivateIP = a.Address
			}
		case a.Type == cloudsim.AddressInternal:
			eni.IPv6.Items = append(eni.IPv6.Items, ipv6{a.Address})
		}
	}
	out.PrivateIP = eni.PrivateIP
	out.Interfaces.Items = append(out.Interfaces.Items, eni)
	return out
}

var instances = kind[cloudsim.Instance, cloudsim.InstanceID]{
	one: "instance", param: "InstanceId", prefix: prefixInstance, code: "InvalidInstanceID", own: "i", named: "private-dns-name",
	get: (*client.Client).GetInstance, all: (*client.Client).ListInstances,
	meta: func(i cloudsim.Instance) cloudsim.Meta { return i.Meta },
	id:   func(i cloudsim.Instance) string { return string(i.ID) },
	values: map[string]func(cloudsim.Instance) []string{
		"availability-zone":   func(i cloudsim.Instance) []string { return []string{i.Zone} },
		"instance-id":         func(i cloudsim.Instance) []string { return []string{idOf(prefixInstance, i.ID)} },
		"instance-state-code": func(i cloudsim.Instance) []string { return []string{strconv.Itoa(instanceStates[i.State].Code)} },
		"instance-state-name": func(i cloudsim.Instance) []string { return []string{instanceStates[i.State].Name} },
		"instance-type":       func(i cloudsim.Instance) []string { return []string{i.Type} },
		"private-dns-name":    func(i cloudsim.Instance) []string { return []string{i.Name} },
		"private-ip-address":  func(i cloudsim.Instance) []string { return []string{i.InternalIP()} },
		"subnet-id":           func(i cloudsim.Instance) []string { return optionalID(prefixSubnet, i.Subnet) },
		"vpc-id":              func(i cloudsim.Instance) []string { return optionalID(prefixVPC, i.Network) },
	},
}

// optionalID returns AWS's id for an id of this cloud, or nil if the id is "".
func optionalID[S ~string](prefix string, id S) []string {
	if id == "" {
		return nil
	}
	return []string{idOf(prefix, id)}
}

type describeInstancesAnswer struct {
	ec2Answer
	Reservations items[reservation] `xml:"reservationSet"`
	Next         string             `xml:"nextToken,omitempty"`
}

// reservation is the result of one request for instances in EC2. In this dialect, each
// reservation contains one instance.
type reservation struct {
	ID        string          `xml:"reservationId"`
	Owner     string          `xml:"ownerId"`
	Instances items[instance] `xml:"instancesSet"`
}

func describeInstances(q *query) (any, error) {
	region := q.region()
	found, next, err := list(q, instances, func(i cloudsim.Instance) bool { return i.Region == region })
	if err != nil {
		return nil, err
	}
	out := &describeInstancesAnswer{Next: next, Reservations: items[reservation]{Items: make([]reservation, len(found))}}
	for n, i := range found {
		out.Reservations.Items[n] = reservation{ID: idOf("r", i.ID), Owner: account(i.Project), Instances: items[instance]{Items: []instance{instanceOf(i)}}}
	}
	return out, nil
}

type topologyAnswer struct {
	ec2Answer
	Instances items[struct{}] `xml:"instanceSet"`
}

// describeTopology returns an empty list, as EC2 does for instance types without a topology.
func describeTopology(q *query) (any, error) {
	_, _, err := list(q, instances, nil)
	return &topologyAnswer{}, err
}
