package cloudsim

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
