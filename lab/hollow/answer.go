package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// view holds the data that the responder needs to answer the clients of one socket. A view is
// immutable. If the data changes, the responder gives the socket a new view.
type view struct {
	node, zone string
	eligible   bool        // false while the autoscaler or another client deletes the node
	service    *service    // for a node port
	endpoints  []endpoint  // targets of the node port, at least one
	check      healthCheck // for a health check node port
}

// answer is the response that a hollow node sends to a client of a Service. On a real node, a pod
// would send a response.
type answer struct {
	Service   string `json:"service"`
	Namespace string `json:"namespace"`
	Port      int32  `json:"port"`
	PortName  string `json:"portName,omitempty"`
	NodePort  int32  `json:"nodePort"`
	Node      string `json:"node"`
	Zone      string `json:"zone"`
	Pod       string `json:"pod,omitempty"`
	PodIP     string `json:"podIP"`
	PodNode   string `json:"podNode,omitempty"`
	Client    string `json:"client"`
}

func (v *view) answer(to endpoint, client string) answer {
	return answer{
		Service: v.service.Name, Namespace: v.service.Namespace, Port: v.service.port, PortName: v.service.portName,
		NodePort: v.service.nodePort, Node: v.node, Zone: v.zone,
		Pod: to.pod, PodIP: to.addr.Addr().String(), PodNode: to.node, Client: client,
	}
}

// answerPrefix is the beginning of each text that String returns.
const answerPrefix = "service: "

// String returns the answer as text, with one line for each field.
func (a answer) String() string {
	port := strconv.Itoa(int(a.Port))
	if a.PortName != "" {
		port += " (" + a.PortName + ")"
	}
	var b strings.Builder
	for _, l := range [][2]string{
		{"service", a.Service}, {"namespace", a.Namespace}, {"port", port}, {"nodePort", strconv.Itoa(int(a.NodePort))},
		{"node", a.Node}, {"zone", a.Zone},
		{"pod", a.Pod}, {"podIP", a.PodIP}, {"podNode", a.PodNode}, {"client", a.Client},
	} {
		if l[1] != "" {
			fmt.Fprintf(&b, "%-10s %s\n", l[0]+":", l[1])
		}
	}
	return b.String()
}

// pick chooses the endpoint for a connection from client. Successive connections get the endpoints
// in turn. If the Service has session affinity, pick computes a hash for each endpoint from the
// client's address and the endpoint's address. It chooses the endpoint with the largest hash. So
// all connections of a client go to one endpoint until this endpoint is gone or a new endpoint has
// a larger hash.
func (v *view) pick(counter *atomic.Uint64, client net.Addr) endpoint {
	if !v.service.affinity {
		return v.endpoints[(counter.Add(1)-1)%uint64(len(v.endpoints))]
	}
	host, _, _ := net.SplitHostPort(client.String())
	best, score := v.endpoints[0], uint64(0)
	for _, e := range v.endpoints {
		h := fnv.New64a()
		fmt.Fprint(h, host, " ", e.addr)
		if s := h.Sum64(); s > score {
			best, score = e, s
		}
	}
	return best
}

// toKey is the context key for the endpoint of a connection.
type toKey struct{}

// nodePortHandler answers requests to a node port in place of the Service's pods. As with
// kube-proxy, each connection belongs to one pod. If this pod is no longer an endpoint, the handler
// resets the connection at the next request.
func nodePortHandler(now func() *view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := now()
		to, ok := r.Context().Value(toKey{}).(netip.AddrPort)
		i := slices.IndexFunc(v.endpoints, func(e endpoint) bool { return e.addr == to })
		if !ok || i < 0 {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets a connection on this panic
		}
		a := v.answer(v.endpoints[i], r.RemoteAddr)
		if r.URL.Query().Get("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(a) // an error means that the client has gone
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, a) //nolint:gosec // text, with a Content-Type and nosniff that prevent HTML
	})
}

// connContext returns a function that chooses an endpoint for each new connection.
func connContext(now func() *view) func(context.Context, net.Conn) context.Context {
	var counter atomic.Uint64
	return func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, toKey{}, now().pick(&counter, c.RemoteAddr()).addr)
	}
}

// proxyHealth is the response body of kube-proxy's health endpoints.
type proxyHealth struct {
	LastUpdated  time.Time                  `json:"lastUpdated"`
	CurrentTime  time.Time                  `json:"currentTime"`
	NodeEligible *bool                      `json:"nodeEligible,omitempty"`
	Healthy      bool                       `json:"healthy"`
	Status       map[string]proxyFamilyPart `json:"status"`
}

type proxyFamilyPart struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// proxyHealthHandler serves kube-proxy's port 10256. /healthz answers 200 if load balancers should
// send new connections to this node. /healthz answers 503 if the Node has a deletion timestamp or
// the cluster autoscaler's deletion taint (KEP-3836). /livez always answers 200.
func proxyHealthHandler(now func() *view) http.Handler {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, code int, eligible *bool) {
		t := time.Now()
		writeHealth(w, code, proxyHealth{
			LastUpdated: t, CurrentTime: t, NodeEligible: eligible, Healthy: true,
			Status: map[string]proxyFamilyPart{"IPv4": {t, true}},
		})
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		eligible := now().eligible
		code := http.StatusOK
		if !eligible {
			code = http.StatusServiceUnavailable
		}
		say(w, code, &eligible)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, nil) })
	return mux
}

// serviceHealth is the response body of a Service's health check node port.
type serviceHealth struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// serviceHealthHandler serves the health check node port of a Service. It answers 200 while the
// node has ready endpoints of the Service, and 503 otherwise. Like kube-proxy, the handler answers
// on every path.
func serviceHealthHandler(now func() *view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v := now()
		body := serviceHealth{LocalEndpoints: v.check.local[v.node], ServiceProxyHealthy: true}
		body.Service.Namespace, body.Service.Name = v.check.Namespace, v.check.Name
		code := http.StatusOK
		if body.LocalEndpoints == 0 {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(body.LocalEndpoints))
		writeHealth(w, code, body)
	})
}

func writeHealth(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has gone
}
