package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// exchange contains the data about a request and its reply. Only the goroutine of the
// request uses the exchange.
type exchange struct {
	requestID   string
	route       string           // pattern of the path; "" until the router has found a route
	operation   string           // "" until the router has found an operation of the API
	caller      string           // "" until the cloud has authenticated the caller
	token       cloudsim.TokenID // id of the caller's token
	dialectCall string           // call of another cloud's API that a dialect translated to this call; "": none

	fault     string // id of the fault that affected the call; "": none
	target    string // id in the path
	outcome   string // kind of the error that was sent; "": no error
	throttled bool
	overQuota cloudsim.QuotaName // the exceeded quota; "": none
	at        time.Time          // arrival time on the cloud's clock; zero before authorization

	reply *http.ResponseController // extends the deadlines of the connection for long calls
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{} // there is no request while the API makes the OpenAPI document
}

var requestIDRE = regexp.MustCompile(`^[-_.A-Za-z0-9]{1,64}$`)

// replyTimeout is the longest time for a reply. Watches and some slow calls extend this time. A
// call that waits for the end of a cloudsim.Operation waits at most 20 seconds. So it can reply
// before replyTimeout ends.
const replyTimeout = 30 * time.Second

// middleware returns a handler that wraps the handler of every request. It sets the request
// id and the deadline of the reply. It recovers from a panic of the wrapped handler. After the
// wrapped handler has ended, it records metrics, the audit entry, a log line and the trace.
func (a *api) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		x := &exchange{requestID: r.Header.Get("X-Request-Id")}
		if !requestIDRE.MatchString(x.requestID) {
			x.requestID = a.engine.NewRequestID()
		}
		rec := &recorder{ResponseWriter: w}
		rec.Header().Set("X-Request-Id", x.requestID)
		x.reply = http.NewResponseController(w)
		_ = x.reply.SetWriteDeadline(begin.Add(replyTimeout))
		ctx, span := a.beginSpan(r)
		r = r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
		defer func() {
			p := recover()
			cause, _ := p.(error)
			isAbort := errors.Is(cause, http.ErrAbortHandler)
			dropped := isAbort || p != nil && rec.status != 0 // the client gets no complete reply
			if p != nil && !isAbort {
				a.log.ErrorContext(r.Context(), "panic", "requestId", x.requestID, "panic", p, "stack", string(debug.Stack()))
				if !dropped {
					a.refuse(rec, r, fmt.Errorf("panic: %v", p))
				}
			}
			took := time.Since(begin)
			a.metrics.observe(x, rec.status, took)
			a.recordCall(x, rec, dropped, took)
			a.logRequest(r, x, rec.status, took)
			endSpan(span, r, x, rec.status)
			if dropped {
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http then closes the connection without a log line
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

func noteRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route := mux.CurrentRoute(r); route != nil {
			exchangeOf(r.Context()).route, _ = route.GetPathTemplate()
		}
		next.ServeHTTP(w, r)
	})
}

type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (r *recorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// plainRoutes adds the routes that need no token and are not part of the API.
func (a *api) plainRoutes(router *mux.Router, cfg Config) {
	a.healthRoutes(router)
	router.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": cfg.Version, "profile": cfg.Profile})
	}).Methods(http.MethodGet)
	router.Handle("/metrics", CheckHost(promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}), cfg.Hosts...)).Methods(http.MethodGet)
	router.HandleFunc("/", http.RedirectHandler("/docs", http.StatusFound).ServeHTTP).Methods(http.MethodGet)
	a.wellKnown(router)
	router.Handle("/docs", CheckHost(a.reference(), cfg.Hosts...)).Methods(http.MethodGet)
}
