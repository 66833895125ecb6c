package aws

import (
	"net/http"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Names of the attributes of network load balancers and their target groups.
const (
	attributeProtection = "deletion_protection.enabled"
	attributeCrossZone  = "load_balancing.cross_zone.enabled"
	attributeLogs       = "access_logs.s3.enabled"
	attributeLogBucket  = "access_logs.s3.bucket"
	attributeLogPrefix  = "access_logs.s3.prefix"
	attributeDelay      = "deregistration_delay.timeout_seconds"
	attributePreserveIP = "preserve_client_ip.enabled"
	attributeProxy      = "proxy_protocol_v2.enabled"
	attributeSticky     = "stickiness.enabled"
)

// networkAttribute is an attribute of a network load balancer or a target group.
type networkAttribute struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

func (q *query) decodeAttributes() (all []networkAttribute) {
	q.forEach("Attributes.member", func(prefix string) {
		all = append(all, networkAttribute{q.requiredText(prefix + "Key"), q.text(prefix + "Value")})
	})
	q.checkPresent(len(all) > 0, "Attributes")
	return all
}

func (a networkAttribute) parseBool() (bool, error) {
	if a.Value != "true" && a.Value != "false" {
		return false, a.errInvalid("true or false")
	}
	return a.Value == "true", nil
}

func (a networkAttribute) errInvalid(must string) error {
	return coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the attribute "+clip(a.Key)+" must be "+must+", got "+clip(a.Value))
}

func (a networkAttribute) errUnknown() error {
	return coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the attribute "+clip(a.Key)+" is not supported by cloudsim's dialect aws: remove it")
}

func attributeAnswer(q *query, all []networkAttribute) *queryAnswer {
	return networkAnswer(q, networkResult{Attributes: &members[networkAttribute]{all}})
}

func networkAttributesOf(l cloudsim.LoadBalancer) []networkAttribute {
	return []networkAttribute{
		{attributeProtection, l.Labels[labelProtection]},
		{attributeCrossZone, l.Labels[labelCrossZone]},
		{attributeLogs, "false"}, {attributeLogBucket, ""}, {attributeLogPrefix, ""},
	}
}

func describeNetworkAttributes(q *query) (any, error) {
	wanted := q.requiredText("LoadBalancerArn")
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findNetworkLoadBalancer(q, wanted)
	return attributeAnswer(q, networkAttributesOf(l)), err
}

// modifyNetworkAttributes changes the attributes that the request contains. The attribute
// load_balancing.cross_zone.enabled has no effect, because a load balancer of this cloud always
// uses the targets of all zones.
func modifyNetworkAttributes(q *query) (any, error) {
	wanted, given := q.requiredText("LoadBalancerArn"), q.decodeAttributes()
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := changeNetwork(q, wanted, func(l *cloudsim.LoadBalancer) error {
		for _, a := range given {
			if err := setNetworkAttribute(l, a); err != nil {
				return err
			}
		}
		return nil
	})
	return attributeAnswer(q, networkAttributesOf(l)), err
}

// attributeLabels maps attributes to the labels that store their values.
var attributeLabels = map[string]string{attributeProtection: labelProtection, attributeCrossZone: labelCrossZone}

func setNetworkAttribute(l *cloudsim.LoadBalancer, a networkAttribute) error {
	switch a.Key {
	case attributeProtection, attributeCrossZone:
		v, err := a.parseBool()
		l.Labels[attributeLabels[a.Key]] = strconv.FormatBool(v)
		return err
	case attributeLogs, attributeLogBucket, attributeLogPrefix:
		if a.Value != "" && a.Value != "false" {
			return dialect.Unsupported{What: "the attribute " + a.Key, Why: "the cloud has no access logs of load balancers: set " + attributeLogs + " to false, and omit the bucket and the prefix"}
		}
		return nil
	}
	return a.errUnknown()
}

func groupAttributesOf(g targetGroup) []networkAttribute {
	return []networkAttribute{
		{attributeDelay, strconv.Itoa(g.Doc.DrainSeconds)},
		{attributePreserveIP, strconv.FormatBool(g.Doc.PreserveIP)},
		{attributeProxy, strconv.FormatBool(g.Doc.ProxyProtocol)},
		{attributeSticky, "false"},
	}
}

func describeGroupAttributes(q *query) (any, error) {
	wanted := q.requiredText("TargetGroupArn")
	if err := q.finish(); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	g, err := r.findTargetGroup(q, wanted)
	return attributeAnswer(q, groupAttributesOf(g)), err
}

// modifyGroupAttributes changes the attributes that the request contains. The attribute
// preserve_client_ip.enabled has no effect: the targets always see the address of the load balancer
// as the address of the client.
func modifyGroupAttributes(q *query) (any, error) {
	wanted, given := q.requiredText("TargetGroupArn"), q.decodeAttributes()
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, g, err := changeTargetGroup(q, wanted, func(g *targetGroup) error {
		for _, a := range given {
			if err := setGroupAttribute(&g.Doc, a); err != nil {
				return err
			}
		}
		return nil
	})
	return attributeAnswer(q, groupAttributesOf(g)), err
}

func setGroupAttribute(d *targetGroupDocument, a networkAttribute) (err error) {
	switch a.Key {
	case attributeDelay:
		if d.DrainSeconds, err = strconv.Atoi(a.Value); err != nil || d.DrainSeconds < 0 || d.DrainSeconds > 3600 {
			return a.errInvalid("0 to 3600")
		}
	case attributePreserveIP:
		if d.PreserveIP, err = a.parseBool(); err == nil && !d.PreserveIP && d.Protocol != "TCP" {
			return a.errInvalid("true for a target group with the protocol " + d.Protocol)
		}
	case attributeProxy:
		if d.ProxyProtocol, err = a.parseBool(); err == nil && d.ProxyProtocol && d.Protocol != "TCP" {
			return dialect.Unsupported{What: "the attribute " + a.Key + " of a target group with the protocol " + d.Protocol, Why: "load balancers send PROXY headers only over TCP: set it to false"}
		}
	case attributeSticky:
		on, err := a.parseBool()
		if err == nil && on {
			return dialect.Unsupported{What: "the attribute " + a.Key, Why: "set it to false"}
		}
		return err
	default:
		return a.errUnknown()
	}
	return err
}
