package aws

import (
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

type instanceType struct {
	Name           string        `xml:"instanceType"`
	Current        bool          `xml:"currentGeneration"`
	BareMetal      bool          `xml:"bareMetal"`
	Hypervisor     string        `xml:"hypervisor"`
	CPUs           int           `xml:"vCpuInfo>defaultVCpus"`
	MemoryMiB      int64         `xml:"memoryInfo>sizeInMiB"`
	UsageClasses   items[string] `xml:"supportedUsageClasses"`
	RootDevices    items[string] `xml:"supportedRootDeviceTypes"`
	Virtualization items[string] `xml:"supportedVirtualizationTypes"`
	Architectures  items[string] `xml:"processorInfo>supportedArchitectures"`
	LocalDisks     bool          `xml:"instanceStorageSupported"`
	NVMe           string        `xml:"ebsInfo>nvmeSupport"`
	MaxVolumes     int           `xml:"ebsInfo>maximumEbsAttachments"`
	VolumeLimit    string        `xml:"ebsInfo>attachmentLimitType"`
	Interfaces     int           `xml:"networkInfo>maximumNetworkInterfaces"`
	IPv4Addresses  int           `xml:"networkInfo>ipv4AddressesPerInterface"`
}

type describeTypesAnswer struct {
	ec2Answer
	Types items[instanceType] `xml:"instanceTypeSet"`
	Next  string              `xml:"nextToken,omitempty"`
}

// instanceTypes describes the instance types. The id of an instance type is its name.
var instanceTypes = kind[cloudsim.InstanceType, string]{
	one: "instance type", param: "InstanceType", code: "InvalidInstanceType",
	get: (*client.Client).GetInstanceType, all: (*client.Client).ListInstanceTypes,
	meta: func(t cloudsim.InstanceType) cloudsim.Meta { return t.Meta },
	id:   func(t cloudsim.InstanceType) string { return t.Name },
	values: map[string]func(cloudsim.InstanceType) []string{
		"current-generation":                    func(cloudsim.InstanceType) []string { return []string{"true"} },
		"instance-type":                         func(t cloudsim.InstanceType) []string { return []string{t.Name} },
		"memory-info.size-in-mib":               func(t cloudsim.InstanceType) []string { return []string{strconv.FormatInt(t.MemoryMiB, 10)} },
		"processor-info.supported-architecture": func(cloudsim.InstanceType) []string { return []string{"x86_64"} },
		"supported-usage-class":                 func(cloudsim.InstanceType) []string { return []string{"on-demand"} },
		"vcpu-info.default-vcpus":               func(t cloudsim.InstanceType) []string { return []string{strconv.Itoa(t.CPUs)} },
	},
}

// describeTypes lists instance types. An instance of any type has one network interface and no
// local disks.
func describeTypes(q *query) (any, error) {
	found, next, err := listMatching(q, instanceTypes, nil)
	if failureOf(err).Code == "InvalidInstanceType.NotFound" {
		err = recode(err, "InvalidInstanceType")
	}
	if err != nil {
		return nil, err
	}
	out := &describeTypesAnswer{Next: next}
	for _, t := range found {
		out.Types.Items = append(out.Types.Items, instanceType{
			Name: t.Name, Current: true, Hypervisor: "nitro", CPUs: t.CPUs, MemoryMiB: t.MemoryMiB,
			UsageClasses: items[string]{[]string{"on-demand"}}, RootDevices: items[string]{[]string{"ebs"}}, Virtualization: items[string]{[]string{"hvm"}}, Architectures: items[string]{[]string{"x86_64"}},
			NVMe: "required", MaxVolumes: t.MaxDisks, VolumeLimit: "dedicated", Interfaces: 1, IPv4Addresses: 1,
		})
	}
	return out, nil
}
