package cloudsim

// ProjectID names a project, e.g. "proj-000001".
type ProjectID string

// Project owns resources. Tokens of other projects have no access to these
// resources.
type Project struct {
	ID ProjectID `json:"id" example:"proj-000001"`
	Meta
}

// CreateProject requests a project.
type CreateProject struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"workshop" doc:"Unique in the cloud"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateProject) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	return c.err()
}
