package cloudsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The operations of the image registry. These operations are not routes of the cloud's API.
// RegistryChallenge and RegistryToken need no permission. A role can permit each of the other four
// operations by name. PermitRead also permits RegistryPull. PermitWrite also permits RegistryPush
// and RegistryDelete. Faults can affect all operations of the registry.
const (
	RegistryChallenge = "registry.challenge" // the answer that tells a client to request a token
	RegistryToken     = "registry.token"     // a client's request for a token
	RegistryPull      = "registry.pull"      // read manifests, blobs and tags
	RegistryPush      = "registry.push"      // write manifests, blobs and tags
	RegistryDelete    = "registry.delete"    // delete manifests, blobs and tags
	RegistryCatalog   = "registry.catalog"   // list all repositories of the cloud
)

// Lifetimes of registry credentials.
const (
	RegistryBearerLife  = 5 * time.Minute // lifetime of a bearer token; the token expires earlier if the password that the client used expires
	MinRegistryPassword = 15 * 60         // seconds
	MaxRegistryPassword = 60 * 60         // seconds
)

// RegistryUser is the user name of all clients of the registry. The registry identifies the caller
// by the password, not by the user name.
const RegistryUser = "cloud"

// CreateRegistryCredential requests a password for the registry. If Repositories is set, the
// password is valid only for these repositories. Otherwise it is valid for all repositories that
// the caller's roles permit. The registry checks the caller's roles at each use of the password.
type CreateRegistryCredential struct {
	TTLSeconds   int64    `json:"ttlSeconds,omitempty" minimum:"0" maximum:"3600" example:"3600" doc:"Lifetime in seconds, 900 to 3600; 0 or absent for 3600"`
	Repositories []string `json:"repositories,omitempty" maxItems:"16" example:"[\"team-a/web\"]" doc:"Repositories that the password is valid for; absent for all repositories that the caller may use"`
	PullOnly     bool     `json:"pullOnly,omitempty" doc:"Whether the password is valid only for pulls"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRegistryCredential) Validate() error {
	var c checks
	if r.TTLSeconds != 0 && (r.TTLSeconds < MinRegistryPassword || r.TTLSeconds > MaxRegistryPassword) {
		c.addf("ttlSeconds", "must be between %d and %d, or 0 for the maximum; got %d", MinRegistryPassword, MaxRegistryPassword, r.TTLSeconds)
	}
	if len(r.Repositories) > 16 {
		c.addf("repositories", "has %d entries, at most 16 are allowed", len(r.Repositories))
		return c.err()
	}
	for i, name := range r.Repositories {
		c.repository(fmt.Sprintf("repositories[%d]", i), name)
	}
	return c.err()
}

// RegistryCredential is a password for the registry. The password is valid until ExpiresAt.
type RegistryCredential struct {
	Registry  string    `json:"registry" doc:"Registry as host[:port], the first part of image names" example:"127.0.0.1:5000"`
	Username  string    `json:"username" doc:"User name for all passwords"`
	Password  string    `json:"password" doc:"Password. Only this response contains it"`
	ExpiresAt time.Time `json:"expiresAt" doc:"RFC 3339, on the cloud's clock"`
	// If the caller's clock differs from the cloud's clock, the caller cannot use ExpiresAt.
	// Instead, the caller can add TTLSeconds to the time of its own clock.
	TTLSeconds int64 `json:"ttlSeconds" doc:"Whole seconds until the password expires"`
}

// RegistryAccess is one scope of a bearer token. The distribution token
// specification writes a scope as repository:team-a/web:pull,push.
type RegistryAccess struct {
	Type    string   `json:"type" example:"repository"`
	Name    string   `json:"name" example:"team-a/web"`
	Actions []string `json:"actions"`
}

// String returns the scope as text, e.g. repository:team-a/web:pull,push.
func (a RegistryAccess) String() string {
	return a.Type + ":" + a.Name + ":" + strings.Join(a.Actions, ",")
}

// Has reports whether the scope permits the action on the resource with this kind and name.
func (a RegistryAccess) Has(kind, name, action string) bool {
	return a.Type == kind && a.Name == name && slices.Contains(a.Actions, action)
}

// ParseRegistryAccess parses a scope. It returns false if scope is not valid.
func ParseRegistryAccess(scope string) (a RegistryAccess, ok bool) {
	kind, rest, ok1 := strings.Cut(scope, ":")
	i := strings.LastIndex(rest, ":")
	if !ok1 || i < 1 || kind == "" || len(scope) > 512 {
		return a, false
	}
	return RegistryAccess{Type: kind, Name: rest[:i], Actions: strings.Split(rest[i+1:], ",")}, true
}

// RegistryDecision is an entry of the registry's audit trail: the caller, the
// request, the decision, and the reason of a refusal.
type RegistryDecision struct {
	Time      time.Time `json:"time" doc:"RFC 3339, on the cloud's clock"`
	Caller    string    `json:"caller,omitempty" doc:"Caller; absent if unknown"`
	Operation string    `json:"operation" example:"registry.pull"`
	Resource  string    `json:"resource,omitempty" example:"team-a/web"`
	Allowed   bool      `json:"allowed"`
	Reason    string    `json:"reason,omitempty" doc:"Reason of the refusal"`
	RequestID string    `json:"requestId,omitempty"`
}
