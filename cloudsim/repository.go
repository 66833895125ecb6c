package cloudsim

import "regexp"

// RepositoryID names a repository, e.g. "repo-000001".
type RepositoryID string

// KindRepository is the kind of resource in events about repositories.
const KindRepository ResourceKind = "repository"

// MaxRepositoryName is the maximum length of a repository name in bytes.
const MaxRepositoryName = 128

// Repository contains images in the cloud's registry. The name of a repository is a path. The name
// is part of the image names, REGISTRY/NAME:TAG. Therefore the name is unique in the cloud. Access
// needs a role with registry.pull, registry.push or registry.delete. A role binding can limit the
// role to the repositories that match a pattern, e.g. "team-a/*".
type Repository struct {
	ID RepositoryID `json:"id" example:"repo-000001"`
	Meta
}

// CreateRepository requests a repository. The call is idempotent: the same request with the
// same name returns the existing repository. If the existing repository has other labels, or
// belongs to another project, the call returns Exists.
type CreateRepository struct {
	Name   string            `json:"name" maxLength:"128" example:"team-a/web" doc:"Path in lower case, unique in the cloud"`
	Labels map[string]string `json:"labels,omitempty"`
}

// repositoryRE is the format of a repository name in the distribution
// specification.
var repositoryRE = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRepository) Validate() error {
	var c checks
	c.repository("name", r.Name)
	c.labels(r.Labels)
	return c.err()
}

func (c *checks) repository(field, s string) {
	switch {
	case s == "":
		c.addf(field, "is required")
	case len(s) > MaxRepositoryName || !repositoryRE.MatchString(s):
		c.addf(field, "must have parts of lower-case letters and digits, separated by '/'; inside a part, '.', '_', '__' or dashes may separate letters and digits; at most %d characters, e.g. team-a/web; got %q", MaxRepositoryName, Clip(s))
	}
}
