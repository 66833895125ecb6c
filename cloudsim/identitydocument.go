package cloudsim

import (
	"strings"
	"time"
	"unicode"
)

// IdentityLife is the lifetime of an identity document.
const IdentityLife = time.Hour

// InstanceTokenLife is the lifetime of a token that the cloud gives to an
// instance. If the instance requests a token again in the first half of this
// lifetime, the cloud returns the same token.
const InstanceTokenLife = 15 * time.Minute

// CreateIdentityDocument requests an identity document of an instance.
type CreateIdentityDocument struct {
	Audience string `json:"audience" minLength:"1" maxLength:"255" example:"https://vault.example" doc:"Intended recipient of the document; other recipients must reject it"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateIdentityDocument) Validate() error {
	var c checks
	c.audience("audience", r.Audience)
	return c.err()
}

func (c *checks) audience(field, s string) {
	switch {
	case s == "":
		c.addf(field, "is required")
	case len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		c.addf(field, "must be at most 255 bytes without spaces and control characters, got %q", Clip(s))
	}
}

// IdentityDocument is a signed statement of the cloud about an instance. Other programs can
// verify the signature with the cloud's public keys.
type IdentityDocument struct {
	Token     string    `json:"token" doc:"A JSON Web Token, signed with ES256; its claims are IdentityClaims"`
	ExpiresAt time.Time `json:"expiresAt" doc:"RFC 3339, on the cloud's clock"`
}

// IdentityClaims contains the claims of an identity document. Times are seconds since
// 1970 on the cloud's clock, as in RFC 7519.
type IdentityClaims struct {
	Issuer   string           `json:"iss" doc:"The cloud's issuer; see /.well-known/openid-configuration"`
	Subject  string           `json:"sub" doc:"instance:ID"`
	Audience string           `json:"aud" doc:"Audience that the caller requested"`
	Expires  int64            `json:"exp"`
	From     int64            `json:"nbf"`
	IssuedAt int64            `json:"iat"`
	TokenID  string           `json:"jti"`
	Instance IdentityInstance `json:"instance"`
}

// IdentityInstance is the instance that an identity document describes.
type IdentityInstance struct {
	ID         InstanceID `json:"id"`
	Name       string     `json:"name"`
	ProviderID string     `json:"providerID"`
	Project    ProjectID  `json:"project"`
	Region     string     `json:"region"`
	Zone       string     `json:"zone"`
	Type       string     `json:"type"`
}
