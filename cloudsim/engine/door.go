package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Request is what the door is told about a call before it may pass.
type Request struct {
	ID             string // request id, for journal and log
	Secret         string // bearer token; "" for none
	Project        string // id or name that an admin chose; "" for none
	IdempotencyKey string // "" for none
	Access         Access // what the call needs
}

// Access is what a call needs of its caller.
type Access uint8

const (
	Read  Access = iota // any role
	Write               // editor or admin
	Admin               // admin
)

// Call is a request that passed the door.
type Call struct {
	RequestID      string
	Caller         string // name of the token
	Role           cloudsim.Role
	Project        cloudsim.ProjectID // "" for an admin who chose none
	IdempotencyKey string
}

type callKey struct{}

// CallOf returns the call that ctx belongs to; false before the door.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

// AsCloud is ctx for work that the cloud does itself: it sees every project.
func AsCloud(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, Call{Caller: "cloud", Role: cloudsim.RoleAdmin})
}

// Admit is the one door: authentication, role and project, in this order. The
// ctx it returns is what the engine's methods want.
func (e *Engine) Admit(ctx context.Context, r Request) (context.Context, error) {
	if r.Secret == "" {
		return nil, cloudsim.Errorf(cloudsim.Unauthenticated, "no token: send Authorization: Bearer TOKEN")
	}
	call := Call{RequestID: r.ID, IdempotencyKey: r.IdempotencyKey}
	if err := e.store.View(func(tx *store.Tx) error {
		t, err := authenticate(tx, r.Secret)
		if err != nil {
			return err
		}
		call.Caller, call.Role, call.Project = t.Name, t.Role, t.Project
		if t.Role != cloudsim.RoleAdmin || r.Project == "" {
			return checkChoice(tx, call, r.Project)
		}
		p, err := findProject(tx, r.Project)
		call.Project = p.ID
		return err
	}); err != nil {
		return nil, err
	}
	if err := authorize(call, r.Access); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, callKey{}, call), nil
}

// checkChoice refuses a caller who chose a project that is not its own.
func checkChoice(tx *store.Tx, call Call, chosen string) error {
	if chosen == "" || chosen == string(call.Project) {
		return nil
	}
	if p, err := findProject(tx, chosen); err != nil || p.ID != call.Project {
		return cloudsim.Errorf(cloudsim.Denied, "token %q is for project %s only", call.Caller, call.Project)
	}
	return nil
}

func authorize(call Call, need Access) error {
	switch {
	case call.Role == cloudsim.RoleAdmin, need == Read, need == Write && call.Role == cloudsim.RoleEditor:
		return nil
	case need == Admin:
		return cloudsim.Errorf(cloudsim.Denied, "token %q has role %s; this needs admin", call.Caller, call.Role)
	default:
		return cloudsim.Errorf(cloudsim.Denied, "token %q has role %s; this needs editor", call.Caller, call.Role)
	}
}

func authenticate(tx *store.Tx, secret string) (cloudsim.Token, error) {
	found, err := tokens.Lookup(tx, byHash, hashSecret(secret))
	if err != nil {
		return cloudsim.Token{}, err
	}
	if len(found) == 0 {
		return cloudsim.Token{}, cloudsim.Errorf(cloudsim.Unauthenticated, "the token is not known")
	}
	t := found[0]
	if t.ExpiresAt != nil && !tx.Now.Before(*t.ExpiresAt) {
		return t, cloudsim.Errorf(cloudsim.Unauthenticated, "token %q expired at %s", t.Name, t.ExpiresAt.Format("2006-01-02T15:04:05Z07:00"))
	}
	return t, nil
}

// hashSecret needs no salt and no work factor: secrets are 256 random bits.
func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// callOf is CallOf for the engine's methods, which must not run without.
func callOf(ctx context.Context) (Call, error) {
	c, ok := CallOf(ctx)
	if !ok {
		return c, cloudsim.Errorf(cloudsim.Internal, "a call that did not pass the door")
	}
	return c, nil
}

// sees reports whether the call may see a resource with m.
func (c Call) sees(m *cloudsim.Meta) bool {
	return m.Project == "" || m.Project == c.Project || c.Role == cloudsim.RoleAdmin && c.Project == ""
}
