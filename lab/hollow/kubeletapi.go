package hollow

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// KubeletTLS makes what the kubelet of a machine shows and asks for: a
// certificate for ip that kube-apiserver believes.
type KubeletTLS func(node, ip string) (*tls.Config, error)

// kubeletHandler is port 10250 of a kubelet on a machine where nothing runs. It
// tells the truth about that, over the way that logs and exec take.
func kubeletHandler(now func() *view) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprintf(w, "%s is a hollow node: no container runs there, so %s/%s has logged nothing.\n", //nolint:gosec // text, and said to be no HTML
			now().node, r.PathValue("namespace"), r.PathValue("pod"))
		if r.FormValue("follow") != "true" {
			return
		}
		if http.NewResponseController(w).Flush() == nil {
			<-r.Context().Done() // nothing more will ever be logged
		}
	})
	for _, verb := range []string{"exec", "attach", "run", "portForward"} {
		mux.HandleFunc("/"+verb+"/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, fmt.Sprintf("%s is a hollow node: no container runs there to %s", now().node, intoVerb[verb]), http.StatusNotImplemented)
		})
	}
	return mux
}

// intoVerb ends the sentence that a refusal begins.
var intoVerb = map[string]string{
	"exec": "execute a command in", "attach": "attach to", "run": "run a command in", "portForward": "forward a port to",
}
