package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	oci "cuelabs.dev/go/oci/ociregistry"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// The actions on a repository.
const (
	pull   = "pull"
	push   = "push"
	remove = "delete"
)

// session contains the data of one request while the registry processes the request. Only
// the request's goroutine uses the session.
type session struct {
	requestID     string
	caller        engine.RegistryCaller
	bad           error // reason why the caller is unknown; nil if the bearer token is valid
	allowed       []access
	project       cloudsim.ProjectID // project of the most recently allowed repository
	faultsChecked bool               // checkFaults has already checked the fault rules
	noNames       bool               // the request asks for a list of zero names, which must not return all names
	after         *cloudsim.Fault
	unwritten     error // error of a failed blob write; stored here, because the library passes on only the text of the error

	conn  *http.ResponseController
	stall time.Duration // Config.StallTimeout
}

// access is a permission that the guard has granted to a request.
type access struct{ repo, action string }

type sessionKey struct{}

func sessionOf(ctx context.Context) *session {
	s, ok := ctx.Value(sessionKey{}).(*session)
	if !ok {
		return &session{bad: errNoBearer}
	}
	return s
}

var errNoBearer = errors.New("no bearer token")

// guard asks the engine for authorization before every access.
type guard struct {
	engine *engine.Engine
	files  *files
}

// extendDeadline sets the write deadline for the next part of the reply. If the client does not
// read this part within s.stall, the write fails.
func (s *session) extendDeadline() {
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.stall)) // some connections do not support deadlines
}

// clearDeadline removes the write deadline until the next call of extendDeadline. Without
// clearDeadline, the deadline would expire during a long push, or during a delay that a fault
// causes. An expired deadline resets a stream of HTTP/2, even if the registry is not writing.
func (s *session) clearDeadline() {
	_ = s.conn.SetWriteDeadline(time.Time{}) // some connections do not support deadlines
}

// newSession returns the session of a new request. The session has no caller until admit has read
// the bearer token.
func (s *server) newSession(w http.ResponseWriter, r *http.Request) *session {
	return &session{requestID: requestID(r), conn: http.NewResponseController(w), stall: s.cfg.StallTimeout}
}

// admit reads the bearer token of a request. If the token is invalid, admit only stores the error
// in the session. The guard refuses the request later, at its first access to a repository, because
// the challenge in the answer must name the scope of this access.
func (g *guard) admit(s *session, r *http.Request) {
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		s.bad = errNoBearer
		return
	}
	s.caller, s.bad = g.engine.AuthorizeRegistryBearer(strings.TrimSpace(bearer))
}

// maxRequestID is the maximum length of a request id in the audit trail. The registry cuts
// off the rest of a longer id.
const maxRequestID = 128

func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	return strings.ToValidUTF8(id[:min(len(id), maxRequestID)], "")
}

// allow returns an error if the request has no permission for the given action on a repository. If
// the engine has already permitted this action on this repository for the same request, allow does
// not ask the engine again. The audit trail therefore has only one entry for this access.
func (g *guard) allow(ctx context.Context, repo, action string) error {
	s := sessionOf(ctx)
	if slices.Contains(s.allowed, access{repo, action}) {
		return nil
	}
	scope := "repository:" + repo + ":" + action
	if action == push {
		scope = "repository:" + repo + ":pull,push"
	}
	record, err := g.ask(s, "repository", repo, action, scope)
	if err != nil {
		return err
	}
	if err := g.files.claimFolder(repo, record, g.engine.Repositories); err != nil {
		return err
	}
	if err := g.checkFaults(ctx, s, "registry."+action, repo); err != nil {
		return err
	}
	s.allowed, s.project = append(s.allowed, access{repo, action}), record.Project
	return nil
}

// allowCatalog returns an error if the request has no permission to list all repositories.
func (g *guard) allowCatalog(ctx context.Context) error {
	s := sessionOf(ctx)
	if _, err := g.ask(s, "registry", "catalog", "*", "registry:catalog:*"); err != nil {
		return err
	}
	return g.checkFaults(ctx, s, cloudsim.RegistryCatalog, "")
}

func (g *guard) ask(s *session, kind, name, action, scope string) (cloudsim.Repository, error) {
	if s.bad != nil {
		if !errors.Is(s.bad, errNoBearer) { // a request without a token gets no entry in the audit trail, because every client begins with such a request
			operation, resource := engine.RegistryOperation(kind, name, action)
			g.engine.AuditRegistry(cloudsim.RegistryDecision{Operation: operation, Resource: resource, RequestID: s.requestID}, s.bad)
		}
		return cloudsim.Repository{}, challengeOf(s.bad, scope)
	}
	r, err := g.engine.AllowRegistry(s.caller, s.requestID, kind, name, action)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, engine.ErrRegistryScope):
		return r, &challenge{scope: scope, kind: "insufficient_scope", why: err.Error()}
	case errors.Is(err, cloudsim.NotFound):
		return r, errWithCode(oci.ErrNameUnknown, err.Error())
	case errors.Is(err, cloudsim.Denied):
		return r, errWithCode(oci.ErrDenied, err.Error())
	}
	return r, err
}

// errWithCode returns an error with the given message. The error has the same error code as the
// parameter template.
func errWithCode(template oci.Error, message string) error {
	return oci.NewError(message, template.Code(), json.RawMessage(nil))
}

// challenge is the error for a missing, invalid or insufficient bearer token. The answer
// tells the client to request a token at the token endpoint.
type challenge struct {
	scope string
	kind  string // error code of RFC 6750 section 3.1; "" for a client without a token
	why   string
}

func challengeOf(bad error, scope string) error {
	if errors.Is(bad, errNoBearer) {
		return &challenge{scope: scope, why: "authentication required"}
	}
	if cloudsim.KindOf(bad) != cloudsim.Unauthenticated {
		return bad
	}
	return &challenge{scope: scope, kind: "invalid_token", why: "the bearer token is invalid: " + bad.Error()}
}

func (c *challenge) Error() string           { return c.why }
func (c *challenge) Code() string            { return oci.ErrUnauthorized.Code() }
func (c *challenge) Detail() json.RawMessage { return nil }

// header returns the value of the WWW-Authenticate header.
func (c *challenge) header(realm, service string) string {
	h := fmt.Sprintf("Bearer realm=%q,service=%q", realm, service)
	if c.scope != "" {
		h += fmt.Sprintf(",scope=%q", c.scope)
	}
	if c.kind != "" {
		h += fmt.Sprintf(",error=%q", c.kind)
	}
	return h
}
