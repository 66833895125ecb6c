package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateRole makes a role.
func (c *Client) CreateRole(ctx context.Context, req cloudsim.CreateRole) (cloudsim.Role, error) {
	return call[cloudsim.Role](ctx, c, "POST", "/v1/roles", req)
}

// GetRole returns a role.
func (c *Client) GetRole(ctx context.Context, id cloudsim.RoleName) (cloudsim.Role, error) {
	return call[cloudsim.Role](ctx, c, "GET", "/v1/roles/"+seg(id), nil)
}

// ListRoles returns one page of roles.
func (c *Client) ListRoles(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Role], error) {
	return call[cloudsim.List[cloudsim.Role]](ctx, c, "GET", "/v1/roles"+listQuery(o), nil)
}

// DeleteRole removes a role. It returns Conflict while a role binding or a token
// uses the role. It also returns Conflict for a predefined role.
func (c *Client) DeleteRole(ctx context.Context, id cloudsim.RoleName) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/roles/"+seg(id), nil)
	return err
}

// CreateRoleBinding makes a role binding.
func (c *Client) CreateRoleBinding(ctx context.Context, req cloudsim.CreateRoleBinding) (cloudsim.RoleBinding, error) {
	return call[cloudsim.RoleBinding](ctx, c, "POST", "/v1/role-bindings", req)
}

// GetRoleBinding returns a role binding.
func (c *Client) GetRoleBinding(ctx context.Context, id cloudsim.RoleBindingID) (cloudsim.RoleBinding, error) {
	return call[cloudsim.RoleBinding](ctx, c, "GET", "/v1/role-bindings/"+seg(id), nil)
}

// ListRoleBindings returns one page of role bindings.
func (c *Client) ListRoleBindings(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.RoleBinding], error) {
	return call[cloudsim.List[cloudsim.RoleBinding]](ctx, c, "GET", "/v1/role-bindings"+listQuery(o), nil)
}

// DeleteRoleBinding removes a role binding. The removal takes effect at the
// next call of the service account.
func (c *Client) DeleteRoleBinding(ctx context.Context, id cloudsim.RoleBindingID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/role-bindings/"+seg(id), nil)
	return err
}

// WhoAmI returns the caller's identity and permissions.
func (c *Client) WhoAmI(ctx context.Context) (cloudsim.Identity, error) {
	return call[cloudsim.Identity](ctx, c, "GET", "/v1/whoami", nil)
}
