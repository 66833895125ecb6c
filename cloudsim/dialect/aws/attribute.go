package aws

import (
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Idle timeout and drain timeout of a new load balancer in AWS, in seconds.
const (
	defaultIdle  = "60"
	defaultDrain = 300
)

// attributes contains the attributes of a classic load balancer in AWS's format.
type attributes struct {
	CrossZone    bool `xml:"CrossZoneLoadBalancing>Enabled"`
	AccessLog    bool `xml:"AccessLog>Enabled"`
	Drain        bool `xml:"ConnectionDraining>Enabled"`
	DrainTimeout int  `xml:"ConnectionDraining>Timeout"`
	IdleTimeout  int  `xml:"ConnectionSettings>IdleTimeout"`
}

func attributesOf(l cloudsim.LoadBalancer) attributes {
	out := attributes{CrossZone: l.Labels[labelCrossZone] == "true", Drain: l.DrainTimeoutSeconds >= 0, DrainTimeout: defaultDrain, IdleTimeout: idleTimeout(l.Labels)}
	if out.Drain {
		out.DrainTimeout = int(l.DrainTimeout().Seconds())
	}
	return out
}

// idleTimeout reads the idle timeout of a load balancer from its labels. The unit is seconds. All
// listeners of the load balancer have this idle timeout.
func idleTimeout(labels map[string]string) int {
	n, err := strconv.Atoi(labels[labelIdle])
	if err != nil {
		return 0 // another client has changed the label; 0 means the default of this cloud
	}
	return n
}

type describeAttributesResult struct {
	XMLName    struct{}   `xml:"DescribeLoadBalancerAttributesResult"`
	Attributes attributes `xml:"LoadBalancerAttributes"`
}

func describeAttributes(q *query) (any, error) {
	name := q.requiredText("LoadBalancerName")
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findLoadBalancer(q, name)
	return &queryAnswer{Result: describeAttributesResult{Attributes: attributesOf(l)}}, err
}

type modifyAttributesResult struct {
	XMLName    struct{}   `xml:"ModifyLoadBalancerAttributesResult"`
	Name       string     `xml:"LoadBalancerName"`
	Attributes attributes `xml:"LoadBalancerAttributes"`
}

// modifyAttributes sets the attributes in the request on a classic load balancer. The attribute
// CrossZoneLoadBalancing has no effect, because a load balancer of this cloud always uses the
// targets of all zones.
func modifyAttributes(q *query) (any, error) {
	const prefix = "LoadBalancerAttributes."
	name := q.requiredText("LoadBalancerName")
	_, hasCrossZone := q.left[prefix+"CrossZoneLoadBalancing.Enabled"]
	crossZone := q.flag(prefix + "CrossZoneLoadBalancing.Enabled")
	hasDrain := q.hasPrefix(prefix + "ConnectionDraining.")
	if name := prefix + "ConnectionDraining.Enabled"; hasDrain && q.left[name] == "" {
		q.requiredText(name)
	}
	drain, timeout := q.flag(prefix+"ConnectionDraining.Enabled"), q.integer(prefix+"ConnectionDraining.Timeout", 1, 3600, defaultDrain)
	idle := q.integer(prefix+"ConnectionSettings.IdleTimeout", 1, 4000, 0)
	if q.flag(prefix + "AccessLog.Enabled") {
		q.fail(dialect.Unsupported{What: "the attribute AccessLog", Why: "the cloud has no access logs of load balancers: set Enabled to false"})
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		if hasCrossZone {
			l.Labels[labelCrossZone] = strconv.FormatBool(crossZone)
		}
		if hasDrain && drain {
			l.DrainTimeoutSeconds = timeout
		} else if hasDrain {
			l.DrainTimeoutSeconds = -1
		}
		if idle > 0 {
			l.Labels[labelIdle] = strconv.Itoa(idle)
			for n := range l.Listeners {
				l.Listeners[n].IdleTimeoutSeconds = idle
			}
		}
		return nil
	})
	return &queryAnswer{Result: modifyAttributesResult{Name: name, Attributes: attributesOf(l)}}, err
}
