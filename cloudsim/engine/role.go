package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const (
	byAccount = "account"
	byRole    = "role"
)

var roles = store.Table[cloudsim.Role]{
	Kind: cloudsim.KindRole,
	ID:   func(r *cloudsim.Role) string { return r.Name },
	Meta: func(r *cloudsim.Role) *cloudsim.Meta { return &r.Meta },
}

var roleBindings = store.Table[cloudsim.RoleBinding]{
	Kind: cloudsim.KindRoleBinding, Prefix: "binding",
	ID:   func(b *cloudsim.RoleBinding) string { return string(b.ID) },
	Meta: func(b *cloudsim.RoleBinding) *cloudsim.Meta { return &b.Meta },
	Index: map[string]func(*cloudsim.RoleBinding) []string{
		byAccount: func(b *cloudsim.RoleBinding) []string { return ofAccount(b.ServiceAccount) },
		byRole:    func(b *cloudsim.RoleBinding) []string { return ofRole(b.Role) },
	},
}

func ofRole(name cloudsim.RoleName) []string {
	if name == "" {
		return nil
	}
	return []string{string(name)}
}

// predefinedRoles contains the predefined roles by name, so that findRole does not have to read
// these roles from the store.
var predefinedRoles = func() map[cloudsim.RoleName]cloudsim.Role {
	all := map[cloudsim.RoleName]cloudsim.Role{}
	for _, r := range cloudsim.PredefinedRoles() {
		all[cloudsim.RoleName(r.Name)] = r
	}
	return all
}()

// offerRoles writes the predefined roles to the store, so that ListRoles
// returns these roles.
func offerRoles(tx *store.Tx) error {
	return offer(tx, roles, cloudsim.PredefinedRoles(), sameRole)
}

func sameRole(a, b cloudsim.Role) bool {
	return a.Description == b.Description && slices.Equal(a.Permissions, b.Permissions) && a.Predefined == b.Predefined && sameLabels(a.Labels, b.Labels)
}

// findRole returns the role with the given name. If the role does not exist,
// findRole returns Invalid instead of NotFound, because the name comes from a
// field of a request.
func findRole(tx *store.Tx, name cloudsim.RoleName) (cloudsim.Role, error) {
	if r, ok := predefinedRoles[name]; ok {
		return r, nil
	}
	r, err := roles.Get(tx, string(name))
	if errors.Is(err, cloudsim.NotFound) {
		return r, errUnknownReference("role", string(name), "see GET /v1/roles")
	}
	return r, err
}

// grantsOf returns the grants of a token: its role, or the role bindings of its service account. If
// the role of the token is unknown, the token has no grants. If the role of a role binding is
// unknown, grantsOf returns an error.
func grantsOf(tx *store.Tx, t cloudsim.Token) ([]cloudsim.Grant, error) {
	if t.ServiceAccount == "" {
		r, err := findRole(tx, t.Role)
		if errors.Is(err, cloudsim.Invalid) {
			return nil, nil // another version of the program stored this token with a role that this version does not know
		}
		return []cloudsim.Grant{{Role: t.Role, Permissions: r.Permissions, Project: t.Project}}, err
	}
	bound, err := roleBindings.Lookup(tx, byAccount, string(t.ServiceAccount))
	if err != nil {
		return nil, err
	}
	all := make([]cloudsim.Grant, len(bound))
	for i, b := range bound {
		r, err := findRole(tx, b.Role)
		if err != nil {
			return nil, err
		}
		all[i] = cloudsim.Grant{Role: b.Role, Permissions: r.Permissions, Project: b.Project, Resource: b.Resource}
	}
	return all, nil
}

func includesOperation(all []cloudsim.Permission, operation string, class Access) bool {
	for _, p := range all {
		switch {
		case p == cloudsim.PermitRead && class == Read, p == cloudsim.PermitWrite && class == Write, p == cloudsim.PermitAll:
			return true
		case operation != "" && p.Names(operation):
			return true
		}
	}
	return false
}

func (c Call) inAllProjects() bool {
	return slices.ContainsFunc(c.grants, func(g cloudsim.Grant) bool { return g.Project == "" })
}

// mayEverywhere reports whether the caller has permission for an operation on all resources in all
// projects. The parameter class is the access class of the operation.
func (c Call) mayEverywhere(operation string, class Access) bool {
	return slices.ContainsFunc(c.grants, func(g cloudsim.Grant) bool {
		return g.Project == "" && g.Resource == "" && includesOperation(g.Permissions, operation, class)
	})
}

