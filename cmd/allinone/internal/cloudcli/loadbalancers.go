package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var loadBalancers = kind[cloudsim.LoadBalancer, cloudsim.LoadBalancerID]{
	kind: cloudsim.KindLoadBalancer, noun: "load balancer", plural: "load balancers", command: "load-balancers", prefix: "lb-",
	sample: "shop",
	id:     func(l cloudsim.LoadBalancer) string { return string(l.ID) },
	state:  func(l cloudsim.LoadBalancer) string { return string(l.State) },
	columns: []cli.Column[cloudsim.LoadBalancer]{
		{Head: "ID", Cell: func(l cloudsim.LoadBalancer) string { return string(l.ID) }},
		{Head: "NAME", Cell: func(l cloudsim.LoadBalancer) string { return l.Name }},
		{Head: "STATE", Cell: func(l cloudsim.LoadBalancer) string { return string(l.State) }},
		{Head: "IP", Cell: ipCell},
		{Head: "LISTENERS", Cell: listenerCell},
		{Head: "ENDPOINTS", Cell: endpointCell},
		{Head: "HEALTHY", Cell: healthyCell},
		{Head: "TARGETS", Wide: true, Cell: targetCell},
		{Head: "PUBLISHED", Wide: true, Cell: publishedCell},
		{Head: "SCHEME", Wide: true, Cell: func(l cloudsim.LoadBalancer) string { return string(l.Scheme) }},
		{Head: "REGION", Wide: true, Cell: func(l cloudsim.LoadBalancer) string { return l.Region }},
	},
	get:  (*client.Client).GetLoadBalancer,
	list: (*client.Client).ListLoadBalancers,
}

func ipCell(l cloudsim.LoadBalancer) string {
	var words []string
	for _, a := range l.Addresses {
		words = append(words, a.IP)
	}
	return strings.Join(words, ",")
}

// publishedCell returns the addresses at which the cloud's host publishes the listeners.
func publishedCell(l cloudsim.LoadBalancer) string {
	var words []string
	for _, p := range l.Published {
		words = append(words, fmt.Sprintf("%s:%d=%s", p.Protocol, p.Port, net.JoinHostPort(p.Host, strconv.Itoa(p.PublishedPort))))
	}
	return strings.Join(words, ",")
}

func listenerCell(l cloudsim.LoadBalancer) string {
	var words []string
	for _, li := range l.Listeners {
		words = append(words, fmt.Sprintf("%s:%d:%d", li.Protocol, li.Port, li.TargetPort))
	}
	return strings.Join(words, ",")
}

// endpointCell returns the endpoint of each listener, or the error of a listener without an
// endpoint.
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
	healthy, all := 0, 0
	for _, p := range l.Pools() {
		all += len(p.Targets)
	}
	for _, t := range l.Status.Targets {
		if t.Health == cloudsim.TargetHealthy {
			healthy++
		}
	}
	return fmt.Sprintf("%d/%d", healthy, all)
}

// targetCell returns the targets, with the health of each target that is not healthy.
func targetCell(l cloudsim.LoadBalancer) string {
	health := map[cloudsim.TargetKey]cloudsim.TargetHealth{}
	for _, t := range l.Status.Targets {
		health[t.Key()] = t.Health
	}
	var words []string
	for _, p := range l.Pools() {
		for _, key := range p.Keys() {
			word := key.String()
			if h, ok := health[key]; ok && h != cloudsim.TargetHealthy {
				word += "(" + string(h) + ")"
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

func newLoadBalancersCommand(c *cli.Connection) *cobra.Command {
	cmd := loadBalancers.groupCommand("Manage load balancers, which forward connections to healthy instances", "load-balancer", "lb")
	cmd.AddCommand(
		loadBalancers.listCommand(c),
		loadBalancers.getCommand(c),
		newCreateLoadBalancerCommand(c),
		newUpdateLoadBalancerCommand(c),
		newSetTargetsCommand(c),
		newLoadBalancerStatsCommand(c),
		loadBalancers.deleteCommand(c, true, (*client.Client).DeleteLoadBalancer),
	)
	return cmd
}

func newCreateLoadBalancerCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		s      specFlags
		scheme string
		req    cloudsim.CreateLoadBalancer
	)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a load balancer",
		Long: `Create a load balancer. The answer contains its address. The load balancer forwards to
the healthy targets as soon as it is active. Without --listener, it has an address, but
accepts no connections until an update adds a listener. The same command again returns
the existing load balancer.`,
		Example: `  allinone cloud load-balancers create shop --listener tcp:80:30080 --target node-1 --target node-2
  allinone cloud load-balancers create shop --listener 80:30080 --health http:10256/healthz --address shop --wait
  allinone cloud load-balancers create dns --listener udp:53:30053 --listener tcp:53:30053 --family ipv4,ipv6 --target node-1=3,node-2
  allinone cloud load-balancers create two --listener 80:30080 --listener 443:30443 --target node-1 --listener-target 443=node-2 --listener-health 443=http:10256/healthz
  allinone cloud load-balancers create inside --scheme internal --listener 443:30443:proxy-protocol=v2 --source-range 10.0.0.0/8`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
		req.Name = args[0]
		req.Labels = map[string]string{}
		req.HealthCheck.Protocol = cloudsim.HealthTCP
		if err := s.applyTo(ctx, cl, cmd.Flags().Changed, req.Labels, &req.LoadBalancerSpec); err != nil {
			return err
		}
		if req.Region, err = regions.theOnly(ctx, cl, "region", req.Region); err != nil {
			return err
		}
		req.Scheme = cloudsim.Scheme(scheme)
		req.Families = s.familyList()
		if req.Addresses, err = findIPs(ctx, cl, s.addresses); err != nil {
			return err
		}
		made, err := cl.CreateLoadBalancer(ctx, req)
		return loadBalancers.show(ctx, c, cl, o, w, made, err)
	})
	o.Flags(cmd)
	w.flags(cmd)
	s.flags(c, cmd)
	f := cmd.Flags()
	f.StringVar(&req.Region, "region", "", "region of the load balancer (default the only region)")
	f.StringVar(&scheme, "scheme", "", "scheme: external or internal (default external)")
	_ = cmd.RegisterFlagCompletionFunc("region", completeNames(c, regions))
	_ = cmd.RegisterFlagCompletionFunc("scheme", cli.Fixed(cloudsim.SchemeExternal, cloudsim.SchemeInternal))
	return cmd
}

