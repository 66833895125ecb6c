package main

import (
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// isHostPort reports whether s is a host and the number of a port.
func isHostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, bits := strconv.ParseUint(port, 10, 16)
	return err == nil && bits == nil && host != "" && n > 0
}

// badFlag returns Invalid for a flag's value. The message contains the value and the wanted
// form.
func badFlag(flag, value, want string) error {
	return cloudsim.Errorf(cloudsim.Invalid, "--%s %q: want %s", flag, value, want)
}

// parseLabels parses KEY=VALUE words. KEY==VALUE means the same, as in kubectl's selectors.
func parseLabels(flag string, words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(words))
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" || strings.HasSuffix(key, "!") {
			return nil, badFlag(flag, w, "KEY=VALUE")
		}
		if have, twice := labels[key]; twice && have != value {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "--%s: %s is given as %q and as %q", flag, key, have, value)
		}
		if !utf8.ValidString(value) {
			return nil, badFlag(flag, w, "UTF-8 text")
		}
		labels[key] = strings.TrimPrefix(value, "=")
	}
	return labels, nil
}

const listenerForm = "[tcp:|udp:]PORT:TARGETPORT[:OPTION=VALUE...], e.g. tcp:80:30080"

// listenerOptions are the options that may follow a listener's ports.
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
		return l, badFlag("listener", s, listenerForm)
	}
	port, err1 := strconv.Atoi(parts[1])
	target, err2 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || parts[0] == "" {
		return l, badFlag("listener", s, listenerForm)
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
			return badFlag("listener", s, "a duration, e.g. idle-timeout=90s")
		}
		l.IdleTimeoutSeconds, err = wholeSeconds("listener", d)
	case "max-connections":
		if l.MaxConnections, err = strconv.Atoi(value); err != nil {
			return badFlag("listener", s, "a number, e.g. max-connections=100")
		}
	default:
		return badFlag("listener", s, "an option of "+strings.Join(listenerOptions, ", "))
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

// parseHealth parses PROTOCOL[:PORT][/PATH] into h. The cloud fills in the defaults.
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
			return badFlag("health", s, healthForm)
		}
	case cloudsim.HealthNone:
		if hasPath || hasPort {
			return badFlag("health", s, healthForm)
		}
	default:
		return badFlag("health", s, healthForm)
	}
	if hasPort {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return badFlag("health", s, healthForm)
		}
		h.Port = n
	}
	return nil
}

// millis converts a duration to the milliseconds of the API.
func millis(flag string, d time.Duration) (int, error) {
	if d < time.Millisecond {
		return 0, badFlag(flag, d.String(), "at least 1ms")
	}
	return int(d.Milliseconds()), nil
}

// wholeSeconds converts a duration to the seconds of the API. It refuses parts of a second.
func wholeSeconds(flag string, d time.Duration) (int, error) {
	if d < time.Second || d%time.Second != 0 {
		return 0, badFlag(flag, d.String(), "whole seconds, at least 1s")
	}
	return int(d / time.Second), nil
}

// parseKinds parses names of kinds in common spellings, such as load-balancer and
// loadbalancers for loadBalancer.
func parseKinds(words []string) ([]cloudsim.ResourceKind, error) {
	var kinds []cloudsim.ResourceKind
	for _, w := range words {
		k, ok := parseKind(w)
		if !ok {
			return nil, badFlag("kind", w, "one of "+join(cloudsim.ResourceKinds()))
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

func parseKind(word string) (cloudsim.ResourceKind, bool) {
	plain := strings.ToLower(strings.ReplaceAll(word, "-", ""))
	for _, k := range cloudsim.ResourceKinds() {
		name := strings.ToLower(string(k))
		if plain == name || plain == name+"s" || plain == name+"es" {
			return k, true
		}
	}
	return "", false
}
