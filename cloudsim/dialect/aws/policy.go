package aws

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The dialect supports only policies of the type ProxyProtocolPolicyType that set the attribute
// ProxyProtocol to true. A classic load balancer sends PROXY headers to all instance ports
// that have a policy. As in AWS, an instance port keeps its policies even if no listener uses this
// port.

// These labels store the policies of classic load balancers.
const (
	labelPolicies = dialect.LabelPrefix + "policies" // names, with commas between them
	// labelBackend is the prefix of the labels for instance ports with policies. The rest of the
	// label's name is the port. The value contains the names of the port's policies, with commas
	// between them.
	labelBackend = dialect.LabelPrefix + "backend-"
)

const (
	policyType      = "ProxyProtocolPolicyType"
	policyAttribute = "ProxyProtocol"
)

// refusedPolicyTypes are the policy types of AWS that this cloud does not have.
var refusedPolicyTypes = []string{"AppCookieStickinessPolicyType", "BackendServerAuthenticationPolicyType", "LBCookieStickinessPolicyType", "PublicKeyPolicyType", "SSLNegotiationPolicyType"}

var policyNameRE = regexp.MustCompile(`^[-A-Za-z0-9]{1,64}$`)

// backendServer describes an instance port and its policies, in the XML format of Elastic Load
// Balancing.
type backendServer struct {
	Port     int             `xml:"InstancePort"`
	Policies members[string] `xml:"PolicyNames"`
}

// backendServers returns the instance ports with policies, sorted by port.
func backendServers(l cloudsim.LoadBalancer) (out members[backendServer]) {
	for label := range l.Labels {
		if text, ok := strings.CutPrefix(label, labelBackend); ok {
			port, _ := strconv.Atoi(text) // the dialect writes only numbers
			out.Items = append(out.Items, backendServer{port, members[string]{idsInLabel(l, label)}})
		}
	}
	slices.SortFunc(out.Items, func(a, b backendServer) int { return a.Port - b.Port })
	return out
}

// proxyProtocol returns the version of the PROXY headers that a load balancer sends to an instance
// port. It returns "" if the load balancer sends no headers to this port. Classic load balancers of
// AWS send version 1.
func proxyProtocol(l cloudsim.LoadBalancer, port int) cloudsim.ProxyProtocol {
	if l.Labels[labelBackend+strconv.Itoa(port)] == "" {
		return ""
	}
	return cloudsim.ProxyV1
}

// createPolicy creates a policy. If the policy exists, createPolicy changes nothing, as in AWS.
func createPolicy(q *query) (any, error) {
	wanted, name, kind := q.requiredText("LoadBalancerName"), q.requiredText("PolicyName"), q.requiredText("PolicyTypeName")
	switch {
	case slices.Contains(refusedPolicyTypes, kind):
		q.fail(dialect.Unsupported{What: "a policy of the type " + kind, Why: "load balancers forward TCP: only the type " + policyType + " exists"})
	case kind != policyType:
		q.fail(coded(http.StatusBadRequest, "PolicyTypeNotFound", "the policy type "+clip(kind)+" does not exist: use "+policyType))
	case !policyNameRE.MatchString(name):
		q.fail(errInvalid("PolicyName", name, "1 to 64 letters, digits and dashes"))
	}
	attributes := map[string]string{}
	q.forEach("PolicyAttributes.member", func(prefix string) {
		attributes[q.requiredText(prefix+"AttributeName")] = q.text(prefix + "AttributeValue")
	})
	if len(attributes) != 1 || attributes[policyAttribute] != "true" {
		q.fail(coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the list PolicyAttributes must have only the attribute "+policyAttribute+" with the value true"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, wanted, func(l *cloudsim.LoadBalancer) error {
		names := idsInLabel(*l, labelPolicies)
		if slices.Contains(names, name) {
			return nil
		}
		setList(l, labelPolicies, append(names, name))
		if n := len(l.Labels[labelPolicies]); n > cloudsim.MaxLabelValue {
			return coded(http.StatusBadRequest, "TooManyPolicies", fmt.Sprintf("the names of all policies of the load balancer have %d characters together, at most %d are allowed", n, cloudsim.MaxLabelValue))
		}
		return nil
	})
	return emptyAnswer(q), err
}

// deletePolicy deletes a policy. It returns an error if an instance port still has this policy. As
// in AWS, deletePolicy returns no error if the policy does not exist.
func deletePolicy(q *query) (any, error) {
	wanted, name := q.requiredText("LoadBalancerName"), q.requiredText("PolicyName")
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, wanted, func(l *cloudsim.LoadBalancer) error {
		for _, b := range backendServers(*l).Items {
			if slices.Contains(b.Policies.Items, name) {
				return coded(http.StatusBadRequest, "InvalidConfigurationRequest", fmt.Sprintf("the instance port %d has the policy %s: first remove the policy from this port", b.Port, clip(name)))
			}
		}
		setList(l, labelPolicies, slices.DeleteFunc(idsInLabel(*l, labelPolicies), func(s string) bool { return s == name }))
		return nil
	})
	return emptyAnswer(q), err
}

type policyDescription struct {
	Name       string                              `xml:"PolicyName"`
	Type       string                              `xml:"PolicyTypeName"`
	Attributes members[policyAttributeDescription] `xml:"PolicyAttributeDescriptions"`
}

type policyAttributeDescription struct {
	Name  string `xml:"AttributeName"`
	Value string `xml:"AttributeValue"`
}

type describePoliciesResult struct {
	XMLName  struct{}                   `xml:"DescribeLoadBalancerPoliciesResult"`
	Policies members[policyDescription] `xml:"PolicyDescriptions"`
}

func describePolicies(q *query) (any, error) {
	wanted, names := q.requiredText("LoadBalancerName"), newRequestedNames(q.textList("PolicyNames.member"))
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findLoadBalancer(q, wanted)
	if err != nil {
		return nil, err
	}
	out := describePoliciesResult{}
	for _, name := range idsInLabel(l, labelPolicies) {
		if names.match(name) {
			out.Policies.Items = append(out.Policies.Items, policyDescription{name, policyType, members[policyAttributeDescription]{[]policyAttributeDescription{{policyAttribute, "true"}}}})
		}
	}
	return &queryAnswer{Result: out}, names.checkFound("PolicyNotFound", "policy")
}

// setBackendPolicies replaces the policies of an instance port. It returns an error if a policy
// does not exist. It accepts an instance port that no listener uses.
func setBackendPolicies(q *query) (any, error) {
	wanted, port := q.requiredText("LoadBalancerName"), q.requiredInteger("InstancePort", 1, 65535)
	names := slices.Compact(slices.Sorted(slices.Values(q.textList("PolicyNames.member"))))
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, wanted, func(l *cloudsim.LoadBalancer) error {
		for _, name := range names {
			if !slices.Contains(idsInLabel(*l, labelPolicies), name) {
				return coded(http.StatusBadRequest, "PolicyNotFound", "the policy "+clip(name)+" does not exist")
			}
		}
		setList(l, labelBackend+strconv.Itoa(port), names)
		return nil
	})
	return emptyAnswer(q), err
}
