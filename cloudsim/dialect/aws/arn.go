package aws

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The first parts of the resource in an ARN of Elastic Load Balancing.
const (
	arnLoadBalancer = "loadbalancer"
	arnTargetGroup  = "targetgroup"
	arnListener     = "listener"
)

// arn returns the Amazon Resource Name of a resource of Elastic Load Balancing.
func arn(region string, p cloudsim.ProjectID, resource string) string {
	return "arn:aws:elasticloadbalancing:" + region + ":" + account(p) + ":" + resource
}

// inARN returns the number in an id of this cloud, in the format of an ARN.
func inARN[S ~string](id S) string { return fmt.Sprintf("%016x", dialect.Number(id)) }

func loadBalancerARN(l cloudsim.LoadBalancer) string {
	return arn(l.Region, l.Project, arnLoadBalancer+"/net/"+dialect.OtherName(l.Meta)+"/"+inARN(l.ID))
}

func targetGroupARN(g targetGroup) string {
	return arn(g.Doc.Region, g.Project, arnTargetGroup+"/"+g.Doc.Name+"/"+inARN(g.ID))
}

func listenerARN(l cloudsim.LoadBalancer, li networkListener) string {
	return arn(l.Region, l.Project, arnListener+"/net/"+dialect.OtherName(l.Meta)+"/"+inARN(l.ID)+"/"+inARN(li.ID))
}

var arnRE = regexp.MustCompile(`^arn:aws:elasticloadbalancing:[-a-z0-9]+:[0-9]{12}:([a-z]+)(?:/[-A-Za-z0-9]+)+/([0-9a-f]{16})$`)

// parseARN returns the first part of the resource in an ARN, and the number at the end. The number
// is 0 if no resource has this ARN. A caller must compare the ARN with the ARN of the found resource,
// because the ARN contains more than the number.
func parseARN(s string) (resource string, n int64, err error) {
	m := arnRE.FindStringSubmatch(s)
	if m == nil {
		return "", 0, notARN(s, "a resource of Elastic Load Balancing")
	}
	if n, err = strconv.ParseInt(m[2], 16, 64); err != nil {
		n = 0 // the cloud has no such number
	}
	return m[1], n, nil
}

// ownIDInARN returns this cloud's id for the ARN of a resource.
func ownIDInARN[I ~string](s, resource, prefix, one string) (id I, err error) {
	got, n, err := parseARN(s)
	if err != nil || got != resource {
		return "", notARN(s, one)
	}
	return dialect.ID[I](prefix, n), nil
}

func notARN(s, one string) error {
	return coded(http.StatusBadRequest, "ValidationError", clipARN(s)+" is not a valid ARN of "+one)
}

// clipARN shortens an ARN of the caller for an error message. Valid ARNs are shorter.
func clipARN(s string) string { return fmt.Sprintf("%.256q", s) }