// grantApplies reports whether grant g applies to the call's project.
// Operations of class Admin need a grant for all projects.
func (c Call) grantApplies(g cloudsim.Grant, class Access) bool {
	return g.Project == "" || g.Project == c.Project && class != Admin
}

// authorize returns Denied if no grant permits the operation. If grants permit the operation only
// for some resources, authorize stores the patterns of these resources in c.limited and returns
// nil. MayTouch later checks the resource.
func (c *Call) authorize(operation string, class Access) error {
	if class == Enter {
		return nil
	}
	var limited []string
	for _, g := range c.grants {
		if !c.grantApplies(g, class) || !includesOperation(g.Permissions, operation, class) {
			continue
		}
		if g.Resource == "" {
			return nil
		}
		limited = append(limited, g.Resource)
	}
	if limited == nil {
		return c.deniedError(operation, class)
	}
	c.limited = limited
	return nil
}

// caller returns a description of the caller for error messages.
func (c Call) caller() string {
	if c.account != "" {
		return "service account \"" + c.Caller + "\" (" + string(c.account) + ")"
	}
	return "token \"" + c.Caller + "\""
}

// Principal returns the caller's id, and a description of the caller for messages. If the caller is
// a service account, the id is the id of the account. Otherwise it is the id of the caller's token.
func Principal(ctx context.Context) (id, description string) {
	c, _ := CallOf(ctx)
	return string(c.tokenOrAccount()), c.caller()
}

// suggestion contains a predefined role for each access class of operations.
// This role has the fewest permissions of all predefined roles that permit the
// operations of the class.
var suggestion = map[Access]cloudsim.RoleName{
	Read: cloudsim.RoleReader, Write: cloudsim.RoleWriter, Manage: cloudsim.RoleAdmin, Admin: cloudsim.RoleAdmin,
}

// deniedError returns the Denied error of a call. The error names the caller,
// the missing permission, the caller's roles, and a way to get the
// permission.
func (c Call) deniedError(operation string, class Access) error {
	have := make([]string, 0, len(c.grants))
	for _, g := range c.grants {
		have = append(have, string(g.Role))
	}
	have = slices.Compact(slices.Sorted(slices.Values(have)))
	holds := "it has only the roles " + strings.Join(have, ", ")
	switch len(have) {
	case 0:
		holds = "it has no role"
	case 1:
		holds = "it has only the role " + have[0]
	}
	missing := operation
	if missing == "" {
		missing = "of role " + string(suggestion[class])
	}
	scope := "in project " + string(c.Project)
	if class == Admin || c.Project == "" {
		scope = "in all projects"
	}
	help := "a token with role " + string(suggestion[class]) + " has this permission"
	if c.account != "" {
		help = "bind a role with this permission, such as " + string(suggestion[class]) + ", to the service account: POST /v1/role-bindings, or 'allinone cloud role-bindings create'"
	}
	return cloudsim.Errorf(cloudsim.Denied, "%s lacks the permission %s %s: %s; %s", c.caller(), missing, scope, holds, help)
}

// mayRead reports whether the call may read all resources of a kind in its project.
func (c Call) mayRead(kind cloudsim.ResourceKind) bool {
	noun, class := nounOfKind(kind), Read
	switch kind {
	case cloudsim.KindToken, cloudsim.KindServiceAccount, cloudsim.KindRoleBinding, cloudsim.KindWorkloadTrust, cloudsim.KindAccessKey:
		class = Manage
	case cloudsim.KindFault, cloudsim.KindHold:
		class = Admin
	}
	return slices.ContainsFunc(c.grants, func(g cloudsim.Grant) bool {
		return c.grantApplies(g, class) && g.Resource == "" && (includesOperation(g.Permissions, noun+".get", class) || includesOperation(g.Permissions, noun+".list", class))
	})
}

// nounOfKind returns the noun of a kind in operation ids. For example, the noun of the kind "disk"
// is "disks", as in "disks.create". nounOfKind is the inverse of kindOfNoun.
func nounOfKind(kind cloudsim.ResourceKind) string {
	if stem, ok := strings.CutSuffix(string(kind), "y"); ok {
		return stem + "ies" // for example repository: repositories
	}
	if strings.HasSuffix(string(kind), "s") {
		return string(kind) + "es" // for example address: addresses
	}
	return string(kind) + "s"
}

