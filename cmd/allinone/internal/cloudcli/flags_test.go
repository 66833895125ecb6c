package cloudcli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func TestParseListener(t *testing.T) {
	for in, want := range map[string]cloudsim.Listener{
		"tcp:80:30080": {Protocol: "tcp", Port: 80, TargetPort: 30080},
		"TCP:80:30080": {Protocol: "tcp", Port: 80, TargetPort: 30080},
		"443:30443":    {Protocol: "tcp", Port: 443, TargetPort: 30443},
		"udp:0:70000":  {Protocol: "udp", Port: 0, TargetPort: 70000}, // the parser accepts these ports, but the cloud refuses them
	} {
		if got, err := parseListener(in); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("parseListener(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "80", "tcp:80", ":80:80", "tcp::80", "tcp:80:", "tcp:80:80:80", "tcp:http:80", "tcp:80:99999999999999999999"} {
		if got, err := parseListener(in); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("parseListener(%q) = %v, %v; want Invalid", in, got, err)
		}
	}
}

func TestParseHealth(t *testing.T) {
	for in, want := range map[string]cloudsim.HealthCheck{
		"tcp":                {Protocol: "tcp"},
		"tcp:30080":          {Protocol: "tcp", Port: 30080},
		"http":               {Protocol: "http"},
		"http/":              {Protocol: "http", Path: "/"},
		"http:10256/healthz": {Protocol: "http", Port: 10256, Path: "/healthz"},
		"HTTP/a:b/c?d=e":     {Protocol: "http", Path: "/a:b/c?d=e"},
	} {
		// parseHealth must replace the old values, except the probe interval.
		got := cloudsim.HealthCheck{Protocol: "http", Port: 9, Path: "/old", IntervalMillis: 7}
		want.IntervalMillis = 7
		if err := parseHealth(in, &got); err != nil || got != want {
			t.Errorf("parseHealth(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "icmp", "tcp:", "tcp:0", "tcp:65536", "tcp:80/path", "http:x", ":80", "/healthz"} {
		if err := parseHealth(in, &cloudsim.HealthCheck{}); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("parseHealth(%q) = %v, want Invalid", in, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, in := range []string{"10", "10Gi", "10GiB"} {
		if got, err := parseSize(in); err != nil || got != 10 {
			t.Errorf("parseSize(%q) = %d, %v; want 10", in, got, err)
		}
	}
	for _, in := range []string{"", "GiB", "10GiGiB", "10GiBGi", "10GB"} {
		if got, err := parseSize(in); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("parseSize(%q) = %d, %v; want Invalid", in, got, err)
		}
	}
}

func TestToMillis(t *testing.T) {
	if got, err := toMillis("interval", 1500*time.Millisecond); err != nil || got != 1500 {
		t.Errorf("1.5s: got %d, error %v; want 1500", got, err)
	}
	for _, in := range []time.Duration{-time.Second, 0, time.Microsecond, 1500 * time.Microsecond} {
		if got, err := toMillis("interval", in); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("%s: got %d, error %v; want Invalid", in, got, err)
		}
	}
}

// TestBindingName proves that bindingName returns valid names, even for an account with a long
// name. It also proves that the bindings of this account to two roles get different names.
func TestBindingName(t *testing.T) {
	if got := bindingName("ci", "reader"); got != "ci-reader" {
		t.Errorf("short names: got %q, want ci-reader", got)
	}
	account := strings.Repeat("a", cloudsim.MaxNameLength-1)
	one, two := bindingName(account, "reader"), bindingName(account, "admin")
	for _, name := range []string{one, two} {
		if err := (cloudsim.CreateRoleBinding{Name: name, Role: "reader", ServiceAccount: "ci"}).Validate(); err != nil {
			t.Errorf("name %q of a role binding: %v", name, err)
		}
	}
	if one == two {
		t.Errorf("bindings of two roles: both have the name %q", one)
	}
}

func TestParseLabels(t *testing.T) {
	got, err := cli.ParseLabels("label", []string{"a=b", "c=d=e", "empty=", "f==g", "a=b", "f==g", "f=g"})
	want := map[string]string{"a": "b", "c": "d=e", "empty": "", "f": "g"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("parseLabels: %v\n%s", err, d)
	}
	for _, in := range [][]string{{"a"}, {"=b"}, {"a!=b"}, {""}, {"a=b", "a=c"}, {"a==b", "a==c"}} {
		if got, err := cli.ParseLabels("label", in); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("parseLabels(%q) = %v, %v; want Invalid", in, got, err)
		}
	}
}

// TestParseKind proves that a flag accepts the name of a kind in the API, such as loadBalancer, and
// the name of the kind in commands, such as load-balancers. The flag accepts each name in the
// singular and in the plural.
func TestParseKind(t *testing.T) {
	for in, want := range map[string]cloudsim.ResourceKind{
		"instance": cloudsim.KindInstance, "instances": cloudsim.KindInstance, "addresses": cloudsim.KindAddress,
		"loadBalancer": cloudsim.KindLoadBalancer, "load-balancers": cloudsim.KindLoadBalancer, "instance-types": cloudsim.KindInstanceType,
	} {
		if got, ok := apply.ParseKind(in); !ok || got != want {
			t.Errorf("parseKind(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
	if got, ok := apply.ParseKind("cow"); ok {
		t.Errorf("parseKind(cow) = %q", got)
	}
}
