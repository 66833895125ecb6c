// Package aws translates a part of the API of Amazon Web Services to calls of this cloud's API. So
// AWS's cloud controller manager and SDKs run unmodified against this cloud. The formats of
// requests and answers follow these API references:
//   - Amazon EC2, version 2016-11-15
//   - Elastic Load Balancing, version 2012-06-01 for classic load balancers, and version 2015-12-01
//     for network load balancers
//   - AWS STS, version 2011-06-15
//   - Amazon ECR, version 2015-09-21
//
// The header Authorization of each request must contain a signature in the format AWS Signature
// Version 4. The cloud verifies the signature, because the package does not have the secrets of
// access keys.
//
// The package refuses a request that contains a parameter or a filter that it does not support. So
// it never ignores a feature that a request asks for.
package aws

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Name is the name of the dialect.
const Name = "aws"

// New returns the dialect for Amazon Web Services.
func New() dialect.Dialect {
	return dialect.Dialect{ //nolint:gosec // CredentialsVariable is the name of a variable, not a credential
		Name: Name, Title: "Amazon Web Services", Calls: supportedCalls(),
		Select: selectCall, Token: signatureToken, Write: writeAnswer, Refuse: refuse, IDHeader: "X-Amzn-Requestid",
		Variables: func(url string) []dialect.Variable {
			return []dialect.Variable{
				{Name: "AWS_ENDPOINT_URL", Value: url},
				{Name: "AWS_REGION", Value: cloudsim.DefaultCatalogue().Regions[0].Name},
				{Name: "AWS_EC2_METADATA_DISABLED", Value: "true"},
			}
		},
		DiskLink: diskLink, Metadata: metadataTree(), RegistryHost: RegistryHost,
		CredentialsVariable: "AWS_SHARED_CREDENTIALS_FILE",
	}
}

// labelUnique is a label with random text. If a request to create a resource equals an earlier
// request, this cloud returns the existing resource. With this label, no two requests are equal.
const labelUnique = dialect.LabelPrefix + "unique"

// A service is an AWS service, such as EC2. Its clients use either AWS's query protocol or AWS's
// protocol JSON 1.1.
type service struct {
	name      string // first part of the names of its calls, e.g. "ec2"
	signing   string // name of the service in signatures
	namespace string // XML namespace of answers; "" for the protocol JSON 1.1
}

// services maps the value of the parameter Version to the service that has this version. A request
// in the query protocol contains this parameter. No two services have the same version.
var services = map[string]service{
	"2016-11-15": {"ec2", "ec2", "http://ec2.amazonaws.com/doc/2016-11-15/"},
	"2011-06-15": {"sts", "sts", "https://sts.amazonaws.com/doc/2011-06-15/"},
	"2012-06-01": {"elb", "elasticloadbalancing", "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/"},
	"2015-12-01": {"elbv2", "elasticloadbalancing", "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"},
}

// serviceOf returns the service that a request asks for. If the request names no known service,
// serviceOf returns EC2 for the query protocol, and ECR for the protocol JSON 1.1.
func serviceOf(r *dialect.Request) service {
	if isJSON(r) {
		return jsonService(r)
	}
	if s, ok := services[r.Form.Get("Version")]; ok {
		return s
	}
	return services["2016-11-15"]
}