// mayGive returns Denied if the caller lacks any permission of grant g. The caller must have each
// permission through a grant for the project of g or for all projects. mayGive ignores grants of
// the caller that are limited to some resources.
func (c Call) mayGive(g cloudsim.Grant) error {
	for _, p := range g.Permissions {
		if !slices.ContainsFunc(c.grants, func(own cloudsim.Grant) bool {
			return own.Resource == "" && (own.Project == "" || own.Project == g.Project) &&
				slices.ContainsFunc(own.Permissions, func(have cloudsim.Permission) bool { return have.Includes(p) })
		}) {
			scope := "in project " + string(g.Project)
			if g.Project == "" {
				scope = "in all projects"
			}
			return cloudsim.Errorf(cloudsim.Denied, "%s may not create, give or use role %s: the caller needs the role's permission %s %s", c.caller(), g.Role, p, scope)
		}
	}
	return nil
}

// MayTouch checks the target of a call if the caller's permission is limited to some resources. It
// returns Denied if the target in s is not one of these resources, or if the call has no target.
// For example, a list call has no target. The target of a create call is the name in the request.
func (ac *access) MayTouch(ctx context.Context, s Subject) error {
	call, err := callOf(ctx)
	if err != nil || call.limited == nil {
		return err
	}
	at, err := ac.placeOf(s)
	if err != nil {
		return err
	}
	if at.Name != "" && call.mayName(at.Name) || s.Target != "" && call.mayName(s.Target) {
		return nil
	}
	return call.onlyFor(s.Operation)
}

// mayName reports whether the call's permission applies to a resource with the given name or ID.
func (c Call) mayName(name string) bool {
	return c.limited == nil || slices.ContainsFunc(c.limited, func(pattern string) bool { return cloudsim.Glob(pattern, name) })
}

// onlyFor returns the Denied error for a resource to which the call's
// permission does not apply.
func (c Call) onlyFor(operation string) error {
	return cloudsim.Errorf(cloudsim.Denied, "%s has the permission %s only for resources that match %s", c.caller(), operation, strings.Join(c.limited, ", "))
}

// Allowed returns Denied if the caller in ctx has no permission for the operation on the named
// resource. Allowed is for operations that are not routes of the API, for example registry.pull
// with class Read on the repository "team-a/web". The ctx must be the result of a call of Authorize
// with the class Enter. With this class, Authorize accepts every valid token.
func Allowed(ctx context.Context, operation string, class Access, resource string) error {
	call, err := callOf(ctx)
	if err != nil {
		return err
	}
	return call.allowed(operation, class, resource)
}

func (c Call) allowed(operation string, class Access, resource string) error {
	call := c
	call.limited = nil
	if err := call.authorize(operation, class); err != nil || call.limited == nil {
		return err
	}
	if slices.ContainsFunc(call.limited, func(pattern string) bool { return cloudsim.Glob(pattern, resource) }) {
		return nil
	}
	return cloudsim.Errorf(cloudsim.Denied, "%s has the permission %s only for resources that match %s, and %s does not match", call.caller(), operation, strings.Join(call.limited, ", "), resource)
}

// WhoAmI returns the caller and its grants.
func (ac *access) WhoAmI(ctx context.Context) (cloudsim.Identity, error) {
	c, err := callOf(ctx)
	if err != nil {
		return cloudsim.Identity{}, err
	}
	return cloudsim.Identity{Caller: c.Caller, Token: c.Token, ServiceAccount: c.account, Project: c.Project, Grants: append([]cloudsim.Grant{}, c.grants...)}, nil
}

// CreateRole creates a role. If the same role already exists, CreateRole returns the existing role.
// It returns Exists if a different role has the name. For a new role, the caller must have each
// permission of the role through a grant for all projects. Otherwise, CreateRole returns Denied.
func (ac *access) CreateRole(ctx context.Context, req cloudsim.CreateRole) (r cloudsim.Role, err error) {
	if err := req.Validate(); err != nil {
		return r, err
	}
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		r, err = idempotent(tx, call, roles, req, func() (cloudsim.Role, error) {
			r := cloudsim.Role{Meta: cloudsim.Meta{Name: req.Name, Labels: req.Labels}, Description: req.Description, Permissions: req.Permissions}
			switch have, err := roles.Get(tx, req.Name); {
			case err == nil && have.Predefined:
				return have, cloudsim.Errorf(cloudsim.Exists, "role %q is predefined: use another name", req.Name)
			case err == nil && !sameRole(have, r):
				return have, cloudsim.Errorf(cloudsim.Exists, "role %q already exists, but with another description, permissions or labels: use another name, or delete the existing role first", req.Name)
			case err == nil:
				return have, nil
			case !errors.Is(err, cloudsim.NotFound):
				return r, err
			}
			if err := call.mayGive(cloudsim.Grant{Role: cloudsim.RoleName(r.Name), Permissions: r.Permissions}); err != nil {
				return r, err
			}
			return r, roles.Put(tx, &r)
		})
		return err
	})
	return r, err
}

