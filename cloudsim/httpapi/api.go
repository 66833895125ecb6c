// Package httpapi serves the cloud over HTTP. It decodes a request, calls one method of the engine,
// and replies. The engine validates the values in the request. The package generates the OpenAPI
// document from the routes and from the Go types of package cloudsim.
//
// Only this package uses the libraries gorilla/mux and huma.
package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// maxBody is the largest request body in bytes. A load balancer with the maximum of 5000 targets
// needs about 200 KiB. Uploads have another limit (see maxStateBody).
const maxBody = 1 << 20

// Config configures the API.
type Config struct {
	Version string // version of the program, for /version and the OpenAPI document
	Profile string // name of the engine's profile, for /version
	// Hosts are additional host names that CheckHost accepts in requests for /metrics or /docs.
	Hosts []string
	// Metrics is the registry for request metrics. The path /metrics returns all metrics of this
	// registry. If two APIs use the same registry, New panics.
	Metrics *prometheus.Registry
	// Audit receives a line of JSON for each call that has ended. If Audit is nil, the API keeps
	// the calls only in memory.
	Audit io.Writer
	// If LogRequests is true, the API logs each request at a level that depends on the
	// status of the reply. If it is false, the API logs requests at level debug.
	LogRequests bool
	// Tracer receives a span for each request. If Tracer is nil, the API
	// creates no spans.
	Tracer trace.TracerProvider
	// Transcript records all calls except watches, for a later replay. If Transcript is nil, the
	// API records no calls.
	Transcript *Transcript
}

type api struct {
	log     *slog.Logger
	engine  *engine.Engine
	huma    huma.API
	metrics *metrics
	audit   auditFile
	watches watchCounter
	tracer  trace.Tracer

	logRequests bool

	targets []cloudsim.FaultTarget // operations that faults can affect; registerRoutes fills this list
	ids     []string               // ids of all operations; registerRoutes fills this list
}

// New returns an HTTP handler that serves the API of the engine e.
func New(log *slog.Logger, e *engine.Engine, cfg Config) http.Handler {
	a := &api{
		log: log, engine: e, metrics: newMetrics(cfg.Metrics, &figures{log, e}), audit: auditFile{w: cfg.Audit},
		tracer: newTracer(cfg.Tracer), logRequests: cfg.LogRequests,
	}
	var routers routerTable
	routers = newRouters(func() *mux.Router {
		router := mux.NewRouter()
		router.Use(noteRoute)
		router.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.refuse(w, r, cloudsim.Errorf(cloudsim.NotFound, "the API has no path %s: see /openapi.json", r.URL.Path))
		})
		router.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(routers.allowedMethods(r), ", ")) // RFC 9110 section 15.5.6
			detail := r.URL.Path + " does not support " + r.Method + ": see /openapi.json"
			a.refuse(w, r, newProblem(http.StatusMethodNotAllowed, cloudsim.Invalid, detail, exchangeOf(r.Context()).requestID))
		})
		return router
	})
	a.huma = huma.NewAPI(openAPI(cfg.Version), routers)
	a.registerRoutes()
	a.huma.OpenAPI().Components.Schemas.(schemas).fillShapes()
	a.plainRoutes(routers.otherPaths(), cfg)
	return a.middleware(compressAnswers(cfg.Transcript.transcribe(routers)))
}

func openAPI(version string) huma.Config {
	cfg := huma.DefaultConfig("cloudsim", version)
	cfg.Info.Description = "A simulated cloud for one machine. Errors are RFC 9457 problem documents; programs distinguish errors by the member kind. " +
		"A create request with the name and the values of an existing resource returns that resource, except for tokens and access keys, because the cloud cannot show their secrets again. Slow work runs as an operation, whose id is in the member operation of the resource. " +
		"If a call has a rate limit, the answer has the headers RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset. The time in RateLimit-Reset is in seconds since 1970, on the cloud's clock."
	cfg.OpenAPIPath = "/openapi"
	cfg.DocsPath = ""    // the API serves its own page, which needs no network: see reference.go
	cfg.SchemasPath = "" // the OpenAPI document contains the schemas
	cfg.CreateHooks = nil
	cfg.Formats = map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat}
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.Schemas = newSchemas()
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token's secret; see POST /v1/tokens"},
	}
	return cfg
}

type op struct {
	id      string // operation id: noun.verb, as in metrics and log
	method  string
	path    string
	summary string
	status  int // HTTP status on success; 0 means 200
	access  engine.Access
	idemKey bool   // whether the operation accepts an Idempotency-Key
	upload  string // content type of a streamed body; see Upload
}

