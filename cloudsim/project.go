package cloudsim

import "time"

// ProjectID names a project, e.g. "proj-000001".
type ProjectID string

// Project owns resources; nothing in one project is visible to another's tokens.
type Project struct {
	ID ProjectID `json:"id" example:"proj-000001"`
	Meta
}

// CreateProject asks for a project.
type CreateProject struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"workshop" doc:"Unique in the cloud"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate checks what needs no other state.
func (r CreateProject) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	return c.err()
}

// Role is what a token may do.
type Role string

const (
	RoleAdmin  Role = "admin"  // everything, in every project; choose one by the Cloud-Project header
	RoleEditor Role = "editor" // read and change its project
	RoleViewer Role = "viewer" // read its project
)

// TokenID names a token; it is not the secret.
type TokenID string

// Token lets a caller in. The cloud keeps only a hash of its secret, and shows
// the secret once, in the answer to its creation.
type Token struct {
	ID TokenID `json:"id" example:"tok-000001"`
	Meta
	Role      Role       `json:"role" enum:"admin,editor,viewer"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty" doc:"RFC 3339; absent for one that does not expire"`
	Hash      string     `json:"hash,omitempty" hidden:"true"` // hex SHA-256 of the secret; never leaves the engine
	Secret    string     `json:"secret,omitempty" doc:"The bearer token; present only in the answer to its creation"`
}

// CreateToken asks for a token. It is not idempotent by name, because the
// secret is shown once: a name that is taken is Exists.
type CreateToken struct {
	Name       string    `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm"`
	Role       Role      `json:"role" enum:"admin,editor,viewer"`
	Project    ProjectID `json:"project,omitempty" doc:"The project it is for; default is the caller's. Ignored for role admin"`
	TTLSeconds int64     `json:"ttlSeconds,omitempty" minimum:"0" maximum:"315360000" doc:"Life in seconds; 0 or absent for one that does not expire"`
}

// Validate checks what needs no other state.
func (r CreateToken) Validate() error {
	var c checks
	c.name("name", r.Name)
	switch r.Role {
	case RoleAdmin, RoleEditor, RoleViewer:
	default:
		c.addf("role", "must be admin, editor or viewer, got %q", clip(string(r.Role)))
	}
	if r.TTLSeconds < 0 || r.TTLSeconds > 10*365*24*3600 {
		c.addf("ttlSeconds", "must be between 0 and ten years, got %d", r.TTLSeconds)
	}
	return c.err()
}
