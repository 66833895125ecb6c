package aws

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

type healthCheck struct {
	Target    string `xml:"Target"` // PROTOCOL:PORT, or PROTOCOL:PORT/PATH for HTTP and HTTPS
	Interval  int    `xml:"Interval"`
	Timeout   int    `xml:"Timeout"`
	Unhealthy int    `xml:"UnhealthyThreshold"`
	Healthy   int    `xml:"HealthyThreshold"`
}

// defaultHealthCheck returns the health check of a new classic load balancer in AWS.
func defaultHealthCheck(port int) cloudsim.HealthCheck {
	return cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, Port: port, IntervalMillis: 30_000, TimeoutMillis: 5_000, HealthyThreshold: 10, UnhealthyThreshold: 2}
}

func healthCheckOf(l cloudsim.LoadBalancer) healthCheck {
	h := l.Check()
	out := healthCheck{
		Target: fmt.Sprintf("%s:%d", strings.ToUpper(string(h.Protocol)), h.Port), Interval: h.IntervalMillis / 1000, Timeout: h.TimeoutMillis / 1000,
		Unhealthy: h.UnhealthyThreshold, Healthy: h.HealthyThreshold,
	}
	if h.Protocol != cloudsim.HealthTCP {
		out.Target += h.Path
	}
	return out
}

var healthTargetRE = regexp.MustCompile(`^(?:(TCP|SSL):([0-9]{1,5})|(HTTPS?):([0-9]{1,5})(/.*))$`)

// decodeHealthTarget decodes the parameter HealthCheck.Target. The result has only a protocol, a
// port and a path.
func (q *query) decodeHealthTarget() (h cloudsim.HealthCheck) {
	const name = "HealthCheck.Target"
	v := q.requiredText(name)
	protocol, rest, _ := strings.Cut(v, ":")
	m := healthTargetRE.FindStringSubmatch(strings.ToUpper(protocol) + ":" + rest)
	if m == nil {
		q.fail(errInvalid(name, v, "TCP:PORT, HTTP:PORT/PATH or HTTPS:PORT/PATH"))
		return h
	}
	if m[1] == "SSL" {
		q.fail(dialect.Unsupported{What: "a health check with the protocol SSL", Why: "use TCP or HTTPS"})
	}
	h.Protocol, h.Path = cloudsim.HealthProtocol(strings.ToLower(m[1]+m[3])), m[5]
	h.Port, _ = strconv.Atoi(m[2] + m[4]) // the expression permits only digits
	if _, err := url.ParseRequestURI(h.Path); h.Path != "" && err != nil || len(h.Path) > 1024 || h.Port < 1 || h.Port > 65535 {
		q.fail(errInvalid(name, v, "TCP:PORT, HTTP:PORT/PATH or HTTPS:PORT/PATH, with a port from 1 to 65535 and a valid path of at most 1024 bytes"))
	}
	return h
}

type configureHealthCheckResult struct {
	XMLName     struct{}    `xml:"ConfigureHealthCheckResult"`
	HealthCheck healthCheck `xml:"HealthCheck"`
}

func configureHealthCheck(q *query) (any, error) {
	name, h := q.requiredText("LoadBalancerName"), q.decodeHealthTarget()
	h.IntervalMillis, h.TimeoutMillis = 1000*q.requiredInteger("HealthCheck.Interval", 5, 300), 1000*q.requiredInteger("HealthCheck.Timeout", 2, 60)
	h.UnhealthyThreshold, h.HealthyThreshold = q.requiredInteger("HealthCheck.UnhealthyThreshold", 2, 10), q.requiredInteger("HealthCheck.HealthyThreshold", 2, 10)
	if h.TimeoutMillis >= h.IntervalMillis {
		q.fail(errInvalid("HealthCheck.Timeout", strconv.Itoa(h.TimeoutMillis/1000), "less than HealthCheck.Interval"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		l.HealthCheck = h
		return nil
	})
	return &queryAnswer{Result: configureHealthCheckResult{HealthCheck: healthCheckOf(l)}}, err
}
