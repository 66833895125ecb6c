package cloudsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The operations of the registry. They are no routes of the API: roles permit
// them by name or class, and faults break them.
const (
	RegistryChallenge = "registry.challenge" // a client sent to the token endpoint
	RegistryToken     = "registry.token"     // the token endpoint
	RegistryPull      = "registry.pull"      // manifests, blobs and tags read
	RegistryPush      = "registry.push"      // written
	RegistryDelete    = "registry.delete"    // deleted
	RegistryCatalog   = "registry.catalog"   // all names of the cloud
)

// Lives of what opens the registry.
const (
	RegistryBearerLife  = 5 * time.Minute // what a request carries; never longer than its password
	MinRegistryPassword = 15 * 60         // seconds
	MaxRegistryPassword = 60 * 60         // seconds
)

// RegistryUser is the user name that goes with every password: the password
// says who it is.
const RegistryUser = "cloud"

// CreateRegistryCredential asks for a password to the registry. It does what
// its caller may do when it is used, and no more than what is asked for here.
type CreateRegistryCredential struct {
	TTLSeconds   int64    `json:"ttlSeconds,omitempty" minimum:"0" maximum:"3600" example:"3600" doc:"Life in seconds, 900 to 3600; 0 or absent for 3600"`
	Repositories []string `json:"repositories,omitempty" maxItems:"16" example:"[\"team-a/web\"]" doc:"Only for these; absent for all that the caller may use"`
	PullOnly     bool     `json:"pullOnly,omitempty" doc:"For nothing but pulls"`
}

// Validate checks what needs no other state.
func (r CreateRegistryCredential) Validate() error {
	var c checks
	if r.TTLSeconds != 0 && (r.TTLSeconds < MinRegistryPassword || r.TTLSeconds > MaxRegistryPassword) {
		c.addf("ttlSeconds", "must be between %d and %d, or 0 for the longest; got %d", MinRegistryPassword, MaxRegistryPassword, r.TTLSeconds)
	}
	if len(r.Repositories) > 16 {
		c.addf("repositories", "has %d entries; at most 16", len(r.Repositories))
		return c.err()
	}
	for i, name := range r.Repositories {
		c.repository(fmt.Sprintf("repositories[%d]", i), name)
	}
	return c.err()
}

// RegistryCredential opens the registry for as long as it lives and its caller
// may.
type RegistryCredential struct {
	Registry  string    `json:"registry" doc:"host[:port] that image names begin with" example:"127.0.0.1:5000"`
	Username  string    `json:"username" doc:"Goes with every password"`
	Password  string    `json:"password" doc:"Present in this answer only"`
	ExpiresAt time.Time `json:"expiresAt" doc:"RFC 3339, on the cloud's clock"`
	// TTLSeconds lets a caller reckon on a clock of its own.
	TTLSeconds int64 `json:"ttlSeconds" doc:"Whole seconds until it expires"`
}

// RegistryAccess is one scope of a bearer token, as the distribution token
// specification writes them: repository:team-a/web:pull,push.
type RegistryAccess struct {
	Type    string   `json:"type" example:"repository"`
	Name    string   `json:"name" example:"team-a/web"`
	Actions []string `json:"actions"`
}

// String is a as a scope.
func (a RegistryAccess) String() string {
	return a.Type + ":" + a.Name + ":" + strings.Join(a.Actions, ",")
}

// Has reports whether a is for that action on that resource.
func (a RegistryAccess) Has(kind, name, action string) bool {
	return a.Type == kind && a.Name == name && slices.Contains(a.Actions, action)
}

// ParseRegistryAccess reads a scope; false if it is none.
func ParseRegistryAccess(scope string) (a RegistryAccess, ok bool) {
	kind, rest, ok1 := strings.Cut(scope, ":")
	i := strings.LastIndex(rest, ":")
	if !ok1 || i < 1 || kind == "" || len(scope) > 512 {
		return a, false
	}
	return RegistryAccess{Type: kind, Name: rest[:i], Actions: strings.Split(rest[i+1:], ",")}, true
}

// RegistryDecision is an entry of the registry's audit trail: who asked for
// what, and why it was refused.
type RegistryDecision struct {
	Time      time.Time `json:"time" doc:"RFC 3339, on the cloud's clock"`
	Caller    string    `json:"caller,omitempty" doc:"Who asked; absent if it is not known"`
	Operation string    `json:"operation" example:"registry.pull"`
	Resource  string    `json:"resource,omitempty" example:"team-a/web"`
	Allowed   bool      `json:"allowed"`
	Reason    string    `json:"reason,omitempty" doc:"Why it was refused"`
	RequestID string    `json:"requestId,omitempty"`
}
