package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) roleRoutes() {
	e := a.engine
	handle(a, op{id: "roles.create", method: post, path: "/v1/roles", summary: "Create a role", status: http.StatusCreated, access: engine.Admin, idemKey: true}, a.createRole)
	lists(a, "roles", "/v1/roles", "roles", engine.Read, e.ListRoles)
	gets(a, "roles", "/v1/roles/{id}", "a role by name", engine.Read, e.GetRole, revOf[cloudsim.Role])
	deletes(a, "roles", "/v1/roles/{id}", "Delete a role that no role binding and no token uses", engine.Admin, e.DeleteRole)

	handle(a, op{id: "roleBindings.create", method: post, path: "/v1/role-bindings", summary: "Give a service account a role", status: http.StatusCreated, access: engine.Manage, idemKey: true}, a.createRoleBinding)
	lists(a, "roleBindings", "/v1/role-bindings", "role bindings", engine.Manage, e.ListRoleBindings)
	gets(a, "roleBindings", "/v1/role-bindings/{id}", "a role binding", engine.Manage, e.GetRoleBinding, revOf[cloudsim.RoleBinding])
	deletes(a, "roleBindings", "/v1/role-bindings/{id}", "Remove a role from a service account. The next call of the account no longer has the permissions of the role, and watches that need the role end", engine.Manage, e.DeleteRoleBinding)

	handle(a, op{id: identityGet, method: http.MethodGet, path: "/v1/whoami", summary: "Show the caller's identity and permissions", access: engine.Enter}, a.whoAmI)
}

func (a *api) createRole(ctx context.Context, in *create[cloudsim.CreateRole]) (*body[cloudsim.Role], error) {
	if err := in.Body.Validate(); err != nil {
		return nil, err
	}
	for _, p := range in.Body.Permissions {
		if !strings.HasPrefix(string(p), "@") && !slices.ContainsFunc(a.ids, p.Names) {
			return nil, cloudsim.InvalidField("permissions", fmt.Sprintf("%.80q matches no operation: see the ids in GET /openapi.json", string(p)))
		}
	}
	v, err := a.engine.CreateRole(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createRoleBinding(ctx context.Context, in *create[cloudsim.CreateRoleBinding]) (*body[cloudsim.RoleBinding], error) {
	v, err := a.engine.CreateRoleBinding(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) whoAmI(ctx context.Context, _ *none) (*struct{ Body cloudsim.Identity }, error) {
	v, err := a.engine.WhoAmI(ctx)
	return &struct{ Body cloudsim.Identity }{v}, err
}
