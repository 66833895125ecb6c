package cloudsim

// ServiceAccountID names a service account, e.g. "sa-000001".
type ServiceAccountID string

// ServiceAccount is who a program is in the cloud. It calls with tokens of its
// own, which may be many and short-lived, and may do what roles permit that
// are bound to it: without a binding, nothing. An instance may carry one.
type ServiceAccount struct {
	ID ServiceAccountID `json:"id" example:"sa-000001"`
	Meta
	Description string `json:"description,omitempty" doc:"What it is for"`
}

// CreateServiceAccount asks for a service account. It is idempotent by name.
type CreateServiceAccount struct {
	Name        string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm" doc:"Unique in its project"`
	Labels      map[string]string `json:"labels,omitempty"`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"What it is for"`
}

// Validate checks what needs no other state.
func (r CreateServiceAccount) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.description(r.Description)
	return c.err()
}
