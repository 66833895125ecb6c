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

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// registryClaims is what passwords and bearers of the registry say. They name
// who they are for and not what he may do: roles are asked at every use, so
// that what is taken away is gone at once.
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
	Token    cloudsim.TokenID          `json:"token,omitempty"` // of a caller that is no service account
	PullOnly bool                      `json:"pullOnly,omitempty"`
	Only     []string                  `json:"only,omitempty"`    // repositories; none for all
	Access   []cloudsim.RegistryAccess `json:"access,omitempty"`  // of a bearer
	Refused  string                    `json:"refused,omitempty"` // why a bearer opens nothing
}

const (
	usePassword = "password"
	useBearer   = "bearer"
)

// RegistryBearer is what the token endpoint answers.
type RegistryBearer struct {
	Token    string
	IssuedAt time.Time
	Life     time.Duration
	Granted  []cloudsim.RegistryAccess
}

// RegistryCaller is who opened the registry, by a password or a bearer.
type RegistryCaller struct {
	claims registryClaims
	call   Call
}

// Context is ctx as a call of c, for what asks who calls, such as faults.
func (c RegistryCaller) Context(ctx context.Context, requestID string) context.Context {
	call := c.call
	call.RequestID = requestID
	return context.WithValue(ctx, callKey{}, call)
}

// Name is who c is.
func (c RegistryCaller) Name() string { return c.call.Caller }

// CreateRegistryCredential makes a password for the caller. It is good for no
// longer than the token that it was asked with, unless that is a service
// account's.
func (e *Engine) CreateRegistryCredential(ctx context.Context, req cloudsim.CreateRegistryCredential) (c cloudsim.RegistryCredential, err error) {
	if err := req.Validate(); err != nil {
		return c, err
	}
	call, err := callOf(ctx)
	if err != nil {
		return c, err
	}
	if e.cfg.Registry == "" {
		return c, cloudsim.Errorf(cloudsim.Unavailable, "this cloud has no registry: start it with one")
	}
	if req.TTLSeconds == 0 {
		req.TTLSeconds = cloudsim.MaxRegistryPassword
	}
	err = e.store.View(func(tx *store.Tx) error {
		claims := e.newClaims(tx, usePassword, time.Duration(req.TTLSeconds)*time.Second)
		claims.Subject, claims.Account, claims.PullOnly, claims.Only = call.Caller, call.account, req.PullOnly, req.Repositories
		if call.account == "" {
			claims.Token = call.Token
		}
		c = cloudsim.RegistryCredential{
			Registry: e.cfg.Registry, Username: cloudsim.RegistryUser,
			ExpiresAt: time.Unix(claims.Expires, 0).UTC(), TTLSeconds: claims.Expires - claims.IssuedAt,
		}
		c.Password, err = sign(tx, cloudsim.KeyRegistry, claims)
		return err
	})
	return c, err
}

func (e *Engine) newClaims(tx *store.Tx, use string, life time.Duration) registryClaims {
	return registryClaims{
		Issuer: e.cfg.Issuer, Audience: e.cfg.Registry, Use: use, TokenID: rand.Text(),
		From: tx.Now.Unix(), IssuedAt: tx.Now.Unix(), Expires: tx.Now.Add(life).Unix(),
	}
}

// AdmitRegistryPassword says who a password is for: one that
// CreateRegistryCredential made, or the secret of a token of the cloud.
func (e *Engine) AdmitRegistryPassword(password string) (c RegistryCaller, err error) {
	err = e.store.View(func(tx *store.Tx) error {
		t, _, err := authenticate(tx, password)
		if err == nil {
			c.claims = e.newClaims(tx, usePassword, cloudsim.RegistryBearerLife)
			c.claims.Account = t.ServiceAccount
			if t.ServiceAccount == "" {
				c.claims.Token = t.ID
			}
			err := c.call.identify(tx, t)
			c.claims.Subject = c.call.Caller
			return err
		}
		c, err = e.readClaims(tx, password, usePassword)
		return err
	})
	return c, err
}

// AdmitRegistryBearer says who a bearer is for.
func (e *Engine) AdmitRegistryBearer(bearer string) (c RegistryCaller, err error) {
	err = e.store.View(func(tx *store.Tx) error {
		c, err = e.readClaims(tx, bearer, useBearer)
		return err
	})
	return c, err
}

