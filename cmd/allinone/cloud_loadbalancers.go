package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

var loadBalancers = kind[cloudsim.LoadBalancer, cloudsim.LoadBalancerID]{
	kind: cloudsim.KindLoadBalancer, noun: "load balancer", plural: "load balancers", command: "load-balancers", prefix: "lb-",
	sample: "shop",
	id:     func(l cloudsim.LoadBalancer) string { return string(l.ID) },
	state:  func(l cloudsim.LoadBalancer) string { return string(l.State) },
	columns: []column[cloudsim.LoadBalancer]{
		{head: "ID", cell: func(l cloudsim.LoadBalancer) string { return string(l.ID) }},
		{head: "NAME", cell: func(l cloudsim.LoadBalancer) string { return l.Name }},
		{head: "STATE", cell: func(l cloudsim.LoadBalancer) string { return string(l.State) }},
		{head: "IP", cell: func(l cloudsim.LoadBalancer) string { return l.IP }},
		{head: "LISTENERS", cell: listenerCell},
		{head: "ENDPOINTS", cell: endpointCell},
		{head: "HEALTHY", cell: healthyCell},
		{head: "TARGETS", wide: true, cell: targetCell},
		{head: "REGION", wide: true, cell: func(l cloudsim.LoadBalancer) string { return l.Region }},
	},
	get:  (*client.Client).GetLoadBalancer,
	list: (*client.Client).ListLoadBalancers,
}

func listenerCell(l cloudsim.LoadBalancer) string {
	var words []string
	for _, li := range l.Listeners {
		words = append(words, fmt.Sprintf("%s:%d:%d", li.Protocol, li.Port, li.TargetPort))
	}
	return strings.Join(words, ",")
}

// endpointCell is where the listeners can be reached, or why not.
func endpointCell(l cloudsim.LoadBalancer) string {
	var words []string
	for _, s := range l.Status.Listeners {
		switch {
		case s.Endpoint != "":
			words = append(words, s.Endpoint)
		case s.Error != "":
			words = append(words, "("+s.Error+")")
		}
	}
	return strings.Join(words, ",")
}

func healthyCell(l cloudsim.LoadBalancer) string {
	healthy := 0
	for _, t := range l.Status.Targets {
		if t.Health == cloudsim.TargetHealthy {
			healthy++
		}
	}
	return fmt.Sprintf("%d/%d", healthy, len(l.Targets))
}

