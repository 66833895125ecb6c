package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// registryClaims contains the claims of a password or a bearer token of the registry. The claims
// identify the caller. They can limit the caller's permissions, but give no permissions. The
// registry checks the caller's present roles at each use. Therefore the revocation of a role takes
// effect at once.
type registryClaims struct {
	Issuer   string                    `json:"iss"`
	Subject  string                    `json:"sub"`
	Audience string                    `json:"aud"`
	Expires  int64                     `json:"exp"`
	From     int64                     `json:"nbf"`
	IssuedAt int64                     `json:"iat"`
	TokenID  string                    `json:"jti"`
	Use      string                    `json:"use"`
	Account  cloudsim.ServiceAccountID `json:"account,omitempty"`
	Token    cloudsim.TokenID          `json:"token,omitempty"` // token of a caller that is not a service account
	PullOnly bool                      `json:"pullOnly,omitempty"`
	Only     []string                  `json:"only,omitempty"`    // names of the permitted repositories; empty means all
	Access   []cloudsim.RegistryAccess `json:"access,omitempty"`  // permitted actions; only bearer tokens have this claim
	Refused  string                    `json:"refused,omitempty"` // reason for which a bearer token permits nothing
}

const (
	usePassword = "password"
	useBearer   = "bearer"
)

var credentialNames = map[string]string{usePassword: "registry password", useBearer: "bearer token"}

// RegistryBearer is the answer of the registry's token endpoint.
type RegistryBearer struct {
	Token    string
	IssuedAt time.Time
	Life     time.Duration
	Granted  []cloudsim.RegistryAccess
}

// RegistryCaller is the caller that a password or a bearer token identifies.
type RegistryCaller struct {
	claims registryClaims
	call   Call
}

// Context returns a ctx with the identity of caller c. The method Engine.Decide reads the caller
// from this ctx.
func (c RegistryCaller) Context(ctx context.Context, requestID string) context.Context {
	call := c.call
	call.RequestID = requestID
	return context.WithValue(ctx, callKey{}, call)
}

// Name returns the name of the caller.
func (c RegistryCaller) Name() string { return c.call.Caller }

// CreateRegistryCredential creates a registry password for the caller. It returns Unavailable if
// the cloud has no registry. The password of a service account is valid until the password expires
// or the service account is deleted. If the caller is not a service account, the password also
// becomes invalid when the caller's token expires or is deleted.
func (im *imageManager) CreateRegistryCredential(ctx context.Context, req cloudsim.CreateRegistryCredential) (c cloudsim.RegistryCredential, err error) {
	if err := req.Validate(); err != nil {
		return c, err
	}
	call, err := callOf(ctx)
	if err != nil {
		return c, err
	}
	if im.cfg.Registry == "" {
		return c, cloudsim.Errorf(cloudsim.Unavailable, "this cloud has no registry: start the cloud with 'allinone cloudsim --registry-listen'")
	}
	if req.TTLSeconds == 0 {
		req.TTLSeconds = cloudsim.MaxRegistryPassword
	}
	err = im.store.View(func(tx *store.Tx) error {
		claims := im.newClaims(tx, usePassword, time.Duration(req.TTLSeconds)*time.Second)
		claims.Subject, claims.Account, claims.PullOnly, claims.Only = call.Caller, call.account, req.PullOnly, req.Repositories
		if call.account == "" {
			claims.Token = call.Token
		}
		c = cloudsim.RegistryCredential{
			Registry: im.cfg.Registry, Username: cloudsim.RegistryUser,
			ExpiresAt: time.Unix(claims.Expires, 0).UTC(), TTLSeconds: claims.Expires - claims.IssuedAt,
		}
		c.Password, err = sign(tx, cloudsim.KeyRegistry, claims)
		return err
	})
	return c, err
}

func (im *imageManager) newClaims(tx *store.Tx, use string, life time.Duration) registryClaims {
	return registryClaims{
		Issuer: im.cfg.Issuer, Audience: im.cfg.Registry, Use: use, TokenID: rand.Text(),
		From: tx.Now.Unix(), IssuedAt: tx.Now.Unix(), Expires: tx.Now.Add(life).Unix(),
	}
}

