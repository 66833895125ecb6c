package cloudsim

import (
	"encoding/json"
	"time"
)

// SigningKeyID names a signing key, e.g. "key-000001".
type SigningKeyID string

// KindSigningKey is the kind of resource in events and operations about signing keys.
const KindSigningKey ResourceKind = "signingKey"

// KeyUse is the purpose of a signing key. A token that is signed for one purpose is not valid for
// another purpose, even if the issuer and the audience of the token match.
type KeyUse string

const (
	KeyIdentity KeyUse = "identity" // identity documents of instances
	KeyRegistry KeyUse = "registry" // passwords and bearer tokens of the registry
)

// KeyUses lists every use.
func KeyUses() []KeyUse { return []KeyUse{KeyIdentity, KeyRegistry} }

// SigningKeyState is the lifecycle state of a key.
type SigningKeyState string

const (
	SigningKeyActive   SigningKeyState = "active"   // signs tokens; its signatures are valid
	SigningKeyRetiring SigningKeyState = "retiring" // does not sign any more; its signatures are still valid
	SigningKeyRetired  SigningKeyState = "retired"  // final state; only the event of the key's removal shows this state
)

// signingKeyMoves lists every allowed transition of a key. Move returns
// Conflict for a verb that is not listed for the current state.
var signingKeyMoves = map[SigningKeyState]map[Verb]SigningKeyState{
	SigningKeyActive:   {Retire: SigningKeyRetiring},
	SigningKeyRetiring: {Settle: SigningKeyRetired, Delete: SigningKeyRetired},
}

// SigningKeyStates lists every state.
func SigningKeyStates() []SigningKeyState {
	return []SigningKeyState{SigningKeyActive, SigningKeyRetiring, SigningKeyRetired}
}

// SigningKey signs tokens of the cloud with ES256 (RFC 7518 section 3.4). For each use
// (identity or registry), exactly one key is active. The API never returns the private half
// of the key.
type SigningKey struct {
	ID SigningKeyID `json:"id" example:"key-000001"`
	Meta
	Use       KeyUse          `json:"use" enum:"identity,registry"`
	State     SigningKeyState `json:"state" enum:"active,retiring,retired"`
	RetiresAt *time.Time      `json:"retiresAt,omitempty" doc:"RFC 3339; time at which the key's signatures become invalid. Absent while the key is active"`
	KeyID     string          `json:"keyID,omitempty" hidden:"true"`   // the kid in the key set: the RFC 7638 thumbprint of the public half
	Private   []byte          `json:"private,omitempty" hidden:"true"` // private half in PKCS #8; the API never returns this field
}

// Move applies verb to k. If k's state does not allow verb, Move returns Conflict and does not
// change k.
func (k *SigningKey) Move(verb Verb) error {
	return changeState(&k.State, signingKeyMoves, verb, KindSigningKey, string(k.ID))
}

// MaxKeyOverlap is the longest time that the signatures of a retiring key can
// stay valid, in seconds.
const MaxKeyOverlap = 30 * 24 * 3600

// RotateSigningKey requests a new key for one use. After the rotation, the previous
// key does not sign any more. Its signatures stay valid for OverlapSeconds.
type RotateSigningKey struct {
	Use            KeyUse `json:"use" enum:"identity,registry"`
	OverlapSeconds int64  `json:"overlapSeconds" minimum:"0" maximum:"2592000" example:"3600" doc:"Seconds for which signatures of the previous key stay valid; 0 for not at all. Use at least the lifetime of a token: with a smaller value the cloud refuses tokens that have not expired"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r RotateSigningKey) Validate() error {
	var c checks
	switch r.Use {
	case KeyIdentity, KeyRegistry:
	default:
		c.addf("use", "must be identity or registry, got %q", Clip(string(r.Use)))
	}
	if r.OverlapSeconds < 0 || r.OverlapSeconds > MaxKeyOverlap {
		c.addf("overlapSeconds", "must be between 0 and %d, got %d", MaxKeyOverlap, r.OverlapSeconds)
	}
	return c.err()
}

// KeySet contains the public halves of all valid keys, as a JSON Web Key Set (RFC 7517
// section 5).
type KeySet struct {
	Keys []json.RawMessage `json:"keys"`
}

// OpenIDConfiguration describes the cloud as an issuer of tokens (OpenID
// Connect Discovery 1.0 section 3). It has only some of the standard's fields,
// because the cloud offers no login.
type OpenIDConfiguration struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}
