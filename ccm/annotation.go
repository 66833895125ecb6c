package ccm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These annotations of a Service configure its load balancer. The annotation
// for addresses replaces the field spec.loadBalancerIP, which Kubernetes has
// deprecated. If a Service sets both the field and the annotation, the
// addresses in the annotation must include the address in the field. The other
// annotations with the prefix annotationPrefix have no corresponding field in
// the Service.
const (
	annotationPrefix = "cloudsim.dev/load-balancer-"

	AnnotationLoadBalancerIP           = annotationPrefix + "ip"
	AnnotationLoadBalancerScheme       = annotationPrefix + "scheme"
	AnnotationLoadBalancerShared       = annotationPrefix + "shared"
	AnnotationLoadBalancerNodeSelector = annotationPrefix + "node-selector"
	AnnotationLoadBalancerIPMode       = annotationPrefix + "ip-mode"
)

// Annotation describes an annotation of Services, for the generated reference.
type Annotation struct {
	Key     string
	Takes   string // the allowed values
	Default string
	Doc     string

	set func(desired *cloudsim.CreateLoadBalancer, value string) error // nil if other code reads the annotation
}

// Annotations returns all annotations, in the order of the generated reference.
// applyAnnotations applies them in the same order. proxy-protocol must follow
// ip-mode, because proxy-protocol overwrites the mode that ip-mode sets.
// health-check-path must follow health-check-protocol. Otherwise the default
// path of the protocol would overwrite the path.
func Annotations() []Annotation {
	return []Annotation{
		{Key: AnnotationLoadBalancerIP, Takes: "one address, or an IPv4 and an IPv6 address separated by a comma", Default: "the cloud chooses", Doc: "Use these reserved addresses of the cloud. They stay reserved when the Service is deleted."},
		{Key: AnnotationLoadBalancerScheme, Takes: "external or internal", Default: "external", Doc: "Address range of the load balancer: external or internal. The scheme does not restrict the clients. The value cannot be changed later.", set: setScheme},
		{Key: AnnotationLoadBalancerShared, Takes: "a name", Default: "none", Doc: "Share one load balancer and its addresses with the Services of this namespace that have the same value of this annotation. Their ports must differ. These settings must be equal: scheme, addresses, IP families, health check, source ranges, session affinity and drain timeout. externalTrafficPolicy must be Cluster. The value cannot be changed later."},
		{Key: AnnotationLoadBalancerNodeSelector, Takes: "a label selector", Default: "all nodes", Doc: "Send traffic only to nodes with these labels. Changed labels of nodes take effect at once."},
		{Key: AnnotationLoadBalancerIPMode, Takes: "VIP or Proxy", Default: "loadBalancerIPMode of the configuration", Doc: "Path of connections from pods of the cluster: directly to the Service's pods (VIP) or through the load balancer (Proxy); KEP-1860.", set: setIPMode},
		{Key: annotationPrefix + "proxy-protocol", Takes: "v1 or v2", Default: "none", Doc: "Send a PROXY protocol header on every TCP connection, so that pods learn the client's address. This annotation implies the IP mode Proxy.", set: setProxyProtocol},
		{Key: annotationPrefix + "idle-timeout", Takes: "a duration of whole seconds", Default: "350s for TCP, 120s for UDP", Doc: "Idle time after which a connection is reset or a UDP flow ends.", set: setIdleTimeout},
		{Key: annotationPrefix + "max-connections", Takes: "a number", Default: "10000", Doc: "Limit of open connections of each port; further connections are refused.", set: number(1000000, func(w *cloudsim.CreateLoadBalancer, n int) {
			for i := range w.Listeners {
				w.Listeners[i].MaxConnections = n
			}
		})},
		{Key: annotationPrefix + "drain-timeout", Takes: "a duration of whole seconds", Default: "30s", Doc: "Time for which open connections continue after the removal of their target; 0s resets the connections at once.", set: setDrainTimeout},
		{Key: annotationPrefix + "health-check-protocol", Takes: "http, https or tcp", Default: "http; if the targets are pods: tcp, or no health check for a Service with only UDP ports", Doc: "Protocol of the health checks. With externalTrafficPolicy Local, use http: kube-proxy's HTTP answer at healthCheckNodePort shows whether the node has a pod of the Service.", set: setHealthProtocol},
		{Key: annotationPrefix + "health-check-port", Takes: "a port", Default: "10256, the port of kube-proxy; healthCheckNodePort with externalTrafficPolicy Local; the target port of the first TCP port if the targets are pods", Doc: "Port of the health checks.", set: number(65535, func(w *cloudsim.CreateLoadBalancer, n int) { w.HealthCheck.Port = n })},
		{Key: annotationPrefix + "health-check-path", Takes: "a path", Default: "/healthz", Doc: "Path of the health check over http or https.", set: setHealthPath},
		{Key: annotationPrefix + "health-check-interval", Takes: "a duration", Default: "2s", Doc: "The time between two probes of a target.", set: millis(300_000, func(w *cloudsim.CreateLoadBalancer, n int) { w.HealthCheck.IntervalMillis = n })},
		{Key: annotationPrefix + "health-check-timeout", Takes: "a duration", Default: "1s", Doc: "Time limit of a probe.", set: millis(60_000, func(w *cloudsim.CreateLoadBalancer, n int) { w.HealthCheck.TimeoutMillis = n })},
		{Key: annotationPrefix + "healthy-threshold", Takes: "1 to 10", Default: "1", Doc: "Successful probes in a row after which a target gets traffic.", set: number(10, func(w *cloudsim.CreateLoadBalancer, n int) { w.HealthCheck.HealthyThreshold = n })},
		{Key: annotationPrefix + "unhealthy-threshold", Takes: "1 to 10", Default: "2", Doc: "Failed probes in a row after which a target gets no traffic.", set: number(10, func(w *cloudsim.CreateLoadBalancer, n int) { w.HealthCheck.UnhealthyThreshold = n })},
		{Key: v1.AnnotationLoadBalancerSourceRangesKey, Takes: "CIDRs, separated by commas", Default: "all clients", Doc: "Source ranges of permitted clients, if spec.loadBalancerSourceRanges is empty."},
	}
}

