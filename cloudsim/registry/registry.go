package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	oci "cuelabs.dev/go/oci/ociregistry"
	"cuelabs.dev/go/oci/ociregistry/ociref"
	"cuelabs.dev/go/oci/ociregistry/ociserver"
	"github.com/opencontainers/go-digest"
	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// Config configures the registry.
type Config struct {
	Listener net.Listener // must serve TLS if URL begins with https; Run closes the listener
	Dir      string       // folder of the storage
	URL      string       // URL for clients, without a slash at its end
	Name     string       // host[:port] at the beginning of image names; the same as the engine's Config.Registry
	// TokensPerSecond limits the token requests of each address and of each
	// caller. The burst is ten times the rate. The default is 50.
	TokensPerSecond float64
	// StallTimeout is the longest time that the registry waits until the client sends the next byte
	// of a request, or reads the next part of a reply. After this time, the request fails. The
	// default is one minute.
	StallTimeout time.Duration
	// Collect is the interval between two collections of unreferenced files. It
	// is also the minimum age of the files that a collection removes. The
	// default is one hour.
	Collect time.Duration
	// Reserve is the number of bytes that pushes must leave free on the disk of
	// Dir. The default is 256 MiB. If Reserve is negative, there is no reserve.
	Reserve int64
	Limits  run.Limits
}

// Validate returns an error for each required field that is not set. It joins the errors of
// all fields.
func (c Config) Validate() error {
	var bad []error
	if c.Listener == nil {
		bad = append(bad, errors.New("registry: a listener is required"))
	}
	for field, s := range map[string]string{"a folder": c.Dir, "a URL": c.URL, "a name": c.Name} {
		if s == "" {
			bad = append(bad, fmt.Errorf("registry: %s is required", field))
		}
	}
	return errors.Join(bad...)
}

// Limits of a request. The transfer of a blob has no time limit, but each part of the blob
// must arrive within Config.StallTimeout.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	stopTimeout   = 5 * time.Second
	maxStreams    = 32 // concurrent requests on an HTTP/2 connection
)

type server struct {
	log    *slog.Logger
	cfg    Config
	engine *engine.Engine
	files  *files
	guard  *guard
	store  *backend
	limits tokenLimits
	oci    http.Handler

	manifests chan struct{} // semaphore; each manifest that a client is pushing takes one entry
}

// Run serves the registry until ctx ends. Then Run waits for the requests in progress. After the
// duration stopTimeout, it closes the connections that are still open.
func Run(ctx context.Context, log *slog.Logger, cfg Config, e *engine.Engine) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	s, err := newServer(log, cfg, e)
	if err != nil {
		return errors.Join(err, cfg.Listener.Close())
	}
	audit, err := keepDecisions(cfg.Dir, e)
	if err != nil {
		return errors.Join(err, cfg.Listener.Close())
	}
	defer func() { _ = audit.Close() }() // nothing to flush: each line was written at once
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	collected := make(chan struct{})
	inner, stop := context.WithCancel(ctx)
	go func() { defer close(collected); s.collect(inner) }()
	defer func() { stop(); <-collected }()
	return run.HTTP(ctx, srv, cfg.Listener, stopTimeout, cfg.Limits)
}

func newServer(log *slog.Logger, cfg Config, e *engine.Engine) (*server, error) {
	if cfg.TokensPerSecond == 0 {
		cfg.TokensPerSecond = 50
	}
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = time.Minute
	}
	if cfg.Collect == 0 {
		cfg.Collect = time.Hour
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = 256 << 20
	}
	for _, dir := range []string{"blobs", "repositories"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
	}
	f := &files{dir: cfg.Dir, reserve: cfg.Reserve}
	s := &server{log: log, cfg: cfg, engine: e, files: f, guard: &guard{engine: e, files: f}}
	s.limits = tokenLimits{perSecond: rate.Limit(cfg.TokensPerSecond), burst: max(1, int(10*cfg.TokensPerSecond))}
	s.manifests = make(chan struct{}, maxManifests)
	s.store = &backend{files: f, guard: s.guard, quotas: &quotaChecker{engine: e, files: f}}
	s.oci = ociserver.New(s.store, &ociserver.Options{WriteError: s.writeError})
	return s, nil
}