// AuthorizeRegistryPassword authenticates a password. The password is from
// CreateRegistryCredential, or is the secret of a token of the cloud.
func (im *imageManager) AuthorizeRegistryPassword(password string) (c RegistryCaller, err error) {
	err = im.store.View(func(tx *store.Tx) error {
		t, _, err := authenticate(tx, password)
		if err == nil {
			c.claims = im.newClaims(tx, usePassword, cloudsim.RegistryBearerLife)
			c.claims.Account = t.ServiceAccount
			if t.ServiceAccount == "" {
				c.claims.Token = t.ID
			}
			err := c.call.identify(tx, t)
			c.claims.Subject = c.call.Caller
			return err
		}
		if !errors.Is(err, cloudsim.Unauthenticated) {
			return err
		}
		c, err = im.readClaims(tx, password, usePassword)
		return err
	})
	return c, err
}

// AuthorizeRegistryBearer authenticates a bearer token.
func (im *imageManager) AuthorizeRegistryBearer(bearer string) (c RegistryCaller, err error) {
	err = im.store.View(func(tx *store.Tx) error {
		c, err = im.readClaims(tx, bearer, useBearer)
		return err
	})
	return c, err
}

// readClaims verifies a token of the registry, and checks that the caller in the token still
// exists. It compares times with the cloud's clock, without tolerance.
func (im *imageManager) readClaims(tx *store.Tx, token, use string) (c RegistryCaller, err error) {
	name := credentialNames[use]
	signed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	switch {
	case err != nil && use == usePassword:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the password is neither a valid token of the cloud nor a registry password")
	case err != nil:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the %s is not a JWT that is signed with ES256", name)
	}
	if err := verify(tx, cloudsim.KeyRegistry, name, signed, &c.claims); err != nil {
		return c, err
	}
	now := tx.Now.Unix()
	switch {
	case c.claims.Use != use:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "got a %s, but a %s is needed", credentialNames[c.claims.Use], name)
	case c.claims.Issuer != im.cfg.Issuer:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the %s was issued by %q, not by this cloud", name, c.claims.Issuer)
	case c.claims.Audience != im.cfg.Registry:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the %s is for %q, not for this registry", name, c.claims.Audience)
	case now < c.claims.From:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the %s is not valid before %s", name, time.Unix(c.claims.From, 0).UTC().Format(time.RFC3339))
	case now >= c.claims.Expires:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the %s expired at %s", name, time.Unix(c.claims.Expires, 0).UTC().Format(time.RFC3339))
	}
	if c.claims.Refused != "" {
		return c, nil
	}
	t := cloudsim.Token{Meta: cloudsim.Meta{Name: c.claims.Subject}, ServiceAccount: c.claims.Account}
	if c.claims.Token != "" {
		t, err = tokens.Get(tx, string(c.claims.Token))
		if errors.Is(err, cloudsim.NotFound) || err == nil && t.ExpiresAt != nil && !tx.Now.Before(*t.ExpiresAt) {
			return c, cloudsim.Errorf(cloudsim.Unauthenticated, "the token %s, which created the password, was deleted or has expired", c.claims.Token)
		}
		if err != nil {
			return c, err
		}
	}
	err = c.call.identify(tx, t)
	if errors.Is(err, cloudsim.NotFound) {
		err = cloudsim.Errorf(cloudsim.Unauthenticated, "the service account %s of the %s does not exist any more", c.claims.Account, name)
	}
	if err == nil && c.call.Caller != c.claims.Subject { // after the load of a saved state, the id may belong to another caller
		err = cloudsim.Errorf(cloudsim.Unauthenticated, "the caller %s of the %s does not exist any more", c.claims.Subject, name)
	}
	return c, err
}

// CreateRegistryBearer creates a bearer token. The token contains only those requested actions that
// the caller's roles and password permit, and no actions on missing repositories.
// CreateRegistryBearer returns no error if the token contains only some or none of the requested
// actions.
func (im *imageManager) CreateRegistryBearer(c RegistryCaller, requestID string, requests []cloudsim.RegistryAccess) (b RegistryBearer, err error) {
	var entries []func()
	err = im.store.View(func(tx *store.Tx) error {
		b.Granted = nil
		for _, a := range requests {
			granted := cloudsim.RegistryAccess{Type: a.Type, Name: a.Name}
			for _, action := range a.Actions {
				_, refused := im.mayUse(tx, c, a.Type, a.Name, action)
				if refused == nil {
					granted.Actions = append(granted.Actions, action)
				}
				entries = append(entries, func() { im.recordDecision(c, requestID, cloudsim.RegistryToken, a.Name+":"+action, refused) })
			}
			if granted.Actions != nil {
				b.Granted = append(b.Granted, granted)
			}
		}
		claims := im.newClaims(tx, useBearer, cloudsim.RegistryBearerLife)
		claims.Expires = min(claims.Expires, max(c.claims.Expires, claims.IssuedAt))
		claims.Subject, claims.Account, claims.Token, claims.PullOnly, claims.Only = c.claims.Subject, c.claims.Account, c.claims.Token, c.claims.PullOnly, c.claims.Only
		claims.Access = b.Granted
		b.IssuedAt, b.Life = tx.Now, time.Duration(claims.Expires-claims.IssuedAt)*time.Second
		b.Token, err = sign(tx, cloudsim.KeyRegistry, claims)
		return err
	})
	for _, write := range entries {
		write()
	}
	return b, err
}