// findIPs returns the IPs of reserved addresses. Each element of namesOrIPs is the name,
// the id or the IP of an address.
func findIPs(ctx context.Context, cl *client.Client, namesOrIPs []string) ([]string, error) {
	var ips []string
	for _, word := range namesOrIPs {
		if _, err := netip.ParseAddr(word); err != nil {
			a, err := addresses.findResource(ctx, cl, word)
			if err != nil {
				return nil, err
			}
			word = a.IP
		}
		ips = append(ips, word)
	}
	return ips, nil
}

// staleTries is the largest number of attempts of an update. An attempt fails if another caller
// or a report of the data plane changes the object at the same time.
const staleTries = 10

func newUpdateLoadBalancerCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		s      specFlags
		remove []string
	)
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change a load balancer",
		Long: `Change a load balancer. Settings without a flag stay unchanged. --listener, --target
and --source-range replace all present values. --listener '' removes all listeners.
--listener also removes the listeners' own targets and health checks. The load balancer
keeps forwarding.
--family ipv4,ipv6 adds an IPv6 address, and --family ipv4 removes it.`,
		Example: `  allinone cloud load-balancers update shop --listener tcp:80:30081
  allinone cloud load-balancers update shop --health http:10256/healthz --label team=shop --remove-label old
  allinone cloud load-balancers update shop --affinity clientIP --affinity-timeout 1h --source-range 127.0.0.0/8`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, loadBalancers)),
	}
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
		found, err := loadBalancers.findResource(ctx, cl, args[0])
		if err != nil {
			return err
		}
		changed, err := s.update(ctx, cl, cmd.Flags().Changed, found, remove)
		return loadBalancers.show(ctx, c, cl, o, w, changed, err)
	})
	o.Flags(cmd)
	w.flags(cmd)
	s.flags(c, cmd)
	cmd.Flags().StringArrayVar(&remove, "remove-label", nil, "`KEY` of a label to remove; may be repeated")
	return cmd
}

// update changes the load balancer l according to the flags. The function isSet reports whether the
// command line contains a flag. If another caller has changed l in the cloud, the method reads l
// again and repeats the change.
func (s *specFlags) update(ctx context.Context, cl *client.Client, isSet func(string) bool, l cloudsim.LoadBalancer, remove []string) (cloudsim.LoadBalancer, error) {
	ips, err := findIPs(ctx, cl, s.addresses)
	if err != nil {
		return l, err
	}
	for range staleTries {
		req := cloudsim.UpdateLoadBalancer{Labels: map[string]string{}, LoadBalancerSpec: l.LoadBalancerSpec}
		maps.Copy(req.Labels, l.Labels)
		if err := s.applyTo(ctx, cl, isSet, req.Labels, &req.LoadBalancerSpec); err != nil {
			return l, err
		}
		for _, key := range remove {
			delete(req.Labels, key)
		}
		req.Families, req.Addresses = s.familyList(), ips
		changed, err := cl.UpdateLoadBalancer(ctx, l.ID, req, l.Revision)
		if !errors.Is(err, cloudsim.Stale) {
			return changed, err
		}
		if l, err = cl.GetLoadBalancer(ctx, l.ID); err != nil {
			return l, err
		}
	}
	return l, cloudsim.Errorf(cloudsim.Stale, "cannot update load balancer %s: the load balancer changed during each of %d attempts; run the command again", l.ID, staleTries)
}

func newSetTargetsCommand(c *cli.Connection) *cobra.Command {
	var (
		o       cli.Output
		w       waitFlags
		targets []string
		none    bool
	)
	cmd := &cobra.Command{
		Use: "set-targets NAME", Short: "Replace the targets of a load balancer",
		Example: `  allinone cloud load-balancers set-targets shop --target node-1 --target node-2
  allinone cloud load-balancers set-targets shop --none`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, loadBalancers)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if none == (len(targets) > 0) {
				return cloudsim.Errorf(cloudsim.Invalid, "set --target at least once, or set --none")
			}
			l, err := loadBalancers.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			found, err := findTargets(ctx, cl, "target", "", targets)
			if err != nil {
				return err
			}
			changed, err := cl.SetLoadBalancerTargets(ctx, l.ID, cloudsim.SetTargets{Targets: found})
			return loadBalancers.show(ctx, c, cl, o, w, changed, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().StringSliceVar(&targets, "target", nil, "target `INSTANCE`, such as node-1, with a weight, such as node-1=3, or with the address of a pod, such as node-1/10.244.0.7; may be repeated")
	cmd.Flags().BoolVar(&none, "none", false, "remove all targets")
	_ = cmd.RegisterFlagCompletionFunc("target", completeNames(c, instances))
	return cmd
}