// applyAnnotations applies the Service's annotations to the desired load balancer. It returns an
// error for an unknown annotation with the prefix annotationPrefix, because the key is probably
// misspelled. Without this error, the annotation would silently have no effect.
func applyAnnotations(desired *cloudsim.CreateLoadBalancer, svc *v1.Service) error {
	var bad []error
	known := map[string]bool{}
	for _, a := range Annotations() {
		known[a.Key] = true
		value, given := svc.Annotations[a.Key]
		if !given || a.set == nil {
			continue
		}
		if err := a.set(desired, strings.TrimSpace(value)); err != nil {
			bad = append(bad, fmt.Errorf("annotation %s must be %s: %w, got %q", a.Key, a.Takes, err, truncate(value)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Annotations)) { // the same annotations always cause the same error
		if strings.HasPrefix(key, annotationPrefix) && !known[key] {
			bad = append(bad, fmt.Errorf("annotation %s is not known: correct its name, or remove it", key))
		}
	}
	return errors.Join(bad...)
}

// truncate shortens text from a Service for use in an error. An annotation may have
// a length of 256 KiB. Events and conditions allow only much shorter texts.
func truncate(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// shortenError shortens an error that may contain long text from a Service.
func shortenError(err error) error {
	const most = 300
	if s := err.Error(); len(s) > most {
		return errors.New(strings.ToValidUTF8(s[:most], "") + "…")
	}
	return err
}

var errNotAllowed = errors.New("this value is not allowed")

func setScheme(w *cloudsim.CreateLoadBalancer, v string) error {
	w.Scheme = cloudsim.Scheme(v)
	if w.Scheme != cloudsim.SchemeExternal && w.Scheme != cloudsim.SchemeInternal {
		return errNotAllowed
	}
	return nil
}

var listenerModes = map[v1.LoadBalancerIPMode]cloudsim.ListenerMode{
	v1.LoadBalancerIPModeVIP:   cloudsim.ModeVIP,
	v1.LoadBalancerIPModeProxy: cloudsim.ModeProxy,
}

func setIPMode(w *cloudsim.CreateLoadBalancer, v string) error {
	mode, ok := listenerModes[v1.LoadBalancerIPMode(v)]
	if !ok {
		return errNotAllowed
	}
	for i := range w.Listeners {
		w.Listeners[i].Mode = mode
	}
	return nil
}

// setProxyProtocol sets the version of the PROXY protocol for all TCP listeners. setProxyProtocol
// also sets the mode Proxy for all listeners, so it must run after setIPMode. With the mode VIP,
// kube-proxy would send connections from inside the cluster directly to the pods, without the
// header of the PROXY protocol.
func setProxyProtocol(w *cloudsim.CreateLoadBalancer, v string) error {
	p := cloudsim.ProxyProtocol(v)
	if p != cloudsim.ProxyV1 && p != cloudsim.ProxyV2 {
		return errNotAllowed
	}
	for i, l := range w.Listeners {
		if l.Protocol == cloudsim.TCP {
			w.Listeners[i].ProxyProtocol = p
		}
		w.Listeners[i].Mode = cloudsim.ModeProxy
	}
	return nil
}

func setIdleTimeout(w *cloudsim.CreateLoadBalancer, v string) error {
	n, err := seconds(v, 1, 86400)
	for i := range w.Listeners {
		w.Listeners[i].IdleTimeoutSeconds = n
	}
	return err
}

func setDrainTimeout(w *cloudsim.CreateLoadBalancer, v string) error {
	n, err := seconds(v, 0, 3600)
	if w.DrainTimeoutSeconds = n; n == 0 {
		w.DrainTimeoutSeconds = -1 // means "at once" in the cloud's API
	}
	return err
}

func setHealthProtocol(w *cloudsim.CreateLoadBalancer, v string) error {
	w.HealthCheck.Protocol = cloudsim.HealthProtocol(v)
	switch w.HealthCheck.Protocol {
	case cloudsim.HealthTCP:
		w.HealthCheck.Path = ""
	case cloudsim.HealthHTTP, cloudsim.HealthHTTPS:
		w.HealthCheck.Path = probePath
	default:
		return errNotAllowed
	}
	return nil
}

func setHealthPath(w *cloudsim.CreateLoadBalancer, v string) error {
	if w.HealthCheck.Path = v; !strings.HasPrefix(v, "/") {
		return errors.New("a path begins with /")
	}
	return nil
}

func number(most int, set func(*cloudsim.CreateLoadBalancer, int)) func(*cloudsim.CreateLoadBalancer, string) error {
	return func(w *cloudsim.CreateLoadBalancer, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("between 1 and %d", most)
		}
		set(w, n)
		return nil
	}
}

func millis(most int, set func(*cloudsim.CreateLoadBalancer, int)) func(*cloudsim.CreateLoadBalancer, string) error {
	return func(w *cloudsim.CreateLoadBalancer, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Millisecond || d > time.Duration(most)*time.Millisecond || d%time.Millisecond != 0 {
			return fmt.Errorf("like 1500ms or 2s, at most %s", time.Duration(most)*time.Millisecond)
		}
		set(w, int(d.Milliseconds()))
		return nil
	}
}

func seconds(v string, least, most int) (int, error) {
	d, err := time.ParseDuration(v)
	if n := int(d / time.Second); err == nil && d%time.Second == 0 && n >= least && n <= most {
		return n, nil
	}
	return 0, fmt.Errorf("like 90s or 5m, between %ds and %ds", least, most)
}

// nodeSelector returns the selector of the nodes that may be targets of the
// Service's load balancer. If the Service does not have the annotation for a
// node selector, the result selects all nodes.
func nodeSelector(svc *v1.Service) (labels.Selector, error) {
	value, given := svc.Annotations[AnnotationLoadBalancerNodeSelector]
	if !given {
		return labels.Everything(), nil
	}
	s, err := labels.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationLoadBalancerNodeSelector, shortenError(err))
	}
	return s, nil
}
