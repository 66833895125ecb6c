package hollow

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// KubeletTLS returns the TLS configuration for the server of the kubelet on the given node.
// The configuration contains a serving certificate for the address ip. kube-apiserver
// trusts this certificate. The configuration also contains a certificate authority. The
// server accepts only clients with a certificate from this authority.
type KubeletTLS func(node, ip string) (*tls.Config, error)

// kubeletHandler serves port 10250 of a hollow machine's kubelet. It answers requests
// for logs and exec with the explanation that no containers run.
func kubeletHandler(now func() *view) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprintf(w, "%s is a hollow node: no container runs there, so %s/%s has logged nothing.\n", //nolint:gosec // text, with a Content-Type and nosniff that prevent HTML
			now().node, r.PathValue("namespace"), r.PathValue("pod"))
		if r.FormValue("follow") != "true" {
			return
		}
		if http.NewResponseController(w).Flush() == nil {
			<-r.Context().Done() // no more output will follow
		}
	})
	for _, verb := range []string{"exec", "attach", "run", "portForward"} {
		mux.HandleFunc("/"+verb+"/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, fmt.Sprintf("%s is a hollow node: no container runs there, so you cannot %s", now().node, intoVerb[verb]), http.StatusNotImplemented)
		})
	}
	return mux
}

// intoVerb maps each kind of kubelet request to a phrase for error messages. For example, a hollow
// node answers an exec request with the error "you cannot execute a command".
var intoVerb = map[string]string{
	"exec": "execute a command", "attach": "attach to a container", "run": "run a command", "portForward": "forward a port",
}
