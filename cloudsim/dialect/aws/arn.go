package aws

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Types of resources in Amazon Resource Names (ARNs) of Elastic Load Balancing. For example, the
// type is targetgroup in
// arn:aws:elasticloadbalancing:sim-1:000000000001:targetgroup/web/0000000000000001.
const (
	arnLoadBalancer = "loadbalancer"
	arnTargetGroup  = "targetgroup"
	arnListener     = "listener"
)

// makeARN returns the ARN of a resource of Elastic Load Balancing that belongs to the project p.
// The argument resource is the last part of the ARN. It begins with the type of the resource.
func makeARN(region string, p cloudsim.ProjectID, resource string) string {
	return "arn:aws:elasticloadbalancing:" + region + ":" + accountOf(p) + ":" + resource
}

// arnNumber returns the number in an id of this cloud as 16 hex digits. ARNs contain numbers in
// this format.
func arnNumber[S ~string](id S) string { return fmt.Sprintf("%016x", dialect.Number(id)) }

func loadBalancerARN(l cloudsim.LoadBalancer) string {
	return makeARN(l.Region, l.Project, arnLoadBalancer+"/net/"+dialect.OtherName(l.Meta)+"/"+arnNumber(l.ID))
}

func targetGroupARN(g targetGroup) string {
	return makeARN(g.Doc.Region, g.Project, arnTargetGroup+"/"+g.Doc.Name+"/"+arnNumber(g.ID))
}

func listenerARN(l cloudsim.LoadBalancer, li networkListener) string {
	return makeARN(l.Region, l.Project, arnListener+"/net/"+dialect.OtherName(l.Meta)+"/"+arnNumber(l.ID)+"/"+arnNumber(li.ID))
}

var arnRE = regexp.MustCompile(`^arn:aws:elasticloadbalancing:[-a-z0-9]+:[0-9]{12}:([a-z]+)(?:/[-A-Za-z0-9]+)+/([0-9a-f]{16})$`)

// parseARN returns the type of the resource in an ARN, and the number at the end of the ARN. If
// this number is too large for an id, n is 0. parseARN does not check the other parts of s, such as
// the region. So a caller that finds a resource with this number must compare s with the ARN of the
// resource.
func parseARN(s string) (resource string, n int64, err error) {
	m := arnRE.FindStringSubmatch(s)
	if m == nil {
		return "", 0, errNotARN(s, "a resource of Elastic Load Balancing")
	}
	if n, err = strconv.ParseInt(m[2], 16, 64); err != nil {
		n = 0 // the number is too large for an id
	}
	return m[1], n, nil
}

// idFromARN returns this cloud's id of the resource with the ARN s. If s is not an ARN of the
// given type of resource, idFromARN returns an error. The error contains typeName, e.g. "a
// listener".
func idFromARN[I ~string](s, resource, prefix, typeName string) (id I, err error) {
	got, n, err := parseARN(s)
	if err != nil || got != resource {
		return "", errNotARN(s, typeName)
	}
	return dialect.ID[I](prefix, n), nil
}

func errNotARN(s, typeName string) error {
	return coded(http.StatusBadRequest, "ValidationError", clipARN(s)+" is not a valid ARN of "+typeName)
}

// clipARN quotes s for an error message. If s is longer than any valid ARN, clipARN shortens s.
func clipARN(s string) string { return fmt.Sprintf("%.256q", s) }