// supportedCalls returns all calls that the dialect supports. TestEachCall in the package interop
// fails if one of these calls never succeeds.
func supportedCalls() []dialect.Call {
	var all []dialect.Call
	add := func(name, summary string, fn func(*query) (any, error)) {
		all = append(all, dialect.Call{Name: name, Method: http.MethodPost, Path: "/", Summary: summary, Do: func(r *dialect.Request) (int, any, error) {
			body, err := fn(newQuery(r))
			return http.StatusOK, body, err
		}})
	}
	add("ec2.AttachVolume", "Attach a volume to an instance", attachVolume)
	add("ec2.AuthorizeSecurityGroupIngress", "Add rules to a security group", authorizeIngress)
	add("ec2.CreateRoute", "Add a route to a main route table", createRoute)
	add("ec2.CreateSecurityGroup", "Create a security group", createGroup)
	add("ec2.CreateSnapshot", "Create a snapshot of a volume", createSnapshot)
	add("ec2.CreateTags", "Set tags of instances, volumes, route tables and security groups", createTags)
	add("ec2.CreateVolume", "Create a volume", createVolume)
	add("ec2.DeleteRoute", "Remove a route from a main route table", deleteRoute)
	add("ec2.DeleteSecurityGroup", "Delete a security group", deleteGroup)
	add("ec2.DeleteSnapshot", "Delete a snapshot", deleteSnapshot)
	add("ec2.DeleteTags", "Remove tags of instances, volumes, route tables and security groups", deleteTags)
	add("ec2.DeleteVolume", "Delete a volume", deleteVolume)
	add("ec2.DescribeAvailabilityZones", "List the zones of the region", describeZones)
	add("ec2.DescribeInstanceStatus", "List the states and status checks of instances", describeStatus)
	add("ec2.DescribeInstanceTopology", "Return an empty list, because the cloud has no network topology", describeTopology)
	add("ec2.DescribeInstanceTypes", "List instance types", describeTypes)
	add("ec2.DescribeInstances", "List instances", describeInstances)
	add("ec2.DescribeNetworkInterfaces", "List the network interfaces of instances", describeInterfaces)
	add("ec2.DescribeRegions", "List regions", describeRegions)
	add("ec2.DescribeRouteTables", "List the main route tables of networks", describeRouteTables)
	add("ec2.DescribeSecurityGroups", "List security groups", describeGroups)
	add("ec2.DescribeSnapshots", "List snapshots", describeSnapshots)
	add("ec2.DescribeSubnets", "List subnets", describeSubnets)
	add("ec2.DescribeVolumeStatus", "List the status checks of volumes", describeVolumeStatus)
	add("ec2.DescribeVolumes", "List volumes", describeVolumes)
	add("ec2.DescribeVolumesModifications", "List the last modification of volumes", describeModifications)
	add("ec2.DescribeVpcs", "List networks", describeVPCs)
	add("ec2.DetachVolume", "Detach a volume from an instance", detachVolume)
	add("ec2.ModifyInstanceAttribute", "Set the source/destination check or the security groups of an instance", modifyInstance)
	add("ec2.ModifyVolume", "Change the size, type or performance of a volume", modifyVolume)
	add("ec2.RebootInstances", "Reboot instances", rebootInstances)
	add("ec2.ReplaceRoute", "Replace the next hop of a route", replaceRoute)
	add("ec2.RevokeSecurityGroupIngress", "Remove rules from a security group", revokeIngress)
	add("ec2.RunInstances", "Create instances", runInstances)
	add("ec2.StartInstances", "Start stopped instances", startInstances)
	add("ec2.StopInstances", "Stop instances", stopInstances)
	add("ec2.TerminateInstances", "Delete instances", terminateInstances)
	add("elb.AddTags", "Set tags of a load balancer", addLoadBalancerTags)
	add("elb.ApplySecurityGroupsToLoadBalancer", "Replace the security groups of a load balancer", applyGroups)
	add("elb.AttachLoadBalancerToSubnets", "Add subnets to a load balancer", attachSubnets)
	add("elb.ConfigureHealthCheck", "Set the health check of a load balancer", configureHealthCheck)
	add("elb.CreateLoadBalancer", "Create a load balancer", createLoadBalancer)
	add("elb.CreateLoadBalancerListeners", "Add listeners to a load balancer", createListeners)
	add("elb.CreateLoadBalancerPolicy", "Create a policy with which a load balancer sends PROXY headers to its targets", createPolicy)
	add("elb.DeleteLoadBalancer", "Delete a load balancer", deleteLoadBalancer)
	add("elb.DeleteLoadBalancerListeners", "Remove listeners from a load balancer", deleteListeners)
	add("elb.DeleteLoadBalancerPolicy", "Delete a policy of a load balancer", deletePolicy)
	add("elb.DeregisterInstancesFromLoadBalancer", "Remove targets from a load balancer", deregisterInstances)
	add("elb.DescribeInstanceHealth", "Get the health of the targets of a load balancer", describeHealth)
	add("elb.DescribeLoadBalancerAttributes", "Get the attributes of a load balancer", describeAttributes)
	add("elb.DescribeLoadBalancerPolicies", "List the policies of a load balancer", describePolicies)
	add("elb.DescribeLoadBalancers", "List load balancers", describeLoadBalancers)
	add("elb.DescribeTags", "List the tags of load balancers", describeLoadBalancerTags)
	add("elb.DetachLoadBalancerFromSubnets", "Remove subnets from a load balancer", detachSubnets)
	add("elb.ModifyLoadBalancerAttributes", "Set attributes of a load balancer", modifyAttributes)
	add("elb.RegisterInstancesWithLoadBalancer", "Add targets to a load balancer", registerInstances)
	add("elb.RemoveTags", "Remove tags of a load balancer", removeLoadBalancerTags)
	add("elb.SetLoadBalancerPoliciesForBackendServer", "Replace the policies of an instance port", setBackendPolicies)
	add("elbv2.AddTags", "Set tags of network load balancers, target groups and listeners", addResourceTags)
	add("elbv2.CreateListener", "Add a listener to a network load balancer", createNetworkListener)
	add("elbv2.CreateLoadBalancer", "Create a network load balancer", createNetworkLoadBalancer)
	add("elbv2.CreateTargetGroup", "Create a target group", createTargetGroup)
	add("elbv2.DeleteListener", "Remove a listener from a network load balancer", deleteListener)
	add("elbv2.DeleteLoadBalancer", "Delete a network load balancer and its listeners", deleteNetworkLoadBalancer)
	add("elbv2.DeleteTargetGroup", "Delete a target group", deleteTargetGroup)
	add("elbv2.DeregisterTargets", "Remove targets from a target group", deregisterTargets)
	add("elbv2.DescribeListeners", "List the listeners of a network load balancer", describeListeners)
	add("elbv2.DescribeLoadBalancerAttributes", "Get the attributes of a network load balancer", describeNetworkAttributes)
	add("elbv2.DescribeLoadBalancers", "List network load balancers", describeNetworkLoadBalancers)
	add("elbv2.DescribeTags", "List the tags of network load balancers, target groups and listeners", describeResourceTags)
	add("elbv2.DescribeTargetGroupAttributes", "Get the attributes of a target group", describeGroupAttributes)
	add("elbv2.DescribeTargetGroups", "List target groups", describeTargetGroups)
	add("elbv2.DescribeTargetHealth", "Get the health of the targets of a target group", describeTargetHealth)
	add("elbv2.ModifyListener", "Change the port, the protocol or the target group of a listener", modifyListener)
	add("elbv2.ModifyLoadBalancerAttributes", "Set attributes of a network load balancer", modifyNetworkAttributes)
	add("elbv2.ModifyTargetGroup", "Change the health check of a target group", modifyTargetGroup)
	add("elbv2.ModifyTargetGroupAttributes", "Set attributes of a target group", modifyGroupAttributes)
	add("elbv2.RegisterTargets", "Add targets to a target group", registerTargets)
	add("elbv2.RemoveTags", "Remove tags of network load balancers, target groups and listeners", removeResourceTags)
	add("elbv2.SetSecurityGroups", "Replace the security groups of a network load balancer", setGroups)
	add("sts.GetCallerIdentity", "Get the service account of the caller", getCallerIdentity)
	return append(all, ecrCalls()...)
}

