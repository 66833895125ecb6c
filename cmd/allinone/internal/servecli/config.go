package servecli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// config converts the flags to the Config of the engine. It returns the errors of all invalid
// flags in one error.
func (f *cloudsimFlags) config() (engine.Config, error) {
	cfg := engine.Default()
	var err error
	var bad []error
	prefix := func(flag, s string, ipv6 bool) netip.Prefix {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().BitLen()-p.Bits() < 2 {
			want := "IPv4 addresses, such as 127.64.0.0/16"
			if ipv6 {
				want = "IPv6 addresses, such as fd00:64::/64"
			}
			bad = append(bad, fmt.Errorf("--%s must be a range of at least four %s, got %q", flag, want, s))
			return netip.Prefix{}
		}
		return p.Masked()
	}
	ranges := []struct {
		flag, given string
		set         *netip.Prefix
		ipv6, must  bool
	}{
		{"instance-range", f.instanceRange, &cfg.Instances, false, true},
		{"instance-range6", f.instanceRange6, &cfg.Instances6, true, false},
		{"load-balancer-range", f.loadBalancerRange, &cfg.LoadBalancers, false, true},
		{"load-balancer-range6", f.loadBalancerRange6, &cfg.LoadBalancers6, true, false},
		{"internal-load-balancer-range", f.internalRange, &cfg.InternalLoadBalancers, false, false},
		{"internal-load-balancer-range6", f.internalRange6, &cfg.InternalLoadBalancers6, true, false},
	}
	for i, r := range ranges {
		*r.set = netip.Prefix{}
		if r.given == "" && !r.must {
			continue
		}
		*r.set = prefix(r.flag, r.given, r.ipv6)
		if r.set.IsValid() && r.set.Addr().Is6() != r.ipv6 {
			want := "IPv4"
			if r.ipv6 {
				want = "IPv6"
			}
			bad = append(bad, fmt.Errorf("--%s %s has the wrong address family: want %s", r.flag, r.given, want))
		}
		for _, other := range ranges[:i] {
			if r.set.IsValid() && other.set.IsValid() && r.set.Overlaps(*other.set) {
				bad = append(bad, fmt.Errorf("--%s %s and --%s %s overlap", other.flag, other.set, r.flag, r.set))
			}
		}
	}
	if f.published != "" {
		if cfg.Published, err = parsePublished(f.published); err != nil {
			bad = append(bad, err)
		}
	}
	bad = append(bad, f.pods.Apply(&cfg.Pods), f.setNetworks(&cfg))
	var ok bool
	if cfg.Profile, ok = engine.Profiles()[f.profile]; !ok {
		bad = append(bad, fmt.Errorf("--profile must be instant or realistic, got %q", f.profile))
	}
	if cfg.Catalogue, err = readCatalogue(f.catalogue); err != nil {
		bad = append(bad, fmt.Errorf("--catalogue: %w", err))
	}
	if u, err := url.Parse(f.issuer); f.issuer != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		bad = append(bad, fmt.Errorf("--issuer must be a URL such as https://cloud.example:8180, got %q", f.issuer))
	}
	_, err = cli.ParseDialects("dialect", f.dialects)
	bad = append(bad, err, cli.CheckCollector(f.tracing))
	if f.dataDir == "" {
		bad = append(bad, errors.New("--data-dir is required: there is no home directory (HOME) for the default folder"))
	}
	if len(f.listen) == 0 {
		bad = append(bad, errors.New("--listen must be an address such as 127.0.0.1:8180, got none"))
	}
	if (f.tls.Cert == "") != (f.tls.Key == "") {
		bad = append(bad, errors.New("--tls-cert-file and --tls-private-key-file must be set together"))
	}
	bad = append(bad, f.parseLimits(&cfg))
	cfg.JournalKeep, cfg.DiskCooldown, cfg.DiskData = f.journalKeep, f.diskCooldown, !f.noDataPlane
	cfg.Seed = f.randSeed
	if f.diskCooldown < 0 {
		bad = append(bad, fmt.Errorf("--disk-modify-cooldown must not be negative, got %s", f.diskCooldown))
	}
	if at, err := cli.Instant("frozen-at", f.frozenAt); err != nil {
		bad = append(bad, err)
	} else if at != nil {
		cfg.FrozenAt = *at
	}
	return cfg, errors.Join(bad...)
}

// setNetworks sets the address ranges that projects may use. The flag --network-ranges lists these
// ranges. Without the flag, projects may use the default ranges, except the ranges to which this
// machine has routes.
func (f *cloudsimFlags) setNetworks(cfg *engine.Config) error {
	if len(f.networkRanges) == 0 {
		cfg.HostRoutes = hostnet.Routes
		return nil
	}
	cfg.NetworkRanges = nil
	for _, s := range f.networkRanges {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("--network-ranges must be ranges of addresses such as 10.20.0.0/16, got %q", s)
		}
		cfg.NetworkRanges = append(cfg.NetworkRanges, p)
	}
	if err := cloudsim.ValidateNetworkRanges(cfg.NetworkRanges); err != nil {
		return fmt.Errorf("--network-ranges: %w", err)
	}
	return nil
}

// setDialTargets sets the addresses of instances and pods to which the data plane may connect: the
// addresses in default networks, and the addresses in the ranges of the flag --network-ranges.
func (f *cloudsimFlags) setDialTargets(plane *dataplane.Config, cfg engine.Config) {
	for _, p := range []netip.Prefix{cfg.Instances, cfg.Instances6} {
		if p.IsValid() {
			plane.Instances = append(plane.Instances, p)
		}
	}
	for _, pods := range cfg.Pods.Families() {
		plane.Instances = append(plane.Instances, pods.In)
	}
	if len(f.networkRanges) > 0 {
		plane.Networks = cfg.NetworkRanges
	}
}

// parsePublished parses an IP address with a port or a range of ports. The form is HOST:PORT or
// HOST:FIRST-LAST.
func parsePublished(s string) (engine.Published, error) {
	host, ports, err := net.SplitHostPort(s)
	low, high, isRange := strings.Cut(ports, "-")
	if !isRange {
		high = low
	}
	first, err1 := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	if _, ipErr := netip.ParseAddr(host); errors.Join(err, err1, err2, ipErr) != nil || first < 1 || last > 65535 || first > last {
		return engine.Published{}, fmt.Errorf("--published-ports must be an IP address and a range of ports, such as 127.0.0.1:30080-30099, got %q", s)
	}
	return engine.Published{Host: host, First: first, Last: last}, nil
}

// parseLimits parses the flags for quotas and rate limits, and writes their values into
// cfg.
func (f *cloudsimFlags) parseLimits(cfg *engine.Config) error {
	var quotas, read, write, project error
	cfg.Quotas, quotas = cli.ParseQuotas("quota", f.quotas)
	cfg.RateLimits.Read, read = cli.ParseRate("rate-limit-read", f.rateRead)
	cfg.RateLimits.Write, write = cli.ParseRate("rate-limit-write", f.rateWrite)
	cfg.ProjectRate, project = cli.ParseRate("project-rate-limit", f.rateProject)
	return errors.Join(quotas, read, write, project, cfg.RateLimits.Validate(), cloudsim.RateLimits{Read: cfg.ProjectRate}.Validate())
}