// readClaims checks everything that a token says against the cloud's own
// clock, without leeway, and that who it is for still exists.
func (e *Engine) readClaims(tx *store.Tx, token, use string) (c RegistryCaller, err error) {
	if err := verify(tx, cloudsim.KeyRegistry, token, &c.claims); err != nil {
		return c, err
	}
	now := tx.Now.Unix()
	switch {
	case c.claims.Use != use:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "it is a %s where a %s is needed", c.claims.Use, use)
	case c.claims.Issuer != e.cfg.Issuer:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "it was issued by %q and not by this cloud", c.claims.Issuer)
	case c.claims.Audience != e.cfg.Registry:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "it is for %q and not for this registry", c.claims.Audience)
	case now < c.claims.From:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "it is not good before %s", time.Unix(c.claims.From, 0).UTC().Format(time.RFC3339))
	case now >= c.claims.Expires:
		return c, cloudsim.Errorf(cloudsim.Unauthenticated, "it expired at %s", time.Unix(c.claims.Expires, 0).UTC().Format(time.RFC3339))
	}
	if c.claims.Refused != "" {
		return c, nil
	}
	t := cloudsim.Token{Meta: cloudsim.Meta{Name: c.claims.Subject}, ServiceAccount: c.claims.Account}
	if c.claims.Token != "" {
		t, err = tokens.Get(tx, string(c.claims.Token))
		if errors.Is(err, cloudsim.NotFound) || err == nil && t.ExpiresAt != nil && !tx.Now.Before(*t.ExpiresAt) {
			return c, cloudsim.Errorf(cloudsim.Unauthenticated, "token %s, which it was made with, is gone", c.claims.Token)
		}
		if err != nil {
			return c, err
		}
	}
	err = c.call.identify(tx, t)
	if errors.Is(err, cloudsim.NotFound) {
		err = cloudsim.Errorf(cloudsim.Unauthenticated, "service account %s, which it is for, is gone", c.claims.Account)
	}
	if err == nil && c.call.Caller != c.claims.Subject { // an id is given again after a load
		err = cloudsim.Errorf(cloudsim.Unauthenticated, "%s, which it is for, is gone", c.claims.Subject)
	}
	return c, err
}

