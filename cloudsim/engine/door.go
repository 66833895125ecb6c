package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Request is what the door is told about a call before it may pass.
type Request struct {
	ID             string // request id, for journal and log
	Secret         string // bearer token; "" for none
	Project        string // id or name that an admin chose; "" for none
	IdempotencyKey string // "" for none
	Operation      string // operation id; "" asks for the class of Access alone
	Access         Access // the class of the operation
}

// Access is the class of an operation: which permissions hold for it beside
// its own name.
type Access uint8

const (
	Read   Access = iota // PermitRead
	Write                // PermitWrite
	Manage               // who may do what in a project: by name only
	Admin                // of the whole cloud: by name, in all projects
	Enter                // none: any token that is known; what is done asks Allowed
)

// Call is a request that passed the door.
type Call struct {
	RequestID      string
	Operation      string             // operation id; "" for the cloud itself
	Caller         string             // name of the service account, else of the token
	Token          cloudsim.TokenID   // "" for the cloud itself
	Project        cloudsim.ProjectID // "" for all
	IdempotencyKey string
	At             time.Time // when it came, on the cloud's clock

	asOf    time.Time        // reads see the past, where a fault says so; zero for now
	stuckBy cloudsim.FaultID // what keeps the operations that it begins; "" for none

	account cloudsim.ServiceAccountID
	home    cloudsim.ProjectID // of the token, whichever project the call is for
	grants  []cloudsim.Grant
	limited []string // what the operation is granted for, if not for every resource

	access Access // the class of the operation
	shown  credential
}

// credential is what remains of a secret once it was found good: enough to look
// up at any time whether it still is. The zero value is of who needed none, such
// as the cloud itself.
type credential struct {
	hash  string                   // of a token's secret
	trust cloudsim.WorkloadTrustID // by which a token that a cluster signed is good
	until time.Time                // when that token expires
}

type callKey struct{}

// CallOf returns the call that ctx belongs to; false before the door.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

// cloudCaller is who acts when the cloud itself does.
const cloudCaller = "cloud"

// AsCloud is ctx for work that the cloud does itself: it sees every project.
func AsCloud(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, Call{Caller: cloudCaller, grants: []cloudsim.Grant{{
		Role: cloudsim.RoleAdmin, Permissions: []cloudsim.Permission{cloudsim.PermitAll},
	}}})
}

// AllProjects is the project that a caller chooses to see all of them.
const AllProjects = "*"

// Admit is the one door: authentication, rate limit, project and permission,
// in this order. The ctx it returns is what the engine's methods want; with an
// error it says who called, if anybody knows, and permits nothing.
func (e *Engine) Admit(ctx context.Context, r Request) (context.Context, error) {
	if r.Secret == "" {
		return ctx, cloudsim.Errorf(cloudsim.Unauthenticated, "no token: send Authorization: Bearer TOKEN")
	}
	call := Call{RequestID: r.ID, Operation: r.Operation, IdempotencyKey: r.IdempotencyKey, access: r.Access}
	if err := e.store.View(func(tx *store.Tx) error {
		call.At = tx.Now
		t, shown, err := authenticate(tx, r.Secret)
		if err != nil {
			return err
		}
		call.shown = shown
		if err := call.identify(tx, t); err != nil {
			return err
		}
		if err := e.throttle(call, r.Access); err != nil {
			return err
		}
		return call.choose(tx, r.Project)
	}); err != nil {
		return refused(ctx, call), err
	}
	if err := call.authorize(r.Operation, r.Access); err != nil {
		return refused(ctx, call), err
	}
	return context.WithValue(ctx, callKey{}, call), nil
}

// refused is ctx for the record of a call that did not pass: it says who
// called, and permits nothing.
func refused(ctx context.Context, c Call) context.Context {
	c.grants, c.Project = nil, "-" // no project has this id
	return context.WithValue(ctx, callKey{}, c)
}

// identify says who calls with t, and what it may do.
func (c *Call) identify(tx *store.Tx, t cloudsim.Token) (err error) {
	c.Caller, c.Token, c.Project, c.account = t.Name, t.ID, t.Project, t.ServiceAccount
	c.home = t.Project
	if c.account != "" {
		a, err := serviceAccounts.Get(tx, string(c.account))
		if err != nil {
			return err
		}
		c.Caller = a.Name
	}
	c.grants, err = grantsOf(tx, t)
	return err
}

// choose makes the call one of the project that its caller chose: its own, or
// one where it has a role.
func (c *Call) choose(tx *store.Tx, chosen string) error {
	if chosen == "" || chosen == string(c.Project) {
		return nil
	}
	var p cloudsim.Project
	err := error(nil)
	if chosen != AllProjects {
		p, err = findProject(tx, chosen)
	}
	if c.everywhere() {
		c.Project = p.ID
		return err
	}
	if err == nil && p.ID != "" && (p.ID == c.Project || slices.ContainsFunc(c.grants, func(g cloudsim.Grant) bool { return g.Project == p.ID })) {
		c.Project = p.ID
		return nil
	}
	return cloudsim.Errorf(cloudsim.Denied, "%s is for project %s only, and has no role in %q", c.who(), c.Project, chosen)
}

// authenticate says whose a secret is, and by what it is looked up again.
func authenticate(tx *store.Tx, secret string) (t cloudsim.Token, shown credential, err error) {
	shown = credential{hash: hashSecret(secret)}
	if isWorkloadToken(secret) {
		shown, err = verifyWorkload(tx, secret)
	}
	if err == nil {
		t, err = shown.token(tx)
	}
	return t, shown, err
}

// token is the token that c is good for now, or Unauthenticated.
func (c credential) token(tx *store.Tx) (cloudsim.Token, error) {
	if c.trust != "" {
		return c.workload(tx)
	}
	found, err := tokens.Lookup(tx, byHash, c.hash)
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

// stillMay is Unauthenticated when what the caller showed at the door is no
// longer good, and Denied when it may no longer do what it came for: a watch
// goes on long after its caller passed. From then on the call has the grants of
// now. Who showed nothing, such as the cloud itself, may for ever.
func (c *Call) stillMay(tx *store.Tx) error {
	if c.shown == (credential{}) {
		return nil
	}
	t, err := c.shown.token(tx)
	if err != nil {
		return err
	}
	if c.grants, err = grantsOf(tx, t); err != nil {
		return err
	}
	c.limited = nil
	if err := c.authorize(c.Operation, c.access); err != nil || c.limited == nil {
		return err
	}
	return c.onlyFor(c.Operation) // as MayTouch has it: events are about everything
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
	return m.Project == "" || m.Project == c.Project || c.Project == "" && c.everywhere()
}
