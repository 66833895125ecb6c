package wire_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

func parse(t *testing.T, text string) wire.Identifiers {
	t.Helper()
	id, err := wire.ParseIdentifiers(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A certificate grants exactly the identifiers that Grant has added to its template.
func TestGrant(t *testing.T) {
	want := "cidr=10.1.0.0%2F24&cidr=fd00%3A%3A%2F64&default-route=true&host=node-1&host=node-1.example&ipv4=10.0.0.1&ipv6=fd00%3A%3A1"
	template := &x509.Certificate{}
	parse(t, want).Grant(template)
	pair, err := cert.Sign(template, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.GrantedBy(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestIdentifiersBeyondGrant(t *testing.T) {
	const granted = "host=node-1&ipv4=10.0.0.1&ipv6=fd00::1&cidr=10.1.0.0/24"
	for stated, want := range map[string]string{
		"":                                 "",
		granted:                            "",
		"host=NODE-1&cidr=10.1.0.128/25":   "",
		"host=node-2&host=node-1":          "host=node-2",
		"ipv4=10.0.0.2":                    "ipv4=10.0.0.2",
		"ipv6=fd00::2":                     "ipv6=fd00%3A%3A2",
		"cidr=10.1.0.0/16":                 "cidr=10.1.0.0%2F16",
		"cidr=0.0.0.0/0":                   "cidr=0.0.0.0%2F0",
		"default-route=true&ipv4=10.0.0.1": "default-route=true",
	} {
		if got := parse(t, stated).Beyond(parse(t, granted)).String(); got != want {
			t.Errorf("%s: got %q beyond the grant, want %q", stated, got, want)
		}
	}
}