// CreateRegistryBearer makes a bearer of what is both asked for and allowed; a
// smaller grant is no error.
func (e *Engine) CreateRegistryBearer(c RegistryCaller, requestID string, asked []cloudsim.RegistryAccess) (b RegistryBearer, err error) {
	var entries []func()
	err = e.store.View(func(tx *store.Tx) error {
		b.Granted = nil
		for _, a := range asked {
			granted := cloudsim.RegistryAccess{Type: a.Type, Name: a.Name}
			for _, action := range a.Actions {
				_, refused := e.mayUse(tx, c, a.Type, a.Name, action)
				if refused == nil {
					granted.Actions = append(granted.Actions, action)
				}
				entries = append(entries, func() { e.decided(c, requestID, cloudsim.RegistryToken, a.Name+":"+action, refused) })
			}
			if granted.Actions != nil {
				b.Granted = append(b.Granted, granted)
			}
		}
		claims := e.newClaims(tx, useBearer, cloudsim.RegistryBearerLife)
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

// CreateRegistryRefusal makes a bearer that opens nothing, and says why to who
// tries: where a client tells people what the registry answers, and not what
// the token endpoint does.
func (e *Engine) CreateRegistryRefusal(why string) (b RegistryBearer, err error) {
	err = e.store.View(func(tx *store.Tx) error {
		claims := e.newClaims(tx, useBearer, cloudsim.RegistryBearerLife)
		claims.Refused = why
		b = RegistryBearer{IssuedAt: tx.Now, Life: cloudsim.RegistryBearerLife}
		b.Token, err = sign(tx, cloudsim.KeyRegistry, claims)
		return err
	})
	return b, err
}

// ErrRegistryScope is what AllowRegistry answers, wrapped, when a bearer is
// good but was not made for this: ask for another.
var ErrRegistryScope = errors.New("the bearer token was not made for this")

// AllowRegistry refuses what the bearer of c was not made for, and what its
// caller may not do, or not any more: another bearer would not help him, and he
// is told why. It returns the repository that it is about.
func (e *Engine) AllowRegistry(c RegistryCaller, requestID, kind, name, action string) (r cloudsim.Repository, err error) {
	err = e.store.View(func(tx *store.Tx) error {
		if c.claims.Refused != "" {
			return cloudsim.Errorf(cloudsim.Denied, "%s", c.claims.Refused)
		}
		r, err = e.mayUse(tx, c, kind, name, action)
		if !errors.Is(err, cloudsim.Denied) && !slices.ContainsFunc(c.claims.Access, func(a cloudsim.RegistryAccess) bool { return a.Has(kind, name, action) }) {
			return ErrRegistryScope
		}
		return err
	})
	operation, resource := RegistryOperation(kind, name, action)
	e.decided(c, requestID, operation, resource, err)
	return r, err
}

// RegistryOperation is how audit entries call an action of a scope, and on what.
func RegistryOperation(kind, name, action string) (operation, resource string) {
	if kind == "registry" && name == "catalog" {
		return cloudsim.RegistryCatalog, ""
	}
	return "registry." + action, name
}

// mayUse asks the roles of a caller, as they are now. One who may not use a
// repository does not learn whether there is one.
func (e *Engine) mayUse(tx *store.Tx, c RegistryCaller, kind, name, action string) (r cloudsim.Repository, err error) {
	if kind == "registry" && name == "catalog" && action == "*" {
		if c.claims.PullOnly || len(c.claims.Only) > 0 {
			return r, cloudsim.Errorf(cloudsim.Denied, "the password of %s was not made for the names of all repositories", c.call.who())
		}
		return r, c.call.allowed(cloudsim.RegistryCatalog, Admin, name)
	}
	class, known := map[string]Access{"pull": Read, "push": Write, "delete": Write}[action]
	if kind != "repository" || !known {
		return r, cloudsim.Errorf(cloudsim.Denied, "the registry knows no %s:%s", kind, action)
	}
	if c.claims.PullOnly && action != "pull" || len(c.claims.Only) > 0 && !slices.Contains(c.claims.Only, name) {
		return r, cloudsim.Errorf(cloudsim.Denied, "the password of %s was not made for %s of %s", c.call.who(), action, name)
	}
	r, err = findRepository(tx, name)
	missing := errors.Is(err, cloudsim.NotFound)
	if err != nil && !missing {
		return r, err
	}
	if !missing {
		there := c.call
		there.Project = r.Project
		if err := there.allowed("registry."+action, class, name); err == nil || there.allowed(cloudsim.RegistryPull, Read, name) == nil {
			return r, err
		}
	}
	// From here on the answer is the same whether there is such a repository or not.
	if err := c.call.allowed("registry."+action, class, name); err != nil {
		return cloudsim.Repository{}, err
	}
	return cloudsim.Repository{}, cloudsim.Errorf(cloudsim.NotFound, "no repository %s: make it by POST /v1/repositories, or 'allinone cloud repositories create'", name)
}

// maxDecisions is how many decisions are kept to be asked for.
const maxDecisions = 1000

// decisions is the registry's audit trail: the latest, and all of them in the
// log and where the registry keeps them.
type decisions struct {
	mu   sync.Mutex
	last []cloudsim.RegistryDecision // a ring once it is full
	next int
	to   io.Writer // nil for nowhere
}

func (d *decisions) add(one cloudsim.RegistryDecision) {
	if len(d.last) < maxDecisions {
		d.last = append(d.last, one)
		return
	}
	d.last[d.next] = one
	d.next = (d.next + 1) % maxDecisions
}

// KeepRegistryDecisions begins the audit trail with what was decided before, a
// JSON document a line, and writes each decision from now on to to, by one
// Write of a line. A line that is none is left out.
func (e *Engine) KeepRegistryDecisions(before iter.Seq[[]byte], to io.Writer) {
	lines := make([][]byte, 0, maxDecisions)
	for line := range before {
		if len(lines) == 2*maxDecisions { // most of a long file is never decoded
			lines = append(lines[:0], lines[maxDecisions:]...)
		}
		lines = append(lines, line)
	}
	e.decisions.mu.Lock()
	defer e.decisions.mu.Unlock()
	e.decisions.last, e.decisions.next, e.decisions.to = nil, 0, to
	for _, line := range lines {
		var d cloudsim.RegistryDecision
		if json.Unmarshal(line, &d) == nil {
			e.decisions.add(d)
		}
	}
}

// decided writes an audit entry.
func (e *Engine) decided(c RegistryCaller, requestID, operation, resource string, refused error) {
	e.AuditRegistry(cloudsim.RegistryDecision{Caller: c.call.Caller, Operation: operation, Resource: resource, RequestID: requestID}, refused)
}

// AuditRegistry writes an audit entry; a nil refused allowed it.
func (e *Engine) AuditRegistry(d cloudsim.RegistryDecision, refused error) {
	d.Time, d.Allowed = e.Now(), refused == nil
	if refused != nil {
		d.Reason = refused.Error()
	}
	e.log.Info("registry", "caller", d.Caller, "operation", d.Operation, "resource", d.Resource, "allowed", d.Allowed, "reason", d.Reason, "requestId", d.RequestID)
	e.decisions.mu.Lock()
	defer e.decisions.mu.Unlock()
	e.decisions.add(d)
	if e.decisions.to == nil {
		return
	}
	line, err := json.Marshal(d)
	if err == nil {
		_, err = e.decisions.to.Write(append(line, '\n'))
	}
	if err != nil {
		e.log.Error("a decision of the registry is in this log alone", "err", err)
	}
}

// ListRegistryDecisions returns the latest decisions, the newest last. It is
// for callers that passed the door.
func (e *Engine) ListRegistryDecisions(context.Context) (cloudsim.List[cloudsim.RegistryDecision], error) {
	e.decisions.mu.Lock()
	defer e.decisions.mu.Unlock()
	n := e.decisions.next
	all := slices.Concat(e.decisions.last[n:], e.decisions.last[:n])
	return cloudsim.List[cloudsim.RegistryDecision]{Items: append([]cloudsim.RegistryDecision{}, all...)}, nil
}
