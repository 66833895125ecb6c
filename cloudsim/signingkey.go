package cloudsim

import (
	"encoding/json"
	"time"
)

// SigningKeyID names a signing key, e.g. "key-000001".
type SigningKeyID string

// KindSigningKey is the kind of signing keys in events and operations.
const KindSigningKey ResourceKind = "signingKey"

// KeyUse is what a key signs. What one use signed is no good for another, even
// if issuer and audience agree.
type KeyUse string

const (
	KeyIdentity KeyUse = "identity" // identity documents of instances
	KeyRegistry KeyUse = "registry" // passwords and bearer tokens of the registry
)

// KeyUses lists every use.
func KeyUses() []KeyUse { return []KeyUse{KeyIdentity, KeyRegistry} }

// SigningKeyState is where a key is in its life.
type SigningKeyState string

const (
	SigningKeyActive   SigningKeyState = "active"   // it signs, and what it signed is good
	SigningKeyRetiring SigningKeyState = "retiring" // it signs no more; what it signed is still good
	SigningKeyRetired  SigningKeyState = "retired"  // the last value, in the event that says it is gone
)

// signingKeyMoves is the whole life of a key.
var signingKeyMoves = map[SigningKeyState]map[Verb]SigningKeyState{
	SigningKeyActive:   {Retire: SigningKeyRetiring},
	SigningKeyRetiring: {Settle: SigningKeyRetired, Delete: SigningKeyRetired},
}

// SigningKeyStates lists every state, for tests and help.
func SigningKeyStates() []SigningKeyState {
	return []SigningKeyState{SigningKeyActive, SigningKeyRetiring, SigningKeyRetired}
}

// SigningKey signs tokens of the cloud by ES256 (RFC 7518 section 3.4). Of
// each use one key is active. Its private half never leaves the engine.
type SigningKey struct {
	ID SigningKeyID `json:"id" example:"key-000001"`
	Meta
	Use       KeyUse          `json:"use" enum:"identity,registry"`
	State     SigningKeyState `json:"state" enum:"active,retiring,retired"`
	RetiresAt *time.Time      `json:"retiresAt,omitempty" doc:"RFC 3339; when what it signed is good no more. Absent while it is active"`
	KeyID     string          `json:"keyID,omitempty" hidden:"true"`   // the kid: the RFC 7638 thumbprint of its public half, which the key set tells
	Private   []byte          `json:"private,omitempty" hidden:"true"` // PKCS #8; never leaves the engine
}

// Move applies verb, or returns Conflict and leaves k as it was.
func (k *SigningKey) Move(verb Verb) error {
	return move(&k.State, signingKeyMoves, verb, KindSigningKey, string(k.ID))
}

// MaxKeyOverlap is the longest that a retiring key may still be good, in
// seconds.
const MaxKeyOverlap = 30 * 24 * 3600

// RotateSigningKey makes a new key of a use. The one before signs no more, and
// what it signed stays good for the overlap.
type RotateSigningKey struct {
	Use            KeyUse `json:"use" enum:"identity,registry"`
	OverlapSeconds int64  `json:"overlapSeconds" minimum:"0" maximum:"2592000" example:"3600" doc:"How long what the key before signed stays good; 0 for no longer. No shorter than the life of a token, or good tokens are refused"`
}

// Validate checks what needs no other state.
func (r RotateSigningKey) Validate() error {
	var c checks
	switch r.Use {
	case KeyIdentity, KeyRegistry:
	default:
		c.addf("use", "must be identity or registry, got %q", clip(string(r.Use)))
	}
	if r.OverlapSeconds < 0 || r.OverlapSeconds > MaxKeyOverlap {
		c.addf("overlapSeconds", "must be between 0 and %d, got %d", MaxKeyOverlap, r.OverlapSeconds)
	}
	return c.err()
}

// KeySet is the public halves of all keys that are good, as a JSON Web Key Set
// (RFC 7517 section 5).
type KeySet struct {
	Keys []json.RawMessage `json:"keys"`
}

// OpenIDConfiguration is what the cloud says of itself as an issuer of tokens
// (OpenID Connect Discovery 1.0 section 3), as far as it is one: it logs
// nobody in.
type OpenIDConfiguration struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}
