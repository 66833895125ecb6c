package aws

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
	prefixSnapshot   = "snap"
	prefixSubnet     = "subnet"
	prefixVolume     = "vol"
	prefixVPC        = "vpc"
)

// instanceState is the state of an instance in EC2's format.
type instanceState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

// instanceStates maps the states of an instance to EC2's states. EC2 has no state for a reboot. So
// an instance has the state running during a reboot.
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

// tagsOf returns the visible labels of a resource as tags, sorted by key.
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
	ImageID         string                  `xml:"imageId,omitempty"`
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
	BlockDevices    items[blockDevice]      `xml:"blockDeviceMapping"`
	ProfileARN      string                  `xml:"iamInstanceProfile>arn,omitempty"`
	ProfileID       string                  `xml:"iamInstanceProfile>id,omitempty"`
}

// blockDevice is a volume of an instance.
type blockDevice struct {
	Name                string `xml:"deviceName"`
	Volume              string `xml:"ebs>volumeId"`
	State               string `xml:"ebs>status"`
	DeleteOnTermination bool   `xml:"ebs>deleteOnTermination"`
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
	MAC             string                 `xml:"macAddress,omitempty"`
	PrivateIP       string                 `xml:"privateIpAddress"`
	SourceDestCheck bool                   `xml:"sourceDestCheck"`
	Attachment      attachment             `xml:"attachment"`
	PrivateIPs      items[privateIP]       `xml:"privateIpAddressesSet"`
	IPv6            items[ipv6]            `xml:"ipv6AddressesSet"`
	Groups          items[groupIdentifier] `xml:"groupSet"`
}

type attachment struct {
	ID          string `xml:"attachmentId"`
	Instance    string `xml:"instanceId,omitempty"`      // only in answers about network interfaces
	Owner       string `xml:"instanceOwnerId,omitempty"` // only in answers about network interfaces
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

// formatTime returns a time in EC2's format.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// instanceResources contains the disks and the security groups of some instances.
type instanceResources struct {
	disks  map[cloudsim.InstanceID][]cloudsim.Disk
	groups map[string]string // names of security groups; the keys are AWS's ids
}

func readInstanceResources(q *query, all []cloudsim.Instance) (instanceResources, error) {
	r := instanceResources{disks: map[cloudsim.InstanceID][]cloudsim.Disk{}, groups: map[string]string{}}
	if len(all) == 0 {
		return r, nil
	}
	o := cloudsim.ListOptions{Limit: cloudsim.MaxPageSize}
	needGroups := false
	for _, i := range all {
		if len(all) <= cloudsim.MaxInstancesInFilter {
			o.Instances = append(o.Instances, i.ID)
		}
		r.groups[defaultGroupID(i.Network)] = defaultGroup
		needGroups = needGroups || i.Labels[labelGroups] != ""
	}
	disks, _, err := cloudsim.All(q.Context(), q.Cloud.ListDisks, o)
	if err != nil {
		return r, err
	}
	for _, d := range disks {
		for _, a := range d.Attachments {
			r.disks[a.Instance] = append(r.disks[a.Instance], d)
		}
	}
	if !needGroups {
		return r, nil
	}
	named, err := listAll(q, groups)
	for _, g := range named {
		r.groups[g.id()] = g.Name
	}
	return r, err
}

// groupIDsOf returns the ids of the security groups of an instance. If a caller has chosen groups
// for the instance, the result contains these groups. Otherwise it contains the default group of
// the VPC. A terminated instance has no groups.
func groupIDsOf(i cloudsim.Instance) []string {
	switch {
	case i.Network == "": // the instance is terminated
		return nil
	case i.Labels[labelGroups] != "":
		return strings.Split(i.Labels[labelGroups], ",")
	}
	return []string{defaultGroupID(i.Network)}
}

// instanceOf returns an instance in EC2's format. The private DNS name is the name of the instance.
// In a cluster that `allinone up` starts, the Node also has this name. AWS's cloud controller
// manager requires that the name of each Node is the private DNS name of its instance.
func instanceOf(i cloudsim.Instance, r instanceResources) instance {
	eni := interfaceOf(i, r)
	out := instance{
		ID: idOf(prefixInstance, i.ID), ImageID: i.Labels[labelImage], State: instanceStates[i.State], PrivateDNSName: i.Name, Type: i.Type, LaunchTime: formatTime(i.CreatedAt),
		Placement: placement{Zone: i.Zone, Tenancy: "default"}, Monitoring: "disabled", Architecture: "x86_64", Tags: tagsOf(i.Meta),
		VPCID: eni.VPCID, SubnetID: eni.SubnetID, PrivateIP: eni.PrivateIP, SourceDestCheck: eni.SourceDestCheck, Groups: eni.Groups,
	}
	if i.ServiceAccount != "" {
		out.ProfileID, out.ProfileARN = string(i.ServiceAccount), "arn:aws:iam::"+accountOf(i.Project)+":instance-profile/"+string(i.ServiceAccount)
	}
	if i.State != cloudsim.InstanceTerminated {
		out.Interfaces.Items = []networkInterface{eni}
	}
	for _, a := range i.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == cloudsim.AddressExternal && ip.Is4() {
			out.PublicIP = a.Address
			break
		}
	}
	for _, d := range r.disks[i.ID] {
		a, _ := d.Attachment(i.ID)
		out.BlockDevices.Items = append(out.BlockDevices.Items, blockDevice{Name: deviceOf(d, a), Volume: idOf(prefixVolume, d.ID), State: string(a.State)})
	}
	return out
}

