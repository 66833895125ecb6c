package cloudcli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

type specFlags struct {
	listeners, targets, labels, sources []string
	listenerTargets, listenerHealth     []string
	families, addresses                 []string
	health, codes, affinity             string
	interval, timeout, sticky, drain    time.Duration
	healthy, unhealthy                  int
}

func (s *specFlags) flags(c *cli.Connection, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&s.listeners, "listener", nil, "listener, as `[PROTOCOL:]PORT:TARGET-PORT`, such as tcp:80:30080, or with options, such as udp:53:30053:idle-timeout=1m; may be repeated. Options: "+strings.Join(listenerOptions, ", "))
	f.StringSliceVar(&s.targets, "target", nil, "target `INSTANCE`, such as node-1, with a weight, such as node-1=3, or with an address of a pod, such as node-1/10.244.0.7; may be repeated")
	f.StringArrayVar(&s.listenerTargets, "listener-target", nil, "target of only one listener, as `PORT=INSTANCE`, such as 443=node-1, udp/53=node-1=3, or 443= for no targets; may be repeated")
	f.StringArrayVar(&s.listenerHealth, "listener-health", nil, "health check of only one listener, as `PORT=PROBE`, such as 443=http:10256/healthz; may be repeated. All other settings are copied from the load balancer's health check")
	f.StringArrayVar(&s.labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringVar(&s.health, "health", "", "health check `PROBE`, such as http:10256/healthz, https/, tcp:30080 or none (default tcp, to the target port of the first TCP listener)")
	f.StringVar(&s.codes, "health-codes", "", "HTTP `STATUSES` of healthy targets, such as 200-299,401 (default 200)")
	f.DurationVar(&s.interval, "health-interval", 0, "time between two probes (default 2s)")
	f.DurationVar(&s.timeout, "health-timeout", 0, "time limit of a probe (default 1s)")
	f.IntVar(&s.healthy, "healthy-after", 0, "number of successful probes in a row after which a target is healthy (default 1)")
	f.IntVar(&s.unhealthy, "unhealthy-after", 0, "number of failed probes in a row after which a target is unhealthy (default 2)")
	f.StringSliceVar(&s.families, "family", nil, "IP families of the addresses: ipv4, ipv6, or ipv4,ipv6 (default ipv4, or the families of --address)")
	f.StringSliceVar(&s.addresses, "address", nil, "reserved `ADDRESS` (name, id or IP), at most one for each family (default a new address)")
	f.StringSliceVar(&s.sources, "source-range", nil, "`RANGE` of clients that may connect, such as 10.0.0.0/8; may be repeated; empty for all clients")
	f.StringVar(&s.affinity, "affinity", "", "session affinity: clientIP (all connections of a client go to the same target) or none (default none)")
	f.DurationVar(&s.sticky, "affinity-timeout", 0, "time for which the load balancer remembers the target of a client after the start or end of the client's last connection (default 3h)")
	f.DurationVar(&s.drain, "drain-timeout", 0, "time for which connections stay open after the removal of their target or listener; 0 closes them at once (default 30s)")
	_ = cmd.RegisterFlagCompletionFunc("address", completeNames(c, addresses))
	_ = cmd.RegisterFlagCompletionFunc("family", cli.Fixed(cloudsim.IPv4, cloudsim.IPv6))
	_ = cmd.RegisterFlagCompletionFunc("affinity", cli.Fixed(cloudsim.AffinityNone, cloudsim.AffinityClientIP))
	_ = cmd.RegisterFlagCompletionFunc("target", completeNames(c, instances))
}

// applyTo writes the values of the flags on the command line into labels and spec. The function
// isSet reports whether the command line contains a flag.
func (s *specFlags) applyTo(ctx context.Context, cl *client.Client, isSet func(string) bool, labels map[string]string, spec *cloudsim.LoadBalancerSpec) (err error) {
	if isSet("listener") {
		if spec.Listeners, err = parseListeners(s.listeners); err != nil {
			return err
		}
	}
	if isSet("target") {
		if spec.Targets, err = findTargets(ctx, cl, "target", "", s.targets); err != nil {
			return err
		}
	}
	if err := s.applyRules(isSet, spec); err != nil {
		return err
	}
	more, err := cli.ParseLabels("label", s.labels)
	if err != nil {
		return err
	}
	maps.Copy(labels, more)
	if err := s.applyHealth(isSet, &spec.HealthCheck); err != nil {
		return err
	}
	return s.applyListeners(ctx, cl, spec)
}

