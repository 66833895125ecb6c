package cloudsim

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// RoleName names a role, e.g. "ccm". A role's name is its id.
type RoleName string

// Role is a named list of permissions. A role belongs to no project. A RoleBinding gives a
// role to a service account.
type Role struct {
	Meta
	Description string       `json:"description,omitempty" doc:"Description of the purpose, for people"`
	Permissions []Permission `json:"permissions" doc:"Permissions of the role"`
	Predefined  bool         `json:"predefined,omitempty" doc:"Whether the role is predefined. Predefined roles cannot be deleted"`
}

// Permission is an operation id such as "loadBalancers.create", or a pattern such as "disks.*". In
// a pattern, * stands for any characters. A permission can also be a class of operations:
// PermitRead or PermitWrite. The classes contain no operations on access rights (for example
// tokens.create), and no operations on the whole cloud (for example faults.create). A role can
// permit these operations only with the operation's id or with a pattern. For operations on the
// whole cloud, a caller also needs a role binding for all projects.
type Permission string

// PermitRead and PermitWrite are the classes of operations. If a future version of the cloud adds
// an operation to a class, existing roles with this class also permit the new operation. PermitAll
// is the pattern that matches every operation.
const (
	PermitRead  Permission = "@read"  // operations that read resources of a project, or the catalogue
	PermitWrite Permission = "@write" // operations that change resources of a project
	PermitAll   Permission = "*"
)

// Names reports whether p is the id of the operation, or a pattern that matches
// the id. It returns false for a class.
func (p Permission) Names(operation string) bool { return Glob(string(p), operation) }

// Includes reports whether p permits every operation that q permits. Includes does not know the
// operations of PermitRead and PermitWrite. So if p or q is one of these two classes, the result
// is true only if p equals q or p is PermitAll.
func (p Permission) Includes(q Permission) bool {
	return p == q || p == PermitAll || !strings.HasPrefix(string(q), "@") && Glob(string(p), string(q))
}

// The roles that every cloud has.
const (
	RoleAdmin          RoleName = "admin"
	RoleWriter         RoleName = "writer"
	RoleReader         RoleName = "reader"
	RoleViewer         RoleName = "viewer"
	RoleCCM            RoleName = "ccm"
	RoleCSI            RoleName = "csi"
	RoleCSINode        RoleName = "csi-node"
	RoleNode           RoleName = "node"
	RoleHypervisor     RoleName = "hypervisor"
	RoleMetadata       RoleName = "metadata"
	RoleRegistryReader RoleName = "registry-reader"
	RoleRegistryWriter RoleName = "registry-writer"
)

// PredefinedRoles returns the roles that every cloud has. The role of a
// Kubernetes component permits only the operations that the component calls.
func PredefinedRoles() []Role {
	role := func(name RoleName, about string, permissions ...Permission) Role {
		return Role{Meta: Meta{Name: string(name)}, Description: about, Permissions: permissions, Predefined: true}
	}
	return []Role{
		role(RoleAdmin, "Everything", PermitAll),
		role(RoleWriter, "Read and change the resources of a project, but not its access rights", PermitRead, PermitWrite),
		role(RoleReader, "Read the resources of a project, but no secrets and no access rights", PermitRead),
		role(RoleViewer, "Read resources, faults, holds, saved states, the audit trail and the bill, but no secrets and no access rights; change nothing",
			PermitRead, "faults.get", "faults.list", "faults.targets", "holds.get", "holds.list", "states.list", "states.diff", "audit.list", "audit.watch", "bill.get"),
		role(RoleCCM, "Cloud controller manager: reads instances, manages load balancers and routes",
			"events.watch",
			"instances.get", "instances.list", "regions.list",
			"loadBalancers.create", "loadBalancers.get", "loadBalancers.list", "loadBalancers.update", "loadBalancers.setTargets", "loadBalancers.delete",
			"routes.create", "routes.get", "routes.list", "routes.delete"),
		role(RoleCSI, "CSI driver: manages disks and snapshots",
			"disks.*", "diskTypes.*", "snapshots.*", "snapshotGroups.*", "diskPools.get", "diskPools.list", "instances.get", "instances.list", "instanceTypes.get", "operations.get", "zones.list"),
		role(RoleCSINode, "Node part of a CSI driver: reads disks and instances",
			"disks.get", "disks.list", "diskTypes.get", "instances.get", "instances.list", "instanceTypes.get"),
		role(RoleNode, "Instance: reads instances and pulls images",
			"instances.get", "registry.pull"),
		role(RoleHypervisor, "Hypervisor: reads instances, disks, routes and events, and reports the devices of instances",
			"disks.get", "disks.list", "events.list", "events.watch", "instances.get", "instances.list", "instances.reportDevices", "instances.forgetDevices", "instanceTypes.get", "routes.get", "routes.list", "zones.get", "zones.list"),
		role(RoleMetadata, "Metadata service: reads instances and their user data, and issues their tokens and identity documents",
			"instances.get", "instances.list", "metadataTrees.list", "instances.userData", "instances.identity", "instances.token"),
		role(RoleRegistryReader, "Pull images", "registry.pull"),
		role(RoleRegistryWriter, "Pull and push images", "registry.pull", "registry.push"),
	}
}

