package hcloud

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// These constants are the default values of a health check in Hetzner's API.
const (
	defaultInterval = 15 // seconds
	defaultTimeout  = 10 // seconds
	defaultRetries  = 3
	defaultCodes    = "200-299,300-399" // HTTP statuses, in the format of this cloud
)

func serviceOf(spec cloudsim.LoadBalancerSpec, l cloudsim.Listener) service {
	return service{
		Protocol: string(l.Protocol), ListenPort: l.Port, DestinationPort: l.TargetPort, Proxyprotocol: l.ProxyProtocol != "",
		HealthCheck: healthCheckOf(effectiveCheck(spec, l), l),
	}
}

func effectiveCheck(spec cloudsim.LoadBalancerSpec, l cloudsim.Listener) cloudsim.HealthCheck {
	if l.HealthCheck != nil {
		return *l.HealthCheck
	}
	return spec.HealthCheck
}

func healthCheckOf(h cloudsim.HealthCheck, l cloudsim.Listener) *healthCheck {
	h = h.WithDefaults([]cloudsim.Listener{l})
	out := &healthCheck{
		Protocol: "tcp", Port: h.Port, Interval: max(1, h.IntervalMillis/1000), Timeout: max(1, h.TimeoutMillis/1000), Retries: h.UnhealthyThreshold,
	}
	if h.Protocol == cloudsim.HealthHTTP || h.Protocol == cloudsim.HealthHTTPS {
		out.Protocol = "http"
		out.HTTP = &healthCheckHTTP{Path: h.Path, StatusCodes: statusCodes(h.ExpectedCodes), TLS: h.Protocol == cloudsim.HealthHTTPS}
	}
	return out
}

// statusCodes returns Hetzner's patterns for a list of status codes and ranges. In a pattern, the
// character ? stands for any digit. If no pattern stands for exactly the codes of a range, the
// result contains the range itself.
func statusCodes(codes string) []string {
	out := []string{}
	for s := range strings.SplitSeq(codes, ",") {
		low, high, isRange := strings.Cut(s, "-")
		for n := range len(low) {
			if isRange && len(high) == len(low) && low[:n] == high[:n] && strings.Trim(low[n:], "0") == "" && strings.Trim(high[n:], "9") == "" {
				s = low[:n] + strings.Repeat("?", len(low)-n)
				break
			}
		}
		out = append(out, s)
	}
	return out
}

var statusCodeRE = regexp.MustCompile(`^[1-9]([0-9]{2}|[0-9]\?|\?\?)$`)

// expectedCodes returns the list of status codes and ranges for Hetzner's patterns. It returns
// Invalid for an invalid pattern.
func expectedCodes(patterns []string) (string, error) {
	var out []string
	for _, s := range patterns {
		if !statusCodeRE.MatchString(s) {
			return "", cloudsim.InvalidField("health_check.http.status_codes", fmt.Sprintf("must be statuses such as 200 or 2??, got %.20q", s))
		}
		if digits := strings.TrimRight(s, "?"); digits != s {
			s = digits + strings.Repeat("0", 3-len(digits)) + "-" + digits + strings.Repeat("9", 3-len(digits))
		}
		out = append(out, s)
	}
	return strings.Join(out, ","), nil
}

type serviceRequest struct {
	Protocol        *string             `json:"protocol"`
	ListenPort      *int                `json:"listen_port"`
	DestinationPort *int                `json:"destination_port"`
	Proxyprotocol   *bool               `json:"proxyprotocol"`
	HTTP            json.RawMessage     `json:"http"`
	HealthCheck     *healthCheckRequest `json:"health_check"`
}

type healthCheckRequest struct {
	Protocol *string `json:"protocol"`
	Port     *int    `json:"port"`
	Interval *int    `json:"interval"`
	Timeout  *int    `json:"timeout"`
	Retries  *int    `json:"retries"`
	HTTP     *struct {
		Domain      *string   `json:"domain"`
		Path        *string   `json:"path"`
		Response    *string   `json:"response"`
		StatusCodes *[]string `json:"status_codes"`
		TLS         *bool     `json:"tls"`
	} `json:"http"`
}