// collect runs the collection at the configured interval until ctx ends.
func (s *server) collect(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Collect)
	defer tick.Stop()
	for {
		n, err := s.files.collect(ctx, s.cfg.Collect, s.engine.Repositories)
		switch {
		case err != nil:
			s.log.ErrorContext(ctx, "the garbage collection could not delete all unreferenced files and folders", "err", err)
		case n > 0:
			s.log.InfoContext(ctx, "the garbage collection deleted unreferenced files and folders", "files", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ServeHTTP answers requests of the token endpoint, the health check and the
// OCI protocol. The version check of the protocol, /v2/, requires a valid
// bearer token. The token may have any scope.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	about := s.newSession(w, r)
	about.extendDeadline()
	switch r.URL.Path {
	case tokenPath:
		if r.Method == http.MethodPost { // for a request without a body, net/http would end the request at the deadline
			_ = about.conn.SetReadDeadline(time.Now().Add(min(s.cfg.StallTimeout, headerTimeout))) // the whole request is small
		}
		s.answerTokenRequest(w, r)
		return
	case "/healthz":
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	s.guard.admit(about, r)
	if about.caller.Name() != "" {
		run.Authenticated(r.Context())
	}
	r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, about))
	w = &faultyResponse{ResponseWriter: w, s: about}
	about.clearDeadline() // faultyResponse sets the deadline before each write
	if (r.URL.Path == "/v2/" || r.URL.Path == "/v2") && about.bad != nil {
		s.writeError(w, r, challengeOf(about.bad, ""))
		return
	}
	about.noNames = r.URL.Query().Get("n") == "0"
	if repo, reference, ok := manifestOf(r); ok {
		release, err := s.readManifest(w, r, repo, reference)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		defer release()
	} else {
		r.Body = &deadlineBody{r.Body, about.conn, s.cfg.StallTimeout}
	}
	if err := s.resolveSuffix(r); err != nil {
		s.writeError(w, r, err)
		return
	}
	s.oci.ServeHTTP(w, s.withoutMount(r))
}

// maxManifests limits how many manifests the registry reads and stores
// concurrently. A manifest may need about 30 MiB of memory for its text, a copy
// of the text and the parsed form.
const maxManifests = 8

// manifestOf returns the repository and the reference of a request that pushes
// a manifest. It returns false for other requests.
func manifestOf(r *http.Request) (repo, reference string, ok bool) {
	dir, reference := path.Split(strings.TrimPrefix(r.URL.Path, "/v2/"))
	repo, ok = strings.CutSuffix(dir, "/manifests/")
	return repo, reference, ok && r.Method == http.MethodPut
}

// readManifest authorizes a push and then reads the manifest. It rejects an invalid reference or
// manifest with status 400, because the OCI library would answer with status 404 or 500. If
// readManifest succeeds, the caller must call the returned function release at the end of the
// request. Until this call, the request occupies one of the maxManifests entries of the semaphore
// server.manifests.
func (s *server) readManifest(w http.ResponseWriter, r *http.Request, repo, reference string) (release func(), err error) {
	ctx := r.Context()
	if err := s.guard.allow(ctx, repo, push); err != nil {
		return nil, err
	}
	switch {
	case strings.Contains(reference, ":"):
		if err := check(digest.Digest(reference)); err != nil {
			return nil, err
		}
	case !ociref.IsValidTag(reference):
		return nil, fmt.Errorf("%w: %.150q is not a valid tag", oci.ErrManifestInvalid, reference)
	}
	if r.ContentLength > maxManifest {
		return nil, &http.MaxBytesError{Limit: maxManifest}
	}
	timer := time.NewTimer(s.cfg.StallTimeout)
	defer timer.Stop()
	select {
	case s.manifests <- struct{}{}:
		release = func() { <-s.manifests }
	case <-timer.C:
		return nil, errWithCode(oci.ErrTooManyRequests, "too many clients are pushing manifests: try again")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// One deadline applies to the whole body, so that a slow client cannot
	// occupy its entry of the semaphore for long.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(min(s.cfg.StallTimeout, headerTimeout))) // some connections do not support deadlines
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifest))
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(raw))
		_, err = parse(raw)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// resolveSuffix replaces a range that counts from the end of a blob. The new range counts from the