// targetCell is the targets, and of each that is not healthy what it is.
func targetCell(l cloudsim.LoadBalancer) string {
	health := map[cloudsim.InstanceID]cloudsim.TargetHealth{}
	for _, t := range l.Status.Targets {
		health[t.Instance] = t.Health
	}
	var words []string
	for _, t := range l.Targets {
		word := string(t.Instance)
		if h, ok := health[t.Instance]; ok && h != cloudsim.TargetHealthy {
			word += "(" + string(h) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

func newLoadBalancersCommand(c *cloudCLI) *cobra.Command {
	cmd := loadBalancers.group("Addresses that forward to healthy instances", "load-balancer", "lb")
	cmd.AddCommand(
		loadBalancers.listCommand(c),
		loadBalancers.getCommand(c),
		newCreateLoadBalancerCommand(c),
		newUpdateLoadBalancerCommand(c),
		newSetTargetsCommand(c),
		loadBalancers.deleteCommand(c, true, (*client.Client).DeleteLoadBalancer),
	)
	return cmd
}

// specFlags are the flags that say what a load balancer should do.
type specFlags struct {
	listeners, targets, labels []string
	health                     string
	interval, timeout          time.Duration
	healthy, unhealthy         int
}

func (s *specFlags) flags(c *cloudCLI, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&s.listeners, "listener", nil, "`PORT` to listen on and port of the targets, tcp:80:30080; may be repeated")
	f.StringSliceVar(&s.targets, "target", nil, "`INSTANCE` that takes connections; may be repeated")
	f.StringArrayVar(&s.labels, "label", nil, "`KEY=VALUE` to label it with; may be repeated")
	f.StringVar(&s.health, "health", "", "`PROBE` of the targets, http:10256/healthz or tcp:30080 (default tcp to the first listener's target port)")
	f.DurationVar(&s.interval, "health-interval", 0, "time between two probes (default 2s)")
	f.DurationVar(&s.timeout, "health-timeout", 0, "time a probe may take (default 1s)")
	f.IntVar(&s.healthy, "healthy-after", 0, "good probes in a row that make a target healthy (default 1)")
	f.IntVar(&s.unhealthy, "unhealthy-after", 0, "bad probes in a row that make a target unhealthy (default 2)")
	_ = cmd.RegisterFlagCompletionFunc("target", names(c, instances))
}

// apply writes the flags that were given over labels and spec.
func (s *specFlags) apply(ctx context.Context, cl *client.Client, given func(string) bool, labels map[string]string, spec *cloudsim.LoadBalancerSpec) (err error) {
	if given("listener") {
		if spec.Listeners, err = parseListeners(s.listeners); err != nil {
			return err
		}
	}
	if given("target") {
		if spec.Targets, err = findTargets(ctx, cl, s.targets); err != nil {
			return err
		}
	}
	more, err := parseLabels("label", s.labels)
	if err != nil {
		return err
	}
	maps.Copy(labels, more)
	return s.applyHealth(given, &spec.HealthCheck)
}

func (s *specFlags) applyHealth(given func(string) bool, h *cloudsim.HealthCheck) (err error) {
	if given("health") {
		if err := parseHealth(s.health, h); err != nil {
			return err
		}
	}
	if given("health-interval") {
		if h.IntervalMillis, err = millis("health-interval", s.interval); err != nil {
			return err
		}
	}
	if given("health-timeout") {
		if h.TimeoutMillis, err = millis("health-timeout", s.timeout); err != nil {
			return err
		}
	}
	if given("healthy-after") {
		h.HealthyThreshold = s.healthy
	}
	if given("unhealthy-after") {
		h.UnhealthyThreshold = s.unhealthy
	}
	return nil
}

func findTargets(ctx context.Context, cl *client.Client, namesOrIDs []string) ([]cloudsim.Target, error) {
	found, err := instances.resolveAll(ctx, cl, namesOrIDs)
	if err != nil {
		return nil, err
	}
	targets := make([]cloudsim.Target, len(found))
	for n, i := range found {
		targets[n].Instance = i.ID
	}
	return targets, nil
}

func newCreateLoadBalancerCommand(c *cloudCLI) *cobra.Command {
	var (
		o       output
		w       waiting
		s       specFlags
		address string
		req     cloudsim.CreateLoadBalancer
	)
	cmd := &cobra.Command{
		Use: "create NAME --listener PORT", Short: "Create a load balancer",
		Long: `Create a load balancer. Its address is in the answer; it forwards when it is
active, to the targets that are healthy. Asking again with the same words
returns the first one.`,
		Example: `  allinone cloud load-balancers create shop --listener tcp:80:30080 --target node-1 --target node-2
  allinone cloud load-balancers create shop --listener 80:30080 --health http:10256/healthz --address shop --wait`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = c.run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
		req.Name = args[0]
		req.Labels = map[string]string{}
		req.HealthCheck.Protocol = cloudsim.HealthTCP
		if err := s.apply(ctx, cl, cmd.Flags().Changed, req.Labels, &req.LoadBalancerSpec); err != nil {
			return err
		}
		if req.Region, err = regions.theOnly(ctx, cl, "region", req.Region); err != nil {
			return err
		}
		if req.IP, err = findIP(ctx, cl, address); err != nil {
			return err
		}
		if err := req.Validate(); err != nil {
			return err
		}
		made, err := cl.CreateLoadBalancer(ctx, req)
		if err != nil {
			return err
		}
		return showLoadBalancer(ctx, c, cl, o, w, made)
	})
	o.flags(cmd)
	w.flags(cmd)
	s.flags(c, cmd)
	f := cmd.Flags()
	f.StringVar(&req.Region, "region", "", "region to stand in (default the only one)")
	f.StringVar(&address, "address", "", "reserved `ADDRESS` to stand on, by name, id or IP (default a new one)")
	_ = cmd.RegisterFlagCompletionFunc("region", names(c, regions))
	_ = cmd.RegisterFlagCompletionFunc("address", names(c, addresses))
	return cmd
}

func showLoadBalancer(ctx context.Context, c *cloudCLI, cl *client.Client, o output, w waiting, l cloudsim.LoadBalancer) error {
	now, err := settle(ctx, c, cl, w, loadBalancers, []cloudsim.LoadBalancer{l})
	return errors.Join(printResult(loadBalancers.printer(c, o), true, now), err)
}

// findIP is the IP of a reserved address.
func findIP(ctx context.Context, cl *client.Client, address string) (string, error) {
	if _, err := netip.ParseAddr(address); err == nil || address == "" {
		return address, nil
	}
	a, err := addresses.resolve(ctx, cl, address)
	return a.IP, err
}

// staleTries is how often an update begins anew because somebody else, or the
// data plane's report, came first.
const staleTries = 10

func newUpdateLoadBalancerCommand(c *cloudCLI) *cobra.Command {
	var (
		o      output
		w      waiting
		s      specFlags
		remove []string
	)
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change what a load balancer does",
		Long: `Change what a load balancer does. What no flag names stays as it is; --listener
and --target replace all listeners and all targets. It forwards all the while.`,
		Example: `  allinone cloud load-balancers update shop --listener tcp:80:30081
  allinone cloud load-balancers update shop --health http:10256/healthz --label team=shop --remove-label old`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: firstOnly(names(c, loadBalancers)),
	}
	cmd.RunE = c.run(func(ctx context.Context, cl *client.Client, args []string) error {
		found, err := loadBalancers.resolve(ctx, cl, args[0])
		if err != nil {
			return err
		}
		changed, err := s.update(ctx, cl, cmd.Flags().Changed, found, remove)
		if err != nil {
			return err
		}
		return showLoadBalancer(ctx, c, cl, o, w, changed)
	})
	o.flags(cmd)
	w.flags(cmd)
	s.flags(c, cmd)
	cmd.Flags().StringArrayVar(&remove, "remove-label", nil, "take the label with this `KEY` away; may be repeated")
	return cmd
}

