package metadata

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// Cloud is the part of a cloud that the service calls. The client and the engine of the
// cloud both implement Cloud. A client needs the permissions of the role "metadata" for all
// instances.
type Cloud interface {
	GetInstance(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)
	ListInstances(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error)
	GetUserData(context.Context, cloudsim.InstanceID) (cloudsim.UserData, error)
	CreateIdentityDocument(context.Context, cloudsim.InstanceID, cloudsim.CreateIdentityDocument) (cloudsim.IdentityDocument, error)
	ListMetadataTrees(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.MetadataTree], error)
	CreateInstanceToken(context.Context, cloudsim.InstanceID) (cloudsim.Token, error)
}

// Address is the service's address inside the network of an instance.
const Address = "169.254.169.254:80"

// Listen listens on the given address. It disables multipath TCP, because
// multipath TCP does not support a hop limit. Go's listeners use multipath TCP by
// default.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", address)
}

// Config configures a service.
type Config struct {
	// Listener is a listener from the function Listen. The listener is in the network namespace
	// in which the caller calls Listen. The caller may call Run in another namespace. Run closes
	// the listener.
	Listener net.Listener
	// Instance is the instance that the listener belongs to. If Instance is empty, the
	// service finds the instance by the source address of the connection.
	Instance cloudsim.InstanceID
	// Hosts are the host names that the service accepts in the Host header. The service also
	// accepts any IP address in the Host header. The service refuses all other names, because a
	// DNS name that points to this machine may belong to an attacker (DNS rebinding).
	Hosts []string
	// If TrustLoopback is true, callers with an address in 127.0.0.0/8 or ::1 also get user
	// data, identity documents and tokens. Any user of the machine can call from a
	// loopback address, and can therefore pose as the instance with this address.
	TrustLoopback bool
	// Limits are the limits for connections. The limits Anonymous and AnonymousFor apply to a
	// connection until its first request with a valid session token.
	Limits run.Limits
}

// Validate returns an error if c has no listener.
func (c Config) Validate() error {
	if c.Listener == nil {
		return errors.New("metadata: a listener is required")
	}
	return nil
}

// These constants limit requests. All valid requests are short.
const (
	headerTimeout = 5 * time.Second
	replyTimeout  = 20 * time.Second
	cloudTimeout  = 10 * time.Second // for one call to the cloud
	idleTimeout   = 30 * time.Second
	maxHeader     = 16 << 10
	stopTimeout   = 2 * time.Second
)

// Run serves the metadata until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cfg Config, cloud Cloud) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := oneHop(cfg.Listener); err != nil {
		log.DebugContext(ctx, "cannot set the hop limit of replies to 1", "err", err)
	}
	srv := &http.Server{
		Handler:           newService(log, cfg, cloud).handler(),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return run.HTTP(ctx, srv, cfg.Listener, stopTimeout, cfg.Limits)
}

type service struct {
	log      *slog.Logger
	cfg      Config
	cloud    Cloud
	sessions *sessionIssuer
	finder   *finder
}

func newService(log *slog.Logger, cfg Config, cloud Cloud) *service {
	return &service{log: log, cfg: cfg, cloud: cloud, sessions: newSessions(), finder: newFinder(cloud)}
}

func (s *service) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cloudTimeout)
		defer cancel()
		w.Header().Set("Server", "cloudsim-metadata")
		w.Header().Set("Cache-Control", "no-store")
		id, err := s.answer(ctx, w, r)
		if err != nil {
			s.refuse(w, r, id, err)
		}
	})
}

func (s *service) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) (cloudsim.InstanceID, error) {
	if err := s.checkDirect(r); err != nil {
		return "", err
	}
	i, err := s.caller(ctx, r)
	if err != nil {
		return "", err
	}
	if !isOwnPath(r.URL.Path) {
		return i.ID, s.answerTree(ctx, w, r, i)
	}
	switch {
	case r.URL.Path == tokenPath:
		return i.ID, s.startSession(w, r, i.ID, ownSession)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		return i.ID, &httpError{http.StatusMethodNotAllowed, r.URL.Path + " supports only GET"}
	}
	if err := s.sessions.check(r, i.ID, ownSession); err != nil {
		return i.ID, err
	}
	if isSecret(r.URL.Path) {
		if err := s.mayHaveSecrets(r); err != nil {
			return i.ID, err
		}
	}
	run.Authenticated(ctx)
	v, err := s.document(ctx, i, r)
	if err != nil {
		return i.ID, err
	}
	return i.ID, writeAnswer(w, v)
}

// checkDirect refuses a request that came through a proxy. It also refuses a request
// with an unknown host name in the Host header, as protection against DNS rebinding.
func (s *service) checkDirect(r *http.Request) error {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
		if r.Header.Get(name) != "" {
			return &httpError{http.StatusForbidden, "a proxy forwarded the request (header " + name + "): connect without a proxy"}
		}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return nil
	}
	for _, name := range s.cfg.Hosts {
		if strings.EqualFold(host, name) {
			return nil
		}
	}
	return &httpError{http.StatusMisdirectedRequest, "the request is addressed to another host: use an IP address in the URL"}
}

// mayHaveSecrets returns nil if the listener belongs to one instance, or if TrustLoopback is set.
// Otherwise it refuses a caller with a loopback address, because any user of the machine can call
// from a loopback address.
func (s *service) mayHaveSecrets(r *http.Request) error {
	if s.cfg.Instance != "" || s.cfg.TrustLoopback {
		return nil
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return err
	}
	if !at.Addr().Unmap().IsLoopback() {
		return nil
	}
	return &httpError{http.StatusForbidden, r.URL.Path + " is secret, and any user of this machine can call from " + at.Addr().String() +
		": serve the instance in its own network namespace (allinone metadata --instance), or start the service with --trust-loopback (cloudsim: --metadata-trust-loopback)"}
}

func (s *service) caller(ctx context.Context, r *http.Request) (cloudsim.Instance, error) {
	if s.cfg.Instance != "" {
		return s.cloud.GetInstance(ctx, s.cfg.Instance)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return cloudsim.Instance{}, err
	}
	return s.finder.find(ctx, host)
}
