package cloudsim

import (
	"encoding/json"
	"net/url"
	"strings"
)

// WorkloadTrustID names a workload trust, e.g. "trust-000001".
type WorkloadTrustID string

// KindWorkloadTrust is the kind of resource in events about workload trusts.
const KindWorkloadTrust ResourceKind = "workloadTrust"

// WorkloadTrust gives a workload the identity of a service account of the cloud. A workload is a
// program that uses a Kubernetes service account. Instead of a secret, the workload presents a
// token that its Kubernetes cluster signed for the audience of the trust. The cloud verifies the
// token with the cluster's public keys and does not contact the cluster.
type WorkloadTrust struct {
	ID WorkloadTrustID `json:"id" example:"trust-000001"`
	Meta
	WorkloadTrustSpec
	Account ServiceAccountID `json:"account" doc:"Service account of the cloud that the workload authenticates as" example:"sa-000001"`
}

// WorkloadTrustSpec selects the trusted tokens.
type WorkloadTrustSpec struct {
	Issuer         string `json:"issuer" maxLength:"512" example:"https://kubernetes.default.svc.cluster.local" doc:"Issuer of the cluster's tokens (claim iss)"`
	Audience       string `json:"audience" maxLength:"255" example:"registry.cloudsim" doc:"Required audience of tokens. It must not be the audience of the cluster's API server"`
	Keys           string `json:"keys" maxLength:"65536" doc:"JSON Web Key Set of the cluster's public keys, from /openid/v1/jwks of its API server"`
	Namespace      string `json:"namespace" maxLength:"63" example:"shop"`
	ServiceAccount string `json:"serviceAccount" maxLength:"253" example:"web" doc:"Name of the Kubernetes service account"`
	UID            string `json:"uid,omitempty" maxLength:"64" doc:"UID of the Kubernetes service account. A recreated service account has a new UID. Absent for any UID"`
}

// CreateWorkloadTrust requests a workload trust. The call is idempotent: the same request
// with the same name returns the existing workload trust.
type CreateWorkloadTrust struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop-web"`
	Labels map[string]string `json:"labels,omitempty"`
	WorkloadTrustSpec
	Account string `json:"account" minLength:"1" maxLength:"128" example:"puller" doc:"Service account of the cloud (id or name) that the workload authenticates as"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateWorkloadTrust) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	if u, err := url.Parse(r.Issuer); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || len(r.Issuer) > 512 {
		c.addf("issuer", "must be the issuer URL of the cluster's tokens, with http or https (see the field issuer of 'kubectl get --raw /.well-known/openid-configuration'), got %q", Clip(r.Issuer))
	}
	c.audience("audience", r.Audience)
	var set KeySet
	if len(r.Keys) > 64<<10 || json.Unmarshal([]byte(r.Keys), &set) != nil || len(set.Keys) == 0 {
		c.addf("keys", "must be a JSON Web Key Set with at least one key, from kubectl get --raw /openid/v1/jwks")
	}
	c.name("namespace", r.Namespace)
	if r.ServiceAccount == "" || len(r.ServiceAccount) > 253 || strings.ContainsAny(r.ServiceAccount, ":/ ") {
		c.addf("serviceAccount", "must be the name of a Kubernetes service account, got %q", Clip(r.ServiceAccount))
	}
	if len(r.UID) > 64 {
		c.addf("uid", "must be at most 64 bytes")
	}
	c.reference("account", r.Account)
	return c.err()
}
