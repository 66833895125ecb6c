package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Request contains the data that Authorize needs to authenticate and authorize
// a call.
type Request struct {
	ID             string // request id, for journal and log
	Secret         string // bearer token; "" for none
	Project        string // id or name of the project that the caller chose; "" for none
	IdempotencyKey string // "" for none
	Operation      string // operation id; if it is "", Authorize checks only the class in Access
	Access         Access // the class of the operation
	DialectCall    string // "", or the name of another cloud's API call that a dialect has translated to this call
}

// Access is the class of an operation. A role can permit operations by their class or by their
// names.
type Access uint8

const (
	Read   Access = iota // the permission PermitRead permits this class
	Write                // the permission PermitWrite permits this class
	Manage               // operations on access rights of a project; a role can permit them only by operation name
	Admin                // operations on the whole cloud; only a role in all projects can permit them, and only by operation name
	Enter                // a valid token is enough; the handler calls Allowed for each action
)

// Call is an authorized request.
type Call struct {
	RequestID      string
	Operation      string             // operation id; "" for the cloud itself
	Caller         string             // name of the service account; without a service account, name of the token
	Token          cloudsim.TokenID   // "" for the cloud itself
	Project        cloudsim.ProjectID // "" for all projects
	IdempotencyKey string
	DialectCall    string    // "", or the name of another cloud's API call that a dialect has translated to this call
	At             time.Time // arrival time on the cloud's clock
	RateLimit      RateLimit // the rate limit with the fewest remaining calls, after this call

	asOf    time.Time        // if a stale-read fault hit the call: time of the old contents that reads return; zero: reads return the present contents
	stuckBy cloudsim.FaultID // fault that keeps the operations of this call unfinished; "" for none

	account       cloudsim.ServiceAccountID
	callerProject cloudsim.ProjectID // project of the token, even if the call is for another project
	grants        []cloudsim.Grant
	limited       []string // resource patterns to which the permission is limited; nil for all resources

	access Access // the class of the operation
	shown  credential
}

// credential identifies a verified secret, so that the engine can check later
// whether the secret is still valid. The zero value belongs to callers without
// a secret, such as the cloud itself.
type credential struct {
	hash  string                   // hash of a token's secret; if key is set, hash of a session token
	trust cloudsim.WorkloadTrustID // workload trust that accepted a token signed by a Kubernetes cluster
	key   cloudsim.AccessKeyID     // access key with which the request is signed
	until time.Time                // expiry of the token signed by a Kubernetes cluster, or of the signature
}

type callKey struct{}

// CallOf returns the call that ctx contains. It returns false if ctx did not come from Authorize or
// AsCloud.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

const cloudCaller = "cloud"

// AsCloud returns a ctx for actions of the cloud itself. Calls with this ctx may see the resources
// of all projects.
func AsCloud(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, Call{Caller: cloudCaller, grants: []cloudsim.Grant{{
		Role: cloudsim.RoleAdmin, Permissions: []cloudsim.Permission{cloudsim.PermitAll},
	}}})
}

// AllProjects is the value of Request.Project that selects all projects.
const AllProjects = "*"

// Authorize authenticates a request, applies rate limits, selects the project
// and authorizes the operation, in this order. The engine's methods need the
// returned ctx. If Authorize returns an error, the returned ctx has no
// permissions. This ctx contains the caller's name if Authorize has identified
// the caller.
func (ac *access) Authorize(ctx context.Context, r Request) (context.Context, error) {
	if r.Secret == "" {
		return ctx, cloudsim.Errorf(cloudsim.Unauthenticated, "no token: send Authorization: Bearer TOKEN")
	}
	call := Call{RequestID: r.ID, Operation: r.Operation, IdempotencyKey: r.IdempotencyKey, DialectCall: r.DialectCall, access: r.Access}
	if err := ac.store.View(func(tx *store.Tx) error {
		call.At = tx.Now
		t, shown, err := authenticate(tx, r.Secret)
		if err != nil {
			return err
		}
		call.shown = shown
		if err := call.identify(tx, t); err != nil {
			return err
		}
		if err := ac.throttle(&call, r.Access); err != nil {
			return err
		}
		return call.choose(tx, r.Project)
	}); err != nil {
		return withCallerName(ctx, call), err
	}
	if err := call.authorize(r.Operation, r.Access); err != nil {
		return withCallerName(ctx, call), err
	}
	return context.WithValue(ctx, callKey{}, call), nil
}

