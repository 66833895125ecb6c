package cloudcli

import (
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

const listenerForm = "[tcp:|udp:]PORT:TARGETPORT[:OPTION=VALUE...], e.g. tcp:80:30080"

// listenerOptions contains the options that may follow the ports in a value of --listener.
var listenerOptions = []string{"mode=vip|proxy", "proxy-protocol=v1|v2", "idle-timeout=DURATION", "max-connections=N"}

// parseListener parses [PROTOCOL:]PORT:TARGETPORT[:OPTION=VALUE...]. The cloud validates the
// protocol, the ports and the values.
func parseListener(s string) (l cloudsim.Listener, err error) {
	parts := strings.Split(s, ":")
	for n := len(parts) - 1; n > 0 && strings.Contains(parts[n], "="); n-- {
		if err := parseListenerOption(parts[n], &l); err != nil {
			return l, err
		}
		parts = parts[:n]
	}
	if len(parts) == 2 {
		parts = append([]string{string(cloudsim.TCP)}, parts...)
	}
	if len(parts) != 3 {
		return l, cli.BadFlag("listener", s, listenerForm)
	}
	port, err1 := strconv.Atoi(parts[1])
	target, err2 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || parts[0] == "" {
		return l, cli.BadFlag("listener", s, listenerForm)
	}
	l.Protocol, l.Port, l.TargetPort = cloudsim.Protocol(strings.ToLower(parts[0])), port, target
	return l, nil
}

func parseListenerOption(s string, l *cloudsim.Listener) (err error) {
	key, value, _ := strings.Cut(s, "=")
	switch key {
	case "mode":
		l.Mode = cloudsim.ListenerMode(value)
	case "proxy-protocol":
		l.ProxyProtocol = cloudsim.ProxyProtocol(value)
	case "idle-timeout":
		d, derr := time.ParseDuration(value)
		if derr != nil {
			return cli.BadFlag("listener", s, "a duration, e.g. idle-timeout=90s")
		}
		l.IdleTimeoutSeconds, err = wholeSeconds("listener", d)
	case "max-connections":
		if l.MaxConnections, err = strconv.Atoi(value); err != nil {
			return cli.BadFlag("listener", s, "a number, e.g. max-connections=100")
		}
	default:
		return cli.BadFlag("listener", s, "one of the options "+strings.Join(listenerOptions, ", "))
	}
	return err
}

func parseListeners(words []string) ([]cloudsim.Listener, error) {
	var all []cloudsim.Listener
	for _, w := range words {
		l, err := parseListener(w)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

const healthForm = "tcp[:PORT], http[:PORT][/PATH], https[:PORT][/PATH] or none, e.g. http:10256/healthz"

// parseHealth parses PROTOCOL[:PORT][/PATH] and writes the result into h. For missing parts the
// cloud uses its defaults.
func parseHealth(s string, h *cloudsim.HealthCheck) error {
	head, path, hasPath := strings.Cut(s, "/")
	protocol, port, hasPort := strings.Cut(head, ":")
	h.Protocol, h.Port, h.Path = cloudsim.HealthProtocol(strings.ToLower(protocol)), 0, ""
	switch h.Protocol {
	case cloudsim.HealthHTTP, cloudsim.HealthHTTPS:
		if hasPath {
			h.Path = "/" + path
		}
	case cloudsim.HealthTCP:
		if hasPath {
			return cli.BadFlag("health", s, healthForm)
		}
	case cloudsim.HealthNone:
		if hasPath || hasPort {
			return cli.BadFlag("health", s, healthForm)
		}
	default:
		return cli.BadFlag("health", s, healthForm)
	}
	if hasPort {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return cli.BadFlag("health", s, healthForm)
		}
		h.Port = n
	}
	return nil
}

// toMillis converts a duration to milliseconds, the unit of the API. It returns an error if the
// duration is less than 1ms or is not a whole number of milliseconds.
func toMillis(flag string, d time.Duration) (int, error) {
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return 0, cli.BadFlag(flag, d.String(), "whole milliseconds, at least 1ms")
	}
	return int(d.Milliseconds()), nil
}

// delayMillis is like toMillis, but also accepts 0.
func delayMillis(flag string, d time.Duration) (int, error) {
	if d < 0 || d%time.Millisecond != 0 {
		return 0, cli.BadFlag(flag, d.String(), "whole milliseconds, e.g. 250ms")
	}
	return int(d.Milliseconds()), nil
}

// wholeSeconds converts a duration to seconds, the unit of the API. It returns an error if the
// duration is less than 1s or is not a whole number of seconds.
func wholeSeconds(flag string, d time.Duration) (int, error) {
	if d < time.Second || d%time.Second != 0 {
		return 0, cli.BadFlag(flag, d.String(), "whole seconds, at least 1s")
	}
	return int(d / time.Second), nil
}

// parseKinds parses the names of resource kinds. It accepts common spellings, for example
// load-balancer and loadbalancers for loadBalancer.
func parseKinds(words []string) ([]cloudsim.ResourceKind, error) {
	var kinds []cloudsim.ResourceKind
	for _, w := range words {
		k, ok := apply.ParseKind(w)
		if !ok {
			return nil, cli.BadFlag("kind", w, "one of "+cli.Join(cloudsim.ResourceKinds()))
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}
