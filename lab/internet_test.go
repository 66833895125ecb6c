package lab

import (
	"slices"
	"strings"
	"testing"
)

// TestUsableProxyStays proves that machines use the HTTPS proxy even if the HTTP proxy is unusable.
func TestUsableProxyStays(t *testing.T) {
	env, err := Proxy{HTTP: "http://127.0.0.1:3128", HTTPS: "http://proxy.example.com:3128"}.Env(RealNetworks(FirstVPC))
	if err == nil || !strings.Contains(err.Error(), "HTTP_PROXY") {
		t.Errorf("got error %v, want an error about HTTP_PROXY", err)
	}
	if len(env) != 2 || env[0] != "HTTPS_PROXY=http://proxy.example.com:3128" || !strings.HasPrefix(env[1], "NO_PROXY=localhost,") {
		t.Errorf("environment: got %q, want HTTPS_PROXY and NO_PROXY", env)
	}
	env, err = Proxy{HTTP: "http://", HTTPS: "http://localhost:3128"}.Env(RealNetworks(FirstVPC))
	if err == nil || slices.ContainsFunc([]string{"HTTP_PROXY", "HTTPS_PROXY"}, func(name string) bool { return !strings.Contains(err.Error(), name) }) || env != nil {
		t.Errorf("no usable proxy: got the environment %q, error %v; want none and an error about HTTP_PROXY and HTTPS_PROXY", env, err)
	}
}