// CreateRegistryRefusal creates a bearer token that permits nothing. The registry answers each use
// of the token with the given reason. This token is for clients that show users the answers of the
// registry, but do not show the answers of the token endpoint.
func (im *imageManager) CreateRegistryRefusal(reason string) (b RegistryBearer, err error) {
	err = im.store.View(func(tx *store.Tx) error {
		claims := im.newClaims(tx, useBearer, cloudsim.RegistryBearerLife)
		claims.Refused = reason
		b = RegistryBearer{IssuedAt: tx.Now, Life: cloudsim.RegistryBearerLife}
		b.Token, err = sign(tx, cloudsim.KeyRegistry, claims)
		return err
	})
	return b, err
}

// ErrRegistryScope is the error of AllowRegistry for a valid bearer token that does not include the
// action. The client can request another token.
var ErrRegistryScope = errors.New("the bearer token has no permission for this call")

// AllowRegistry checks an action of caller c and returns the repository of the action. It returns
// the first error of this list that applies:
//   - Denied: the caller's present roles or password do not permit the action.
//   - NotFound: the repository does not exist.
//   - ErrRegistryScope: the bearer token does not include the action.
func (im *imageManager) AllowRegistry(c RegistryCaller, requestID, kind, name, action string) (r cloudsim.Repository, err error) {
	err = im.store.View(func(tx *store.Tx) error {
		if c.claims.Refused != "" {
			return cloudsim.Errorf(cloudsim.Denied, "%s", c.claims.Refused)
		}
		r, err = im.mayUse(tx, c, kind, name, action)
		if err == nil && !slices.ContainsFunc(c.claims.Access, func(a cloudsim.RegistryAccess) bool { return a.Has(kind, name, action) }) {
			return ErrRegistryScope
		}
		return err
	})
	operation, resource := RegistryOperation(kind, name, action)
	im.recordDecision(c, requestID, operation, resource, err)
	return r, err
}

// RegistryOperation returns the operation and the resource for the audit entry of an action.
func RegistryOperation(kind, name, action string) (operation, resource string) {
	if kind == "registry" && name == "catalog" {
		return cloudsim.RegistryCatalog, ""
	}
	return "registry." + action, name
}

// mayUse returns Denied if the caller's present roles or the limits of the caller's password do not
// permit the action. Otherwise it returns NotFound if the repository is missing. If a repository
// exists, but the caller may neither execute the action on it nor pull it, mayUse handles the
// repository as missing.
func (im *imageManager) mayUse(tx *store.Tx, c RegistryCaller, kind, name, action string) (r cloudsim.Repository, err error) {
	if kind == "registry" && name == "catalog" && action == "*" {
		if c.claims.PullOnly || len(c.claims.Only) > 0 {
			return r, cloudsim.Errorf(cloudsim.Denied, "the password of %s does not permit a list of all repositories", c.call.caller())
		}
		return r, c.call.allowed(cloudsim.RegistryCatalog, Admin, name)
	}
	class, known := map[string]Access{"pull": Read, "push": Write, "delete": Write}[action]
	if kind != "repository" || !known {
		return r, cloudsim.Errorf(cloudsim.Denied, "the registry does not support the access %s:%s", kind, action)
	}
	if c.claims.PullOnly && action != "pull" || len(c.claims.Only) > 0 && !slices.Contains(c.claims.Only, name) {
		return r, cloudsim.Errorf(cloudsim.Denied, "the password of %s does not permit the action %s on repository %s", c.call.caller(), action, name)
	}
	r, err = findRepository(tx, name)
	missing := errors.Is(err, cloudsim.NotFound)
	if err != nil && !missing {
		return r, err
	}
	if !missing {
		projectCall := c.call
		projectCall.Project = r.Project
		if err := projectCall.allowed("registry."+action, class, name); err == nil || projectCall.allowed(cloudsim.RegistryPull, Read, name) == nil {
			return r, err
		}
	}
	// The errors below are the same for a missing repository and for a repository that the caller
	// has no permission to pull. The errors thus do not show whether the repository exists.
	if err := c.call.allowed("registry."+action, class, name); err != nil {
		return cloudsim.Repository{}, err
	}
	return cloudsim.Repository{}, cloudsim.Errorf(cloudsim.NotFound, "no repository %s: create the repository: POST /v1/repositories, or 'allinone cloud repositories create'", name)
}