// beginning. The library supports only ranges that count from the beginning.
func (s *server) resolveSuffix(r *http.Request) error {
	suffix, ok := strings.CutPrefix(strings.TrimSpace(r.Header.Get("Range")), "bytes=-")
	if !ok || r.Method != http.MethodGet {
		return nil
	}
	dir, encoded := path.Split(strings.TrimPrefix(r.URL.Path, "/v2/"))
	repo, ok := strings.CutSuffix(dir, "/blobs/")
	last, bad := strconv.ParseUint(suffix, 10, 63)
	if !ok || bad != nil {
		return nil //nolint:nilerr // the library rejects the invalid range
	}
	if err := s.guard.allow(r.Context(), repo, pull); err != nil {
		return err
	}
	desc, err := s.files.blobDescriptor(repo, digest.Digest(encoded))
	if err != nil {
		return err
	}
	if last == 0 || desc.Size == 0 { // RFC 9110 section 14.1.2
		return oci.ErrRangeInvalid
	}
	r.Header.Set("Range", fmt.Sprintf("bytes=%d-", desc.Size-min(desc.Size, int64(last))))
	return nil
}

// withoutMount checks whether r asks for the mount of a blob from another repository. If the caller
// cannot pull the blob from that repository, withoutMount returns a request for an upload without
// the mount, as the OCI distribution specification recommends. Otherwise it returns r.
func (s *server) withoutMount(r *http.Request) *http.Request {
	q := r.URL.Query()
	from, blob := q.Get("from"), q.Get("mount")
	if r.Method != http.MethodPost || from == "" || blob == "" {
		return r
	}
	about := sessionOf(r.Context())
	about.faultsChecked = true // so that checkFaults does not apply the fault rules to the source repository
	may := s.store.mayMount(r.Context(), from, digest.Digest(blob))
	about.faultsChecked = false // so that checkFaults applies the fault rules to the push
	if may {
		return r
	}
	q.Del("from")
	q.Del("mount")
	u := *r.URL
	u.RawQuery = q.Encode()
	r = r.Clone(r.Context())
	r.URL = &u
	return r
}

// deadlineBody wraps a request body. It extends the read deadline before each read. A read
// therefore fails if the client sends nothing for the duration stall.
type deadlineBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	stall time.Duration
}

func (l *deadlineBody) Read(p []byte) (int, error) {
	_ = l.conn.SetReadDeadline(time.Now().Add(l.stall)) // some connections do not support deadlines
	return l.ReadCloser.Read(p)
}

// writeError answers a request with an error. If the error has no code of the OCI
// distribution specification and no HTTP status, writeError logs the error and sends the
// client only a general message.
func (s *server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := errors.AsType[*injectedFault](err); ok {
		e.writeError(w)
		return
	}
	if c, ok := errors.AsType[*challenge](err); ok {
		w.Header().Set("WWW-Authenticate", c.header(s.realm(r), s.cfg.Name))
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = errWithCode(oci.ErrSizeInvalid, "a manifest may have at most 4 MiB")
	}
	err = replaceDiskFull(cmp.Or(sessionOf(r.Context()).unwritten, err))
	if _, ok := errors.AsType[oci.Error](err); !ok {
		if _, ok := errors.AsType[oci.HTTPError](err); !ok && r.Context().Err() == nil {
			s.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
			err = errors.New("internal error: see the cloud's log")
		}
	}
	_ = oci.WriteError(w, err) // an error means that the client has left
}

// realm returns the URL of the token endpoint for a challenge. If a fault of
// the type corruptToken applies, the method returns a wrong URL.
func (s *server) realm(r *http.Request) string {
	hit, err := s.engine.Decide((engine.RegistryCaller{}).Context(r.Context(), requestID(r)), engine.Subject{Operation: cloudsim.RegistryChallenge})
	if err == nil && hit.Fault != nil && hit.Fault.Effect.Type == cloudsim.FaultCorruptToken {
		return s.cfg.URL + "/not-the-token-endpoint"
	}
	return s.cfg.URL + tokenPath
}
