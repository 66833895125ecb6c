package cloudsim

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// TokenID names a token, e.g. "tok-000001". The id is not the secret.
type TokenID string

// Token authenticates a caller. The cloud stores only a hash of the secret, and returns
// the secret only once, in the answer to the request that creates the token.
type Token struct {
	ID TokenID `json:"id" example:"tok-000001"`
	Meta
	// ServiceAccount is the owner of the token. A token without a service
	// account has the role in the field Role. This role applies in the project
	// of the token, or in all projects if the token has no project.
	ServiceAccount ServiceAccountID `json:"serviceAccount,omitempty" doc:"Service account of the token" example:"sa-000001"`
	Role           RoleName         `json:"role,omitempty" doc:"Role of the token, if it has no service account" example:"reader"`
	ExpiresAt      *time.Time       `json:"expiresAt,omitempty" doc:"RFC 3339; absent if the token does not expire"`
	Hash           string           `json:"hash,omitempty" hidden:"true"` // hex SHA-256 of the secret; the API never returns this field
	Secret         string           `json:"secret,omitempty" doc:"Bearer token. Only the response to the creation contains it"`
}

// AccessKey returns an access key that belongs to t. A client of the AWS API can use this key like
// temporary credentials of AWS: the client signs requests with the key. The method AccessKey
// derives the Secret of the access key from t.Secret. Each signed request must contain t.Secret as
// its session token.
func (t Token) AccessKey() AccessKey {
	sum := sha256.Sum256([]byte("access key " + t.Secret))
	return AccessKey{ID: AccessKeyID(t.ID), Secret: hex.EncodeToString(sum[:])}
}

// CreateToken requests a token of a service account, or an independent token with a role.
// The call is not idempotent, because the cloud returns the secret only once. The call
// returns Exists if another token has the same name.
type CreateToken struct {
	Name           string    `json:"name,omitempty" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm" doc:"Name of the token. Required without serviceAccount; with serviceAccount the default is the token's id"`
	ServiceAccount string    `json:"serviceAccount,omitempty" maxLength:"128" example:"ccm" doc:"Service account (id or name) of the token. Excludes role and project"`
	Role           RoleName  `json:"role,omitempty" maxLength:"63" example:"reader" doc:"Role of the token; see GET /v1/roles. Excludes serviceAccount"`
	Project        ProjectID `json:"project,omitempty" doc:"Project of the token; default is the caller's project. Ignored for role admin"`
	TTLSeconds     int64     `json:"ttlSeconds,omitempty" minimum:"0" maximum:"315360000" doc:"Lifetime in seconds; 0 or absent if the token does not expire"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateToken) Validate() error {
	var c checks
	if r.ServiceAccount == "" {
		c.name("name", r.Name)
		c.name("role", string(r.Role))
	} else {
		r.ofAccount(&c)
	}
	if r.TTLSeconds < 0 || r.TTLSeconds > tenYears {
		c.addf("ttlSeconds", "must be between 0 and %d seconds (ten years), got %d", tenYears, r.TTLSeconds)
	}
	return c.err()
}

// ofAccount checks a request for a token of a service account.
func (r CreateToken) ofAccount(c *checks) {
	c.optionalReference("serviceAccount", r.ServiceAccount)
	if r.Name != "" {
		c.name("name", r.Name)
	}
	if r.Role != "" {
		c.addf("role", "cannot be used with serviceAccount: the role bindings of the service account apply")
	}
	if r.Project != "" {
		c.addf("project", "cannot be used with serviceAccount: the token belongs to the project of the service account")
	}
}
