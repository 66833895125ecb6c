package aws

import (
	"github.com/cloudsim-dev/allinone/cloudsim"
)

// describedInterface is a network interface in the answer of DescribeNetworkInterfaces. The network
// interfaces in the answer of DescribeInstances have fewer fields.
type describedInterface struct {
	networkInterface
	Zone           string     `xml:"availabilityZone"`
	Owner          string     `xml:"ownerId"`
	PrivateDNSName string     `xml:"privateDnsName"`
	Type           string     `xml:"interfaceType"`
	Requester      bool       `xml:"requesterManaged"`
	Tags           items[tag] `xml:"tagSet"`
}

type describeInterfacesAnswer struct {
	ec2Answer
	Interfaces items[describedInterface] `xml:"networkInterfaceSet"`
	Next       string                    `xml:"nextToken,omitempty"`
}

// interfaces describes the network interfaces. Each instance has one network interface. The ids of
// the instance and of its network interface contain the same number.
var interfaces = kind[cloudsim.Instance, cloudsim.InstanceID]{
	one: "network interface", param: "NetworkInterfaceId", prefix: prefixInterface, code: "InvalidNetworkInterfaceID", own: instances.own,
	get: instances.get, all: instances.all,
	meta: func(cloudsim.Instance) cloudsim.Meta { return cloudsim.Meta{} }, // network interfaces have no tags: the labels of an instance are the tags of the instance
	id:   instances.id,
	values: map[string]func(cloudsim.Instance) []string{
		"addresses.private-ip-address": internalAddresses,
		"attachment.instance-id":       instances.values["instance-id"],
		"availability-zone":            instances.values["availability-zone"],
		"group-id":                     groupIDsOf,
		"network-interface-id":         func(i cloudsim.Instance) []string { return []string{idOf(prefixInterface, i.ID)} },
		"private-dns-name":             instances.values["private-dns-name"],
		"private-ip-address":           instances.values["private-ip-address"],
		"status":                       func(cloudsim.Instance) []string { return []string{"in-use"} },
		"subnet-id":                    instances.values["subnet-id"],
		"vpc-id":                       instances.values["vpc-id"],
	},
}

func internalAddresses(i cloudsim.Instance) (all []string) {
	for _, a := range i.Addresses {
		if a.Type == cloudsim.AddressInternal {
			all = append(all, a.Address)
		}
	}
	return all
}

func describeInterfaces(q *query) (any, error) {
	found, next, err := listMatching(q, interfaces, inRegionOf(q))
	if err != nil {
		return nil, err
	}
	r, err := readInstanceResources(q, found)
	if err != nil {
		return nil, err
	}
	out := &describeInterfacesAnswer{Next: next}
	for _, i := range found {
		eni := describedInterface{networkInterface: interfaceOf(i, r), Zone: i.Zone, Owner: accountOf(i.Project), PrivateDNSName: i.Name, Type: "interface"}
		eni.Attachment.Instance, eni.Attachment.Owner = idOf(prefixInstance, i.ID), eni.Owner
		out.Interfaces.Items = append(out.Interfaces.Items, eni)
	}
	return out, nil
}