var actionRE = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// selectCall returns the name of the requested call, e.g. "ec2.DescribeInstances". If the request
// uses the query protocol, selectCall also decodes the body into r.Form.
func selectCall(r *dialect.Request) (string, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/" || r.URL.RawQuery != "" {
		return "", coded(http.StatusBadRequest, "InvalidAction", "the request must be POST / without a query string, with the parameters in its body, got "+clip(r.Method+" "+r.URL.Path))
	}
	if isJSON(r) {
		return selectJSON(r)
	}
	raw, err := r.ReadBody()
	if err != nil {
		return "", err
	}
	if r.Form, err = url.ParseQuery(string(raw)); err != nil {
		return "", coded(http.StatusBadRequest, "MalformedQueryString", "the body must have the format application/x-www-form-urlencoded")
	}
	s, ok := services[r.Form.Get("Version")]
	if !ok {
		return "", coded(http.StatusBadRequest, "NoSuchVersion", "the parameter Version must be the version of a supported service, got "+clip(r.Form.Get("Version"))+": 'allinone dialect calls aws' lists the supported calls")
	}
	action := r.Form.Get("Action")
	if !actionRE.MatchString(action) {
		return "", coded(http.StatusBadRequest, "MissingAction", "the parameter Action must be the name of an action")
	}
	return s.name + "." + action, nil
}

// clip quotes a value of a request for an error message, and shortens a long value.
func clip(s string) string { return fmt.Sprintf("%.80q", s) }

// parseID returns the number in an id of AWS, e.g. 42 for the prefix i and the id
// i-0000000000000002a. If the id has another form, ok is false.
func parseID(prefix, id string) (n int64, ok bool) {
	hex, ok := strings.CutPrefix(id, prefix+"-")
	if !ok || len(hex) != 17 || strings.Trim(hex, "0123456789abcdef") != "" {
		return 0, false
	}
	if n = dialect.Number(id); n < 1 {
		return 0, false
	}
	return n, true
}

// idOf returns AWS's id of a resource. For example, i-00002a is the id of an instance in this
// cloud, and AWS's id of this instance is i-0000000000000002a.
func idOf[S ~string](prefix string, id S) string {
	return fmt.Sprintf("%s-%017x", prefix, dialect.Number(id))
}
