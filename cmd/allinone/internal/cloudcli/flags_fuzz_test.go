package cloudcli

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// FuzzFlags proves that the parsers of flags return a value that matches the text of the flag, or
// an Invalid error. If the cloud's validation rejects a parsed value, the validation must also
// return an Invalid error.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{"", "80:30080", "tcp:80:30080", "udp:-1:+70000", "http:10256/healthz", "tcp:1", "http:/", "a=b", "a==b", "a!=b", "=", "::", "load-balancers"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		invalid := func(err error) bool {
			if err != nil && !errors.Is(err, cloudsim.Invalid) {
				t.Errorf("%q: %v", s, err)
			}
			return err != nil
		}
		l, err := parseListener(s)
		if !invalid(err) && !strings.Contains(s, ":") {
			t.Errorf("parseListener(%q): got %+v, want an error", s, l)
		}
		var h cloudsim.HealthCheck
		if !invalid(parseHealth(s, &h)) {
			if h.Port != 0 && !strings.Contains(s, strconv.Itoa(h.Port)) || !strings.HasSuffix(s, h.Path) {
				t.Errorf("parseHealth(%q): got %+v, want the port and the path of the input", s, h)
			}
			if h.Protocol != cloudsim.HealthTCP && h.Protocol != cloudsim.HealthHTTP && h.Protocol != cloudsim.HealthHTTPS {
				t.Errorf("parseHealth(%q): got %+v, want a known protocol", s, h)
			}
		}
		labels, err := cli.ParseLabels("label", []string{s})
		if !invalid(err) {
			for k, v := range labels {
				if s != k+"="+v && s != k+"=="+v {
					t.Errorf("%q is read as %q", s, labels)
				}
			}
		}
		_, err = parseKinds([]string{s})
		invalid(err)
		spec := cloudsim.LoadBalancerSpec{Listeners: []cloudsim.Listener{l}, HealthCheck: h}
		invalid(cloudsim.CreateLoadBalancer{Name: "x", Region: "sim-1", Labels: labels, LoadBalancerSpec: spec}.Validate())
	})
}