// applyListeners writes the values of --listener-target and --listener-health into spec.
func (s *specFlags) applyListeners(ctx context.Context, cl *client.Client, spec *cloudsim.LoadBalancerSpec) error {
	spec.Listeners = slices.Clone(spec.Listeners)
	values := map[*cloudsim.Listener][]string{} // for each listener, the targets of --listener-target
	for _, w := range s.listenerTargets {
		l, target, err := findListener("listener-target", w, "[tcp/|udp/]PORT=INSTANCE, e.g. 443=node-1", spec.Listeners)
		if err != nil {
			return err
		}
		values[l] = append(values[l], target)
	}
	for i := range spec.Listeners {
		l := &spec.Listeners[i]
		targets, ok := values[l]
		if !ok {
			continue
		}
		found, err := findTargets(ctx, cl, "listener-target", l.Key()+"=", slices.DeleteFunc(targets, func(w string) bool { return w == "" }))
		if err != nil {
			return err
		}
		l.Targets = append([]cloudsim.Target{}, found...)
	}
	for _, w := range s.listenerHealth {
		l, probe, err := findListener("listener-health", w, "[tcp/|udp/]PORT=PROBE, e.g. 443=http:10256/healthz", spec.Listeners)
		if err != nil {
			return err
		}
		h := spec.HealthCheck
		if err := parseHealth(probe, &h); err != nil {
			return err
		}
		l.HealthCheck = &h
	}
	return nil
}

// findListener parses the text [PROTOCOL/]PORT=VALUE. The default protocol is tcp. It returns the
// value, and a pointer to the element of listeners with this protocol and port.
func findListener(flag, word, form string, listeners []cloudsim.Listener) (*cloudsim.Listener, string, error) {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return nil, "", cli.BadFlag(flag, word, form)
	}
	if !strings.Contains(key, "/") {
		key = string(cloudsim.TCP) + "/" + key
	}
	at := slices.IndexFunc(listeners, func(l cloudsim.Listener) bool { return l.Key() == strings.ToLower(key) })
	if at < 0 {
		return nil, "", cli.BadFlag(flag, word, "the port of a listener of the load balancer")
	}
	return &listeners[at], value, nil
}

// applyRules writes the values of the flags for source ranges, affinity and timeouts into spec.
func (s *specFlags) applyRules(isSet func(string) bool, spec *cloudsim.LoadBalancerSpec) (err error) {
	if isSet("source-range") {
		spec.SourceRanges = slices.DeleteFunc(slices.Clone(s.sources), func(r string) bool { return r == "" })
	}
	if isSet("affinity") {
		spec.Affinity = cloudsim.Affinity(s.affinity)
		if spec.Affinity != cloudsim.AffinityClientIP {
			spec.AffinityTimeoutSeconds = 0
		}
	}
	if isSet("affinity-timeout") {
		if spec.AffinityTimeoutSeconds, err = wholeSeconds("affinity-timeout", s.sticky); err != nil {
			return err
		}
	}
	if isSet("drain-timeout") {
		if spec.DrainTimeoutSeconds = -1; s.drain != 0 {
			spec.DrainTimeoutSeconds, err = wholeSeconds("drain-timeout", s.drain)
		}
	}
	return err
}

func (s *specFlags) familyList() []cloudsim.IPFamily {
	var all []cloudsim.IPFamily
	for _, f := range s.families {
		all = append(all, cloudsim.IPFamily(strings.ToLower(f)))
	}
	return all
}

func (s *specFlags) applyHealth(isSet func(string) bool, h *cloudsim.HealthCheck) (err error) {
	if isSet("health") {
		if err := parseHealth(s.health, h); err != nil {
			return err
		}
	}
	if isSet("health-codes") {
		h.ExpectedCodes = s.codes
	}
	if isSet("health-interval") {
		if h.IntervalMillis, err = toMillis("health-interval", s.interval); err != nil {
			return err
		}
	}
	if isSet("health-timeout") {
		if h.TimeoutMillis, err = toMillis("health-timeout", s.timeout); err != nil {
			return err
		}
	}
	if isSet("healthy-after") {
		h.HealthyThreshold = s.healthy
	}
	if isSet("unhealthy-after") {
		h.UnhealthyThreshold = s.unhealthy
	}
	return nil
}

// findTargets converts the values of the given flag to targets. Each element of words is one value
// in the form INSTANCE or INSTANCE/IP. A value may end with =WEIGHT. If several values name the
// same target, the result contains this target once. If the weights of these values differ,
// findTargets returns an error. The error contains the flag, and each word with the prefix.
func findTargets(ctx context.Context, cl *client.Client, flag, prefix string, words []string) ([]cloudsim.Target, error) {
	var targets []cloudsim.Target
	var errs []error
	for _, w := range words {
		var t cloudsim.Target
		place, weight, weighted := strings.Cut(w, "=")
		called, ip, _ := strings.Cut(place, "/")
		if weighted {
			var err error
			if t.Weight, err = strconv.Atoi(weight); err != nil || t.Weight < 1 {
				return nil, cli.BadFlag(flag, prefix+w, prefix+"INSTANCE or "+prefix+"INSTANCE/IP, and =WEIGHT, e.g. "+prefix+"node-1=3")
			}
		}
		i, err := instances.findResource(ctx, cl, called)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.Instance, t.IP = i.ID, ip
		same := slices.IndexFunc(targets, func(have cloudsim.Target) bool { return have.Key() == t.Key() })
		switch {
		case same < 0:
			targets = append(targets, t)
		case targets[same].Share() != t.Share():
			return nil, cli.BadFlag(flag, prefix+w, "the same weight as in the other --"+flag+" of "+place)
		}
	}
	return targets, cloudsim.OneOrMany(errs)
}