// update changes l by the flags, from what it is now: when it is no longer what
// it was, it is read again.
func (s *specFlags) update(ctx context.Context, cl *client.Client, given func(string) bool, l cloudsim.LoadBalancer, remove []string) (cloudsim.LoadBalancer, error) {
	for range staleTries {
		req := cloudsim.UpdateLoadBalancer{Labels: map[string]string{}, LoadBalancerSpec: l.LoadBalancerSpec}
		maps.Copy(req.Labels, l.Labels)
		if err := s.apply(ctx, cl, given, req.Labels, &req.LoadBalancerSpec); err != nil {
			return l, err
		}
		for _, key := range remove {
			delete(req.Labels, key)
		}
		if err := req.Validate(); err != nil {
			return l, err
		}
		changed, err := cl.UpdateLoadBalancer(ctx, l.ID, req, l.Revision)
		if !errors.Is(err, cloudsim.Stale) {
			return changed, err
		}
		if l, err = cl.GetLoadBalancer(ctx, l.ID); err != nil {
			return l, err
		}
	}
	return l, cloudsim.Errorf(cloudsim.Stale, "load balancer %s changes all the time: gave up after %d tries", l.ID, staleTries)
}

func newSetTargetsCommand(c *cloudCLI) *cobra.Command {
	var (
		o       output
		w       waiting
		targets []string
		none    bool
	)
	cmd := &cobra.Command{
		Use: "set-targets NAME", Short: "Replace the targets of a load balancer",
		Example: `  allinone cloud load-balancers set-targets shop --target node-1 --target node-2
  allinone cloud load-balancers set-targets shop --none`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: firstOnly(names(c, loadBalancers)),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			if none == (len(targets) > 0) {
				return cloudsim.Errorf(cloudsim.Invalid, "want --target, once or more, or --none")
			}
			l, err := loadBalancers.resolve(ctx, cl, args[0])
			if err != nil {
				return err
			}
			found, err := findTargets(ctx, cl, targets)
			if err != nil {
				return err
			}
			changed, err := cl.SetLoadBalancerTargets(ctx, l.ID, cloudsim.SetTargets{Targets: found})
			if err != nil {
				return err
			}
			return showLoadBalancer(ctx, c, cl, o, w, changed)
		}),
	}
	o.flags(cmd)
	w.flags(cmd)
	cmd.Flags().StringSliceVar(&targets, "target", nil, "`INSTANCE` that takes connections; may be repeated")
	cmd.Flags().BoolVar(&none, "none", false, "leave it without targets")
	_ = cmd.RegisterFlagCompletionFunc("target", names(c, instances))
	return cmd
}