// GetRole returns a role by name.
func (ac *access) GetRole(ctx context.Context, name cloudsim.RoleName) (cloudsim.Role, error) {
	return read(ctx, ac.core, roles, string(name))
}

// ListRoles returns one page of roles.
func (ac *access) ListRoles(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Role], error) {
	return listPage(ctx, ac.core, roles, o, nil)
}

// DeleteRole removes a role. It returns Conflict if the role is predefined, or
// if a token or a role binding has the role.
func (ac *access) DeleteRole(ctx context.Context, name cloudsim.RoleName) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		r, err := get(tx, call, roles, string(name))
		if err != nil {
			return err
		}
		bound, err1 := roleBindings.Lookup(tx, byRole, r.Name)
		had, err2 := tokens.Lookup(tx, byRole, r.Name)
		switch {
		case err1 != nil || err2 != nil:
			return errors.Join(err1, err2)
		case r.Predefined:
			return cloudsim.Errorf(cloudsim.Conflict, "the role %q is predefined and cannot be deleted", r.Name)
		case len(bound) > 0:
			return cloudsim.Errorf(cloudsim.Conflict, "the role %q is used by role binding %s: delete the role binding first", r.Name, bound[0].ID)
		case len(had) > 0:
			return cloudsim.Errorf(cloudsim.Conflict, "the role %q is used by token %s: delete the token first", r.Name, had[0].ID)
		}
		return roles.Delete(tx, &r)
	})
}

// CreateRoleBinding grants a role to a service account. If the same role binding already exists,
// CreateRoleBinding returns the existing role binding. To create a role binding for one project,
// the caller must have each permission of the role in this project. If req.AllProjects is set, the
// caller must have each permission through a grant for all projects. If the caller lacks a
// permission, CreateRoleBinding returns Denied.
func (ac *access) CreateRoleBinding(ctx context.Context, req cloudsim.CreateRoleBinding) (b cloudsim.RoleBinding, err error) {
	if err := req.Validate(); err != nil {
		return b, err
	}
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		b, err = idempotent(tx, call, roleBindings, req, func() (cloudsim.RoleBinding, error) { return ac.bindingByName(tx, call, req) })
		return err
	})
	return b, err
}

func (ac *access) bindingByName(tx *store.Tx, call Call, req cloudsim.CreateRoleBinding) (b cloudsim.RoleBinding, err error) {
	project, err := ac.projectOf(tx, call)
	if err != nil {
		return b, err
	}
	call.Project = project
	a, err := findAccount(tx, call, req.ServiceAccount)
	if err != nil {
		return b, err
	}
	role, err := findRole(tx, req.Role)
	if err != nil {
		return b, err
	}
	if req.AllProjects {
		project = ""
	}
	b = cloudsim.RoleBinding{
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Role: req.Role, ServiceAccount: a.ID, Resource: req.Resource,
	}
	switch have, err := roleBindings.Named(tx, project, req.Name); {
	case err == nil && (have.Role != b.Role || have.ServiceAccount != b.ServiceAccount || have.Resource != b.Resource || !sameLabels(have.Labels, b.Labels)):
		return have, errNameTaken(cloudsim.KindRoleBinding, req.Name, string(have.ID), "another role, account, resource or labels")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return b, err
	}
	if err := call.mayGive(cloudsim.Grant{Role: b.Role, Permissions: role.Permissions, Project: project}); err != nil {
		return b, err
	}
	id, err := roleBindings.NextID(tx)
	if err != nil {
		return b, err
	}
	b.ID = cloudsim.RoleBindingID(id)
	return b, roleBindings.Put(tx, &b)
}

// GetRoleBinding returns a role binding.
func (ac *access) GetRoleBinding(ctx context.Context, id cloudsim.RoleBindingID) (cloudsim.RoleBinding, error) {
	return read(ctx, ac.core, roleBindings, string(id))
}

// ListRoleBindings returns one page of role bindings.
func (ac *access) ListRoleBindings(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.RoleBinding], error) {
	return listPage(ctx, ac.core, roleBindings, o, nil)
}

// DeleteRoleBinding deletes a role binding. The next call of the service account no longer has the
// role. Open watches of the account also lose the role.
func (ac *access) DeleteRoleBinding(ctx context.Context, id cloudsim.RoleBindingID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		b, err := getOwn(tx, call, roleBindings, string(id))
		if err != nil {
			return err
		}
		return roleBindings.Delete(tx, &b)
	})
}
