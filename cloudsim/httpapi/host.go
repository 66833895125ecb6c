package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// privateSuffixes are domains that public DNS does not have.
var privateSuffixes = []string{".localhost", ".svc", ".cluster.local", ".internal"}

// CheckHost passes requests with a valid Host header to handler, and refuses other requests. It
// accepts IP addresses, names that public DNS does not have, and the names in hosts. It ignores the
// case of names. It also refuses a request with an Origin header that does not match the Host
// header.
//
// CheckHost protects against DNS rebinding. In this attack, a web page makes its own DNS name
// resolve to this machine, and then reads this server's replies. The page's requests have the
// page's DNS name in the Host header.
func CheckHost(handler http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOurs(r.Host, hosts) {
			http.Error(w, "the header Host contains a name that this server does not accept: use an IP address or localhost in the URL. 'allinone cloudsim' also accepts the host of --issuer, and 'allinone console' the names of --console-host", http.StatusMisdirectedRequest)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
				http.Error(w, "the request comes from a page of another origin, because its header Origin does not match its header Host", http.StatusForbidden)
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

func isOurs(host string, hosts []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return net.ParseIP(host) != nil || !strings.Contains(host, ".") || slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) }) ||
		slices.ContainsFunc(privateSuffixes, func(s string) bool { return strings.HasSuffix(host, s) })
}
