package cloudsimdriver

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/conform"
)

// A Dialect contains the values that the driver needs for the CCM of a real provider, such as the
// format of its provider IDs. The CCM calls a server that translates the API of the provider to the
// API of the simulated cloud. The server is also called a dialect.
type Dialect struct {
	// ProviderID returns the provider ID that the CCM writes into the Node of an instance.
	ProviderID func(cloudsim.Instance) string
	// HostName returns the host name that the CCM writes into the status of a Service. If HostName
	// is nil, the CCM writes the addresses of the load balancer.
	HostName func(cloudsim.LoadBalancer) string
	// Labels are the labels that the CCM needs on each instance.
	Labels map[string]string
	// Claims contains the capabilities of the CCM.
	Claims conform.Capabilities
}

// AWS is the dialect for AWS's CCM with classic load balancers. The configuration of the CCM must
// contain KubernetesClusterID=conform.
var AWS = Dialect{
	ProviderID: func(i cloudsim.Instance) string {
		return fmt.Sprintf("aws:///%s/i-%017x", i.Zone, number(string(i.ID)))
	},
	HostName: func(l cloudsim.LoadBalancer) string {
		name := fmt.Sprintf("%s-%d.%s.elb.amazonaws.com", l.Name, number(string(l.ID)), strings.ReplaceAll(l.IP, ".", "-"))
		if l.Scheme == cloudsim.SchemeInternal {
			return "internal-" + name
		}
		return name
	},
	Labels: map[string]string{"kubernetes.io/cluster/conform": "owned"},
	Claims: conform.Capabilities{
		Provider: "aws", ProviderIDPrefix: "aws://", Zones: true, Shutdown: true, LoadBalancers: true, SourceRanges: true, LocalTraffic: true,
		InternalAnnotations: map[string]string{"service.beta.kubernetes.io/aws-load-balancer-internal": "true"},
	},
}

// number returns the hexadecimal number in an ID of the cloud, for example 42 for i-00002a.
func number(id string) uint64 {
	_, hex, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0 // no instance has this number, so a check fails
	}
	return n
}