// handle registers a route. A request passes these steps in this order: authorization, decoding,
// the permission check for the request's resource, the fault rules, and fn. The decoding checks
// only the structure of the request, because the engine checks the values. The method toProblem
// converts the errors of the last three steps to replies.
func handle[I, O any](a *api, o op, fn func(context.Context, *I) (*O, error)) {
	a.ids = append(a.ids, o.id)
	h := huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary,
		DefaultStatus: o.status, MaxBodyBytes: maxBody,
		Tags:        []string{tagOf(o.id)},
		Security:    []map[string][]string{{"token": {}}},
		Middlewares: huma.Middlewares{a.authorize(o)},
		Errors:      []int{},
	}
	h.Parameters = append(h.Parameters, &huma.Param{
		Name: "Cloud-Project", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "Id or name of the project of the call, or * for all projects. Only callers with a role in other projects or in all projects need this header",
	})
	if o.idemKey {
		h.Parameters = append(h.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "Up to 255 characters of ASCII, of the caller's choice. If the caller repeats the request with the same key and the same body within a day, the answer is the resource of the first request",
		})
	}
	if o.upload != "" {
		h.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			o.upload: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}}
	}
	fn = withPermissionCheck(a, o, withFaults(a, o, fn))
	huma.Register(a.huma, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, a.toProblem(ctx, err)
		}
		return out, nil
	})
}

// maxTarget is the maximum length in bytes of an id in the audit trail. If an id in a URL
// path is longer, the audit trail contains only the beginning of this id.
const maxTarget = 128

// A dialect is a server that translates the API of another cloud. dialectCallHeader is the
// request header in which a dialect sends the name of the other cloud's call. The cloud
// uses this header only for fault rules, the audit trail and transcripts. Therefore a
// caller needs no permission to send the header.
const dialectCallHeader = "Dialect-Call"

func supportsIfMatch(o *huma.Operation) bool {
	return slices.ContainsFunc(o.Parameters, func(p *huma.Param) bool { return p.In == "header" && p.Name == "If-Match" })
}

// authorize returns the middleware that authorizes the calls of an operation. The
// middleware runs before the API reads the body of the request.
func (a *api) authorize(o op) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		x := exchangeOf(hc.Context())
		x.operation = o.id
		if call := hc.Header(dialectCallHeader); cloudsim.ValidDialectCall(call) {
			x.dialectCall = strings.Clone(call)
		}
		key := hc.Header("Idempotency-Key")
		if len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			a.refuseHuma(hc, cloudsim.InvalidField("header.Idempotency-Key", "must be at most 255 characters of ASCII"))
			return
		}
		ctx, err := a.engine.Authorize(hc.Context(), engine.Request{
			ID: x.requestID, Secret: bearer(hc.Header("Authorization")), Project: hc.Header("Cloud-Project"),
			IdempotencyKey: key, Operation: o.id, Access: o.access, DialectCall: x.dialectCall,
		})
		if call, ok := engine.CallOf(ctx); ok {
			x.caller, x.token, x.at = call.Caller, call.Token, call.At
			if !call.At.IsZero() {
				hc.SetHeader("Date", call.At.UTC().Format(http.TimeFormat)) // all times in an answer follow the cloud's clock
			}
			if call.Caller != "" {
				run.Authenticated(ctx)
			}
			setRateLimit(hc, call.RateLimit)
		}
		if err != nil {
			a.refuseHuma(hc, err)
			return
		}
		if id := hc.Param("id"); id != "" {
			x.target = strings.Clone(id[:min(len(id), maxTarget)]) // a clone, so that the audit trail does not keep the whole path in memory
		}
		if im := hc.Header("If-Match"); im != "" && im != "*" && !supportsIfMatch(hc.Operation()) {
			a.refuseHuma(hc, cloudsim.InvalidField("header.If-Match", "is not supported by "+o.id+", because the operation does not depend on a revision: omit the header"))
			return
		}
		next(huma.WithContext(hc, ctx))
	}
}

// setRateLimit sets the headers that describe the rate limit of the caller. For a caller
// without a rate limit, it sets no header. The names and the meaning of the headers are the
// same as in Hetzner's API.
func setRateLimit(hc huma.Context, l engine.RateLimit) {
	if l.Limit == 0 {
		return
	}
	reset := l.Reset.Add(time.Second - 1).Unix() // rounded up, because the token bucket is not full before l.Reset
	hc.SetHeader("RateLimit-Limit", strconv.Itoa(l.Limit))
	hc.SetHeader("RateLimit-Remaining", strconv.Itoa(l.Remaining))
	hc.SetHeader("RateLimit-Reset", strconv.FormatInt(reset, 10))
}

// withPermissionCheck returns a function that calls fn if the caller's permission covers the
// resource of the call. Otherwise the function returns an error and does not call fn.
func withPermissionCheck[I, O any](a *api, o op, fn func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		if err := a.engine.MayTouch(ctx, subjectOf(o.id, in)); err != nil {
			return nil, err
		}
		return fn(ctx, in)
	}
}

// body is an answer that contains a resource.
type body[T any] struct {
	ETag string `header:"ETag" doc:"Revision of the resource, for If-Match"`
	Body T
}

func answer[T any](v T, rev uint64, err error) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{ETag: etag(rev), Body: v}, nil
}

func etag(rev uint64) string { return strconv.Quote(strconv.FormatUint(rev, 10)) }

type listed[T any] struct{ Body cloudsim.List[T] }

// The type none stands for an answer without a body, or for a request without parameters.
type none struct{}

// create is a request whose body describes the object to create.
type create[R any] struct{ Body R }
