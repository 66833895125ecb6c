package lab

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/lab/real"
)

// Proxy holds the HTTP proxy for image pulls of real machines. The fields have the format of the
// environment variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY. If all fields are empty, machines use
// no proxy.
type Proxy struct{ HTTP, HTTPS, No string }

// Env returns the environment variables for the container runtime of machines. The variable
// NO_PROXY contains the value of the field No, localhost, the networks of the lab, and the domains
// of the cluster.
//
// Env returns an error if the field HTTP or HTTPS is not the URL of a proxy. It also returns an
// error for a proxy on the loopback interface of the host, because machines cannot reach this
// interface. If only one of the two proxies is unusable, the result env still contains the usable
// proxy.
func (p Proxy) Env(n Networks) (env []string, err error) {
	var unusable []string
	for _, v := range []struct{ name, value string }{{"HTTP_PROXY", p.HTTP}, {"HTTPS_PROXY", p.HTTPS}} {
		if v.value == "" {
			continue
		}
		value := v.value
		if !strings.Contains(value, "://") {
			value = "http://" + value // as curl and Go's standard library do
		}
		u, invalid := url.Parse(value)
		switch {
		case invalid != nil || u.Hostname() == "":
			unusable = append(unusable, "the value of "+v.name+" is not the URL of a proxy, so machines pull images without this proxy")
		case real.OnLoopback(u):
			unusable = append(unusable, "the proxy in "+v.name+" is on the loopback of this host, so machines pull images without this proxy")
		default:
			env = append(env, v.name+"="+v.value)
		}
	}
	if len(unusable) > 0 {
		err = errors.New(strings.Join(unusable, "; "))
	}
	if env == nil {
		return nil, err
	}
	direct := slices.DeleteFunc([]string{p.No, "localhost", "127.0.0.1", "::1", n.VPC, n.Pods, ServiceRange, ".svc", ".cluster.local"},
		func(s string) bool { return s == "" })
	return append(env, "NO_PROXY="+strings.Join(direct, ",")), err
}

// Internet describes whether real machines reach networks outside the host.
type Internet struct {
	IPv4 bool `json:"ipv4"`
	IPv6 bool `json:"ipv6"`
	// Off is the reason why machines have no access. If machines have access, Off is empty.
	Off string `json:"off,omitempty"`
}

// FindInternet finds out whether real machines on this host can reach networks outside the host. If
// noAccess is true, the result always says that machines have no access.
func FindInternet(noAccess bool) (Internet, error) {
	if noAccess {
		return Internet{Off: "--no-internet"}, nil
	}
	found, err := real.FindInternet()
	if err == nil && !found.On() {
		return Internet{Off: "this host has no default route"}, nil
	}
	return Internet{IPv4: found.IPv4, IPv6: found.IPv6}, err
}

func (i Internet) String() string {
	switch {
	case i.IPv4 && i.IPv6:
		return "machines reach the internet over IPv4 and IPv6"
	case i.IPv4:
		return "machines reach the internet over IPv4; for IPv6, this host has no default route"
	case i.IPv6:
		return "machines reach the internet over IPv6; for IPv4, this host has no default route"
	}
	return "machines have no internet access: " + i.Off
}