// interfaceOf returns the network interface of an instance in EC2's format. The network interface
// has all internal addresses of the instance.
func interfaceOf(i cloudsim.Instance, r instanceResources) networkInterface {
	eni := networkInterface{
		ID: idOf(prefixInterface, i.ID), Status: "in-use", SourceDestCheck: i.Labels[labelSourceDestCheck] != "false",
		Attachment: attachment{ID: idOf("eni-attach", i.ID), Status: "attached"},
	}
	if i.Network != "" {
		eni.VPCID = idOf(prefixVPC, i.Network)
	}
	if i.Subnet != "" {
		eni.SubnetID = idOf(prefixSubnet, i.Subnet)
	}
	for _, id := range groupIDsOf(i) {
		eni.Groups.Items = append(eni.Groups.Items, groupIdentifier{ID: id, Name: r.groups[id]})
	}
	for _, address := range internalAddresses(i) {
		ip, err := netip.ParseAddr(address)
		switch {
		case err != nil: // impossible, because the cloud has checked the address
		case ip.Is4():
			eni.PrivateIPs.Items = append(eni.PrivateIPs.Items, privateIP{address, eni.PrivateIP == ""})
			if eni.PrivateIP == "" {
				eni.PrivateIP, eni.MAC = address, cloudsim.MAC(ip).String()
			}
		default:
			eni.IPv6.Items = append(eni.IPv6.Items, ipv6{address})
		}
	}
	return eni
}

var instances = kind[cloudsim.Instance, cloudsim.InstanceID]{
	one: "instance", param: "InstanceId", prefix: prefixInstance, code: "InvalidInstanceID", own: "i", named: "private-dns-name",
	get: (*client.Client).GetInstance, all: (*client.Client).ListInstances,
	meta: func(i cloudsim.Instance) cloudsim.Meta { return i.Meta },
	id:   func(i cloudsim.Instance) string { return string(i.ID) },
	values: map[string]func(cloudsim.Instance) []string{
		"availability-zone":   func(i cloudsim.Instance) []string { return []string{i.Zone} },
		"image-id":            func(i cloudsim.Instance) []string { return []string{i.Labels[labelImage]} },
		"instance.group-id":   groupIDsOf,
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

// reservation contains the instances that one request to EC2 has created. In lists of this dialect,
// each reservation contains one instance.
type reservation struct {
	ID        string          `xml:"reservationId"`
	Owner     string          `xml:"ownerId"`
	Instances items[instance] `xml:"instancesSet"`
}

func inRegionOf(q *query) func(cloudsim.Instance) bool {
	region := q.region()
	return func(i cloudsim.Instance) bool { return i.Region == region }
}

// instancesWithTerminated returns a copy of the package variable instances. The copy can also find
// terminated instances, but only by their ids. So calls without ids return no terminated instances.
// EC2 shows a terminated instance for about an hour. This dialect shows it until the cloud deletes
// the event of the termination from its journal.
func instancesWithTerminated() kind[cloudsim.Instance, cloudsim.InstanceID] {
	k := instances
	k.get = func(c *client.Client, ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) { //nolint:revive // the order of a method expression
		i, err := instances.get(c, ctx, id)
		if !errors.Is(err, cloudsim.NotFound) {
			return i, err
		}
		l, listErr := c.ListNewestEvents(ctx, cloudsim.EventOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}, ID: string(id), Limit: 1})
		if listErr != nil && !errors.Is(listErr, cloudsim.Denied) {
			return i, listErr
		}
		if len(l.Items) == 0 || l.Items[0].Type != cloudsim.EventDelete {
			return i, err
		}
		if err := json.Unmarshal(l.Items[0].Object, &i); err != nil {
			return i, cloudsim.Errorf(cloudsim.Internal, "decode the last event of instance %s: %w", id, err)
		}
		i.State, i.Network, i.Subnet, i.Addresses = cloudsim.InstanceTerminated, "", "", nil
		return i, nil
	}
	return k
}

func describeInstances(q *query) (any, error) {
	found, next, err := listMatching(q, instancesWithTerminated(), inRegionOf(q))
	if err != nil {
		return nil, err
	}
	r, err := readInstanceResources(q, found)
	if err != nil {
		return nil, err
	}
	out := &describeInstancesAnswer{Next: next, Reservations: items[reservation]{Items: make([]reservation, len(found))}}
	for n, i := range found {
		out.Reservations.Items[n] = reservationOf([]cloudsim.Instance{i}, r)
	}
	return out, nil
}

// reservationOf returns a reservation with the given instances. There must be at least one
// instance.
func reservationOf(all []cloudsim.Instance, r instanceResources) reservation {
	out := reservation{ID: idOf("r", all[0].ID), Owner: accountOf(all[0].Project), Instances: items[instance]{Items: make([]instance, len(all))}}
	for n, i := range all {
		out.Instances.Items[n] = instanceOf(i, r)
	}
	return out
}

type topologyAnswer struct {
	ec2Answer
	Instances items[struct{}] `xml:"instanceSet"`
}

// describeTopology returns an empty list. EC2 does the same for instance types that have no
// topology.
func describeTopology(q *query) (any, error) {
	_, _, err := listMatching(q, instances, nil)
	return &topologyAnswer{}, err
}
