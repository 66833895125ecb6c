package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// exchange is what is known of a request while it is answered. It belongs to
// the request's goroutine.
type exchange struct {
	requestID string
	operation string           // "" until a route was found
	caller    string           // "" until the door was passed
	token     cloudsim.TokenID // of the caller
	fault     string           // id of the fault that struck it; "" for none
	target    string           // id in the path
	outcome   string           // kind of the error that was sent; "" for none
	throttled bool
	at        time.Time // when it came, on the cloud's clock; zero before the door

	reply *http.ResponseController // of the connection; for what takes long on purpose
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{} // no request: the OpenAPI document is being made
}

var requestIDRE = regexp.MustCompile(`^[-_.A-Za-z0-9]{1,64}$`)

// replyTimeout bounds a reply that is not a watch; the longest wait for an
// operation is shorter.
const replyTimeout = 30 * time.Second

// outermost is what every request passes, in this order: request id, deadline,
// panic, metrics, log.
func (a *api) outermost(next http.Handler) http.Handler {
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
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer func() {
			p := recover()
			cause, _ := p.(error)
			dropped := errors.Is(cause, http.ErrAbortHandler)
			if p != nil && !dropped {
				a.log.ErrorContext(r.Context(), "panic", "requestId", x.requestID, "panic", p, "stack", string(debug.Stack()))
				if rec.status == 0 {
					a.refuse(rec, r, fmt.Errorf("panic: %v", p))
				}
			}
			took := time.Since(begin)
			a.metrics.observe(x.operation, rec.status, took)
			a.record(x, rec, dropped, took)
			a.log.DebugContext(r.Context(), "request", "requestId", x.requestID, "operation", x.operation, "caller", x.caller,
				"method", r.Method, "path", r.URL.Path, "status", rec.status, "took", took, "fault", x.fault)
			if dropped {
				panic(p) //nolint:forbidigo // net/http closes the connection, and says nothing
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder remembers the status.
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

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_api_requests_total", Help: "Requests answered, by operation and HTTP status.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cloudsim_api_request_duration_seconds", Help: "Time to answer, by operation. Watches count when they end.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"operation"}),
	}
	reg.MustRegister(m.requests, m.seconds)
	return m
}

func (m *metrics) observe(operation string, code int, took time.Duration) {
	if operation == "" {
		operation = "none" // no route, or one outside the API
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

// plainRoutes are those that need no token and are not part of the API.
func (a *api) plainRoutes(router *mux.Router, cfg Config) {
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, s) }
	}
	router.HandleFunc("/healthz", text("ok")).Methods(http.MethodGet)
	router.HandleFunc("/livez", text("ok")).Methods(http.MethodGet)
	router.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.engine.Ready(); err != nil {
			a.refuse(w, r, cloudsim.Errorf(cloudsim.Unavailable, "the store does not answer: %w", err))
			return
		}
		text("ok")(w, r)
	}).Methods(http.MethodGet)
	router.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": cfg.Version, "profile": cfg.Profile})
	}).Methods(http.MethodGet)
	router.Handle("/metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{})).Methods(http.MethodGet)
	router.HandleFunc("/", http.RedirectHandler("/docs", http.StatusFound).ServeHTTP).Methods(http.MethodGet)
	a.wellKnown(router)
	router.HandleFunc("/docs", a.reference).Methods(http.MethodGet)
}
