package cloudsim

// ServiceAccountID names a service account, e.g. "sa-000001".
type ServiceAccountID string

// ServiceAccount is the identity of a program in the cloud. The program
// authenticates with a token of the service account. A service account can have
// many tokens. Role bindings define the permissions of the service account.
// Without a binding the service account has no permissions. An instance can
// also authenticate as a service account.
type ServiceAccount struct {
	ID ServiceAccountID `json:"id" example:"sa-000001"`
	Meta
	Description string `json:"description,omitempty" doc:"Description of the purpose, for people"`
}

// CreateServiceAccount requests a service account. The call is idempotent: the same request
// with the same name returns the existing service account. A different request with the same
// name returns Exists.
type CreateServiceAccount struct {
	Name        string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm" doc:"Unique in its project"`
	Labels      map[string]string `json:"labels,omitempty"`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"Description of the purpose, for people"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateServiceAccount) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.description(r.Description)
	return c.err()
}