func copyTo[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func (s serviceRequest) applyTo(l *cloudsim.Listener, h *cloudsim.HealthCheck) error {
	if s.Protocol != nil && (*s.Protocol == "http" || *s.Protocol == "https") {
		return dialect.Unsupported{What: "a service of the protocol " + *s.Protocol, Why: "load balancers forward TCP: use tcp"}
	}
	if s.Protocol != nil && *s.Protocol != string(cloudsim.TCP) {
		return cloudsim.InvalidField("protocol", fmt.Sprintf("must be tcp, got %.20q", *s.Protocol))
	}
	if len(s.HTTP) > 0 && string(s.HTTP) != "null" {
		return cloudsim.InvalidField("http", "must be absent for a service of the protocol tcp")
	}
	l.Protocol = cloudsim.TCP
	copyTo(&l.Port, s.ListenPort)
	copyTo(&l.TargetPort, s.DestinationPort)
	if s.Proxyprotocol != nil {
		l.ProxyProtocol = ""
		if *s.Proxyprotocol {
			l.ProxyProtocol = cloudsim.ProxyV2
		}
	}
	if l.TargetPort == 0 {
		return cloudsim.InvalidField("destination_port", "is required for a service of the protocol tcp")
	}
	if s.HealthCheck != nil {
		return s.HealthCheck.applyTo(h)
	}
	return nil
}

func (r healthCheckRequest) applyTo(h *cloudsim.HealthCheck) error {
	const field = "health_check."
	if r.Protocol != nil {
		switch *r.Protocol {
		case "tcp":
			h.Protocol = cloudsim.HealthTCP
			h.Path, h.ExpectedCodes = "", ""
		case "http":
			if h.Protocol != cloudsim.HealthHTTP && h.Protocol != cloudsim.HealthHTTPS {
				h.Protocol, h.ExpectedCodes = cloudsim.HealthHTTP, defaultCodes
			}
		default:
			return cloudsim.InvalidField(field+"protocol", fmt.Sprintf("must be tcp or http, got %.20q", *r.Protocol))
		}
	}
	copyTo(&h.Port, r.Port)
	copyTo(&h.UnhealthyThreshold, r.Retries)
	for _, f := range []struct {
		name  string
		given *int
		to    *int
	}{{"interval", r.Interval, &h.IntervalMillis}, {"timeout", r.Timeout, &h.TimeoutMillis}} {
		if f.given == nil {
			continue
		}
		if *f.given < 1 || *f.given > 60 {
			return cloudsim.InvalidField(field+f.name, fmt.Sprintf("must be 1 to 60 seconds, got %d", *f.given))
		}
		*f.to = *f.given * 1000
	}
	if r.HTTP == nil {
		return nil
	}
	if h.Protocol == cloudsim.HealthTCP || h.Protocol == "" {
		return cloudsim.InvalidField(field+"http", "must be absent for a health check of the protocol tcp")
	}
	if r.HTTP.Domain != nil && *r.HTTP.Domain != "" {
		return dialect.Unsupported{What: "the domain of a health check", Why: "the header Host of each probe is the address of the target"}
	}
	if r.HTTP.Response != nil && *r.HTTP.Response != "" {
		return dialect.Unsupported{What: "the response of a health check", Why: "probes check the status only"}
	}
	copyTo(&h.Path, r.HTTP.Path)
	if r.HTTP.TLS != nil {
		h.Protocol = cloudsim.HealthHTTP
		if *r.HTTP.TLS {
			h.Protocol = cloudsim.HealthHTTPS
		}
	}
	if r.HTTP.StatusCodes != nil {
		codes, err := expectedCodes(*r.HTTP.StatusCodes)
		if err != nil {
			return err
		}
		h.ExpectedCodes = cmp.Or(codes, defaultCodes)
	}
	return nil
}

// addService adds a service to a load balancer. Each service has its own health check.
func addService(l *cloudsim.LoadBalancer, s serviceRequest) error {
	t := typeOf(*l)
	if len(l.Listeners) >= t.MaxServices {
		return cloudsim.Errorf(cloudsim.Exhausted, "a load balancer of the type %s has at most %d services", t.Name, t.MaxServices)
	}
	if s.Protocol == nil {
		return cloudsim.InvalidField("protocol", "is required")
	}
	li := cloudsim.Listener{}
	h := cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: defaultInterval * 1000, TimeoutMillis: defaultTimeout * 1000, UnhealthyThreshold: defaultRetries}
	if err := s.applyTo(&li, &h); err != nil {
		return err
	}
	if li.Port == 0 {
		return cloudsim.InvalidField("listen_port", "is required for a service of the protocol tcp")
	}
	if findListener(l, li.Port) >= 0 {
		return coded("source_port_already_used", fmt.Sprintf("a service with the listen_port %d exists already", li.Port))
	}
	li.HealthCheck = &h
	l.Listeners = append(l.Listeners, li)
	return nil
}

func findListener(l *cloudsim.LoadBalancer, port int) int {
	return slices.IndexFunc(l.Listeners, func(li cloudsim.Listener) bool { return li.Port == port && li.Protocol == cloudsim.TCP })
}

func errNoService(port int) error {
	return cloudsim.Errorf(cloudsim.NotFound, "the load balancer has no service with the listen_port %d", port)
}

func updateService(l *cloudsim.LoadBalancer, s serviceRequest) error {
	if s.ListenPort == nil {
		return cloudsim.InvalidField("listen_port", "is required")
	}
	i := findListener(l, *s.ListenPort)
	if i < 0 {
		return errNoService(*s.ListenPort)
	}
	h := effectiveCheck(l.LoadBalancerSpec, l.Listeners[i])
	if err := s.applyTo(&l.Listeners[i], &h); err != nil {
		return err
	}
	if s.HealthCheck != nil {
		l.Listeners[i].HealthCheck = &h
	}
	return nil
}

func deleteService(_ *dialect.Request, l *cloudsim.LoadBalancer, in struct {
	ListenPort int `json:"listen_port"`
},
) error {
	i := findListener(l, in.ListenPort)
	if i < 0 {
		return errNoService(in.ListenPort)
	}
	l.Listeners = slices.Delete(l.Listeners, i, i+1)
	return nil
}