// maxDecisions is the maximum number of decisions of the registry that the engine keeps in memory.
const maxDecisions = 1000

// decisions is the audit trail of the registry. Each decision says whether the registry permitted
// an action of a caller. The latest decisions are in memory. All decisions are in the log, and in
// the registry's audit file if there is one.
type decisions struct {
	mu   sync.Mutex
	last []cloudsim.RegistryDecision // a ring buffer after it has maxDecisions entries
	next int
	to   io.Writer // audit file; nil for none
}

func (d *decisions) add(one cloudsim.RegistryDecision) {
	if len(d.last) < maxDecisions {
		d.last = append(d.last, one)
		return
	}
	d.last[d.next] = one
	d.next = (d.next + 1) % maxDecisions
}

// KeepRegistryDecisions initializes the audit trail. The iterator oldLines yields the existing
// lines of the audit file. Each line contains one decision as JSON. The iterator must not reuse the
// memory of a line before KeepRegistryDecisions returns. KeepRegistryDecisions ignores invalid
// lines. The engine writes each new decision to auditFile as one line, with one call of Write. A
// nil auditFile means no file.
func (im *imageManager) KeepRegistryDecisions(oldLines iter.Seq[[]byte], auditFile io.Writer) {
	lines := make([][]byte, 0, maxDecisions)
	for line := range oldLines {
		if len(lines) == 2*maxDecisions { // keep only the last lines, so that most lines of a long file need no decoding
			lines = append(lines[:0], lines[maxDecisions:]...)
		}
		lines = append(lines, line)
	}
	im.decisions.mu.Lock()
	defer im.decisions.mu.Unlock()
	im.decisions.last, im.decisions.next, im.decisions.to = nil, 0, auditFile
	for _, line := range lines {
		var d cloudsim.RegistryDecision
		if json.Unmarshal(line, &d) == nil {
			im.decisions.add(d)
		}
	}
}

func (im *imageManager) recordDecision(c RegistryCaller, requestID, operation, resource string, refused error) {
	im.AuditRegistry(cloudsim.RegistryDecision{Caller: c.call.Caller, Operation: operation, Resource: resource, RequestID: requestID}, refused)
}

// AuditRegistry writes an audit entry. If refused is nil, the entry says that the cloud allowed the
// action. Otherwise the entry says that the cloud refused the action, and contains the error as the
// reason.
func (im *imageManager) AuditRegistry(d cloudsim.RegistryDecision, refused error) {
	d.Time, d.Allowed = im.Now(), refused == nil
	if refused != nil {
		d.Reason = refused.Error()
	}
	im.log.Info("registry", "caller", d.Caller, "operation", d.Operation, "resource", d.Resource, "allowed", d.Allowed, "reason", d.Reason, "requestId", d.RequestID)
	im.decisions.mu.Lock()
	defer im.decisions.mu.Unlock()
	im.decisions.add(d)
	if im.decisions.to == nil {
		return
	}
	line, err := json.Marshal(d)
	if err == nil {
		_, err = im.decisions.to.Write(append(line, '\n'))
	}
	if err != nil {
		im.log.Error("cannot write a decision of the registry to the audit file", "err", err)
	}
}

// ListRegistryDecisions returns the latest decisions, the newest last. It does
// not check permissions, so its caller must authorize the call first.
func (im *imageManager) ListRegistryDecisions(context.Context) (cloudsim.List[cloudsim.RegistryDecision], error) {
	im.decisions.mu.Lock()
	defer im.decisions.mu.Unlock()
	n := im.decisions.next
	all := slices.Concat(im.decisions.last[n:], im.decisions.last[:n])
	return cloudsim.List[cloudsim.RegistryDecision]{Items: append([]cloudsim.RegistryDecision{}, all...)}, nil
}