// CreateRole requests a role. The call is idempotent: the same request with the same name
// returns the existing role. A different request with the same name returns Exists.
type CreateRole struct {
	Name        string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"disk-keeper" doc:"Unique in the cloud"`
	Labels      map[string]string `json:"labels,omitempty"`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"Description of the purpose, for people"`
	Permissions []Permission      `json:"permissions" minItems:"1" maxItems:"256" example:"[\"disks.*\",\"instances.get\"]" doc:"Operation ids in which * matches any characters, or @read or @write"`
}

const (
	maxDescription = 1024
	maxPermissions = 256
)

var permissionRE = regexp.MustCompile(`^(@read|@write|[A-Za-z0-9*]{1,64}(\.[A-Za-z0-9*]{1,64})?)$`)

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRole) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.description(r.Description)
	if len(r.Permissions) == 0 || len(r.Permissions) > maxPermissions {
		c.addf("permissions", "must have 1 to %d entries, got %d", maxPermissions, len(r.Permissions))
	} else if i := slices.IndexFunc(r.Permissions, func(p Permission) bool { return !permissionRE.MatchString(string(p)) }); i >= 0 {
		c.addf("permissions", "must be operation ids in which * matches any characters, e.g. disks.*, or @read or @write; got %q", Clip(string(r.Permissions[i])))
	}
	return c.err()
}

func (c *checks) description(s string) {
	if len(s) > maxDescription || !utf8.ValidString(s) {
		c.addf("description", "must be UTF-8 text of at most %d bytes, got %d", maxDescription, len(s))
	}
}

// RoleBindingID names a role binding, e.g. "binding-000001".
type RoleBindingID string

// RoleBinding gives a role to a service account. The role applies in the project of the
// binding. If the binding has no project, the role applies in all projects. If Resource is
// set, the role applies only to the resources that match Resource.
type RoleBinding struct {
	ID RoleBindingID `json:"id" example:"binding-000001"`
	Meta
	Role           RoleName         `json:"role" example:"registry-reader"`
	ServiceAccount ServiceAccountID `json:"serviceAccount" example:"sa-000001"`
	Resource       string           `json:"resource,omitempty" doc:"Names or ids of the resources that the binding covers. * matches any characters. Absent for all resources" example:"team-a/*"`
}

// CreateRoleBinding requests a role binding. The call is idempotent: the same request with
// the same name returns the existing role binding. A different request with the same name
// returns Exists.
type CreateRoleBinding struct {
	Name           string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ci-pulls"`
	Labels         map[string]string `json:"labels,omitempty"`
	Role           RoleName          `json:"role" minLength:"1" maxLength:"63" example:"registry-reader" doc:"Name of a role; see GET /v1/roles"`
	ServiceAccount string            `json:"serviceAccount" minLength:"1" maxLength:"128" example:"ci" doc:"Service account (id, or name in the project of the call)"`
	Resource       string            `json:"resource,omitempty" maxLength:"256" example:"team-a/*" doc:"Names or ids of the resources that the binding covers. * matches any characters. Absent for all resources"`
	AllProjects    bool              `json:"allProjects,omitempty" doc:"Whether the binding covers all projects and the operations on the whole cloud"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRoleBinding) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.name("role", string(r.Role))
	c.reference("serviceAccount", r.ServiceAccount)
	if len(r.Resource) > 256 {
		c.addf("resource", "must be at most 256 bytes, got %d", len(r.Resource))
	}
	return c.err()
}

// Glob reports whether s matches pattern. Each * in the pattern matches any
// number of characters, including zero characters and slashes.
func Glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	s, ok := strings.CutPrefix(s, head)
	if !ok || !star {
		return ok && s == ""
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part) // the first match leaves the most text for the remaining parts
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

// Identity describes the caller of a request and the permissions of this caller.
type Identity struct {
	Caller         string           `json:"caller" doc:"Name of the service account, or name of a token without a service account" example:"ccm"`
	Token          TokenID          `json:"token" example:"tok-000001"`
	ServiceAccount ServiceAccountID `json:"serviceAccount,omitempty" example:"sa-000001"`
	Project        ProjectID        `json:"project,omitempty" doc:"Project of the call; absent for all projects"`
	Grants         []Grant          `json:"grants" doc:"Permissions, with the projects or resources that they cover"`
}

// Grant is a role of a caller. If Project is set, the role applies only in this project. If
// Resource is set, the role applies only to the resources that match Resource.
type Grant struct {
	Role        RoleName     `json:"role"`
	Permissions []Permission `json:"permissions"`
	Project     ProjectID    `json:"project,omitempty" doc:"Absent for all projects"`
	Resource    string       `json:"resource,omitempty" doc:"Names or ids of the covered resources; absent for all resources"`
}