// withCallerName returns a ctx for the audit record of a refused call. The
// ctx contains the name of the caller, but no permissions.
func withCallerName(ctx context.Context, c Call) context.Context {
	c.grants, c.Project = nil, "-" // no project has this id
	return context.WithValue(ctx, callKey{}, c)
}

// identify stores the caller of token t, the caller's project and the caller's grants in the call.
// The grants are the caller's roles and the project of each role.
func (c *Call) identify(tx *store.Tx, t cloudsim.Token) (err error) {
	c.Caller, c.Token, c.Project, c.account = t.Name, t.ID, t.Project, t.ServiceAccount
	c.callerProject = t.Project
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

// choose sets the project of the call to the project that the caller requested. If the caller
// requested none, choose does not change the project of the call.
//
// A caller with a grant for all projects may request AllProjects and every existing project. If
// this caller requests a project that does not exist, choose returns NotFound. A caller without
// this grant may request its own project, and each project in which it has a role. For all other
// requests of this caller, choose returns Denied.
func (c *Call) choose(tx *store.Tx, chosen string) error {
	if chosen == "" || chosen == string(c.Project) {
		return nil
	}
	var p cloudsim.Project
	err := error(nil)
	if chosen != AllProjects {
		p, err = findProject(tx, chosen)
	}
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	if c.inAllProjects() {
		c.Project = p.ID
		return err
	}
	if err == nil && p.ID != "" && (p.ID == c.Project || slices.ContainsFunc(c.grants, func(g cloudsim.Grant) bool { return g.Project == p.ID })) {
		c.Project = p.ID
		return nil
	}
	return cloudsim.Errorf(cloudsim.Denied, "%s is only for project %s, and has no role in project %q", c.caller(), c.Project, chosen)
}

// authenticate returns the token to which a secret belongs, and a credential. With the credential,
// the engine can check later whether the token is still valid.
func authenticate(tx *store.Tx, secret string) (t cloudsim.Token, shown credential, err error) {
	switch {
	case cloudsim.IsSignature(secret):
		shown, err = verifySignature(tx, secret)
	case isWorkloadToken(secret):
		shown, err = verifyWorkload(tx, secret)
	default:
		shown = credential{hash: hashSecret(secret)}
	}
	if err == nil {
		t, err = shown.token(tx)
	}
	return t, shown, err
}

// token returns the token to which credential c belongs. It returns
// Unauthenticated if this token no longer exists or has expired.
func (c credential) token(tx *store.Tx) (cloudsim.Token, error) {
	if c.trust != "" {
		return c.workload(tx)
	}
	if c.key != "" {
		return c.signerToken(tx)
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

// stillMay repeats the authentication and the authorization of Authorize during a long call, such
// as a watch. It returns Unauthenticated if the caller's credential is no longer valid. It returns
// Denied if the caller's roles no longer permit the operation. It also returns Denied if the roles
// permit the operation only for some resources, because a watch covers all resources. stillMay also
// updates the grants of the call. If the call has no credential, for example a call of the cloud
// itself, stillMay returns nil.
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
	return c.onlyFor(c.Operation) // a permission for some resources is not enough, because events are about all resources
}

// hashSecret hashes a secret without salt or work factor. A salt and a work factor help only for
// secrets that an attacker can guess. A secret has 256 random bits, so an attacker cannot guess it.
func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// callOf returns the call that ctx contains. It returns an Internal error if ctx contains no call.
func callOf(ctx context.Context) (Call, error) {
	c, ok := CallOf(ctx)
	if !ok {
		return c, cloudsim.Errorf(cloudsim.Internal, "the context of the call has no authorization")
	}
	return c, nil
}

func (c Call) canSee(m *cloudsim.Meta) bool {
	return m.Project == "" || m.Project == c.Project || c.Project == "" && c.inAllProjects()
}
