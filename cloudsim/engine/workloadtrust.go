package engine

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const bySubject = "subject"

var workloadTrusts = store.Table[cloudsim.WorkloadTrust]{
	Kind: cloudsim.KindWorkloadTrust, Prefix: "trust",
	ID:   func(w *cloudsim.WorkloadTrust) string { return string(w.ID) },
	Meta: func(w *cloudsim.WorkloadTrust) *cloudsim.Meta { return &w.Meta },
	Index: map[string]func(*cloudsim.WorkloadTrust) []string{
		bySubject: func(w *cloudsim.WorkloadTrust) []string { return []string{subjectOfPod(w.Namespace, w.ServiceAccount)} },
		byAccount: func(w *cloudsim.WorkloadTrust) []string { return ofAccount(w.Account) },
	},
}

// subjectOfPod returns the subject that Kubernetes writes into the tokens of a
// service account.
func subjectOfPod(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// workloadAlgorithms are the signature algorithms that the cloud accepts in tokens of Kubernetes
// service accounts.
var workloadAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// workloadClaims are the claims in a token of a Kubernetes service account.
type workloadClaims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace      string      `json:"namespace"`
		ServiceAccount boundObject `json:"serviceaccount"`
		Pod            boundObject `json:"pod"`
	} `json:"kubernetes.io"`
}

// boundObject is a Kubernetes object to which a token is bound.
type boundObject struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// isWorkloadToken reports whether a secret is a signed token (JWT). A JWT contains two dots. The
// secrets of the cloud's own tokens contain no dots.
func isWorkloadToken(secret string) bool { return strings.Count(secret, ".") == 2 }

// verifyWorkload verifies a token that a Kubernetes cluster has signed. It first selects workload
// trusts by the subject and the issuer in the token. Then it verifies the signature with the keys
// of these trusts. It returns Unauthenticated if no trust accepts the token, or if trusts of
// different accounts accept it.
func verifyWorkload(tx *store.Tx, secret string) (credential, error) {
	t, err := jwt.ParseSigned(secret, workloadAlgorithms)
	if err != nil {
		return credential{}, cloudsim.Errorf(cloudsim.Unauthenticated, "the token is not a service account token of a cluster")
	}
	var claims workloadClaims
	if err := t.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return credential{}, cloudsim.Errorf(cloudsim.Unauthenticated, "the claims of the token cannot be read")
	}
	trusts, err := workloadTrusts.Lookup(tx, bySubject, claims.Subject)
	if err != nil {
		return credential{}, err
	}
	why := cloudsim.Errorf(cloudsim.Unauthenticated, "no workload trust has the subject %.200q and the issuer %.200q", claims.Subject, claims.Issuer)
	var good cloudsim.WorkloadTrust
	var shown credential
	for _, w := range trusts {
		if w.Issuer != claims.Issuer {
			continue
		}
		until, err := verifyTrusted(tx.Now, w, t)
		switch {
		case err != nil && good.ID == "":
			why = err
		case err != nil:
		case good.ID != "" && good.Account != w.Account: // this case is possible if the token has two audiences
			return credential{}, cloudsim.Errorf(cloudsim.Unauthenticated, "workload trusts %s and %s are both for %.200q, with different accounts: delete one", good.ID, w.ID, claims.Subject)
		case good.ID == "":
			good, shown, why = w, credential{trust: w.ID, until: until}, nil
		}
	}
	return shown, why
}

// workload returns a token of the cloud for a pod. Credential c must be the result of
// verifyWorkload for the pod's Kubernetes token. The returned token has the permissions of the
// service account in the workload trust. The store does not contain this token. If the trust no
// longer exists or the Kubernetes token has expired, workload returns Unauthenticated.
func (c credential) workload(tx *store.Tx) (cloudsim.Token, error) {
	w, err := workloadTrusts.Get(tx, string(c.trust))
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return cloudsim.Token{}, cloudsim.Errorf(cloudsim.Unauthenticated, "workload trust %s, which permitted the token, does not exist any more", c.trust)
	case err != nil:
		return cloudsim.Token{}, err
	case !tx.Now.Before(c.until):
		return cloudsim.Token{}, refuseWorkload(w, "has expired")
	}
	return cloudsim.Token{Meta: cloudsim.Meta{Name: w.Name, Project: w.Project}, ServiceAccount: w.Account}, nil
}

// refuseWorkload returns an Unauthenticated error about a token of the Kubernetes service account
// in the workload trust w.
func refuseWorkload(w cloudsim.WorkloadTrust, format string, args ...any) error {
	return cloudsim.Errorf(cloudsim.Unauthenticated, "the token of "+subjectOfPod(w.Namespace, w.ServiceAccount)+" "+format, args...)
}

// verifyTrusted verifies a token with the keys and rules of trust w. It returns the time at which
// the token expires.
func verifyTrusted(cloudTime time.Time, w cloudsim.WorkloadTrust, t *jwt.JSONWebToken) (until time.Time, err error) {
	refuse := func(format string, args ...any) (time.Time, error) { return until, refuseWorkload(w, format, args...) }
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(w.Keys), &set); err != nil {
		return until, err
	}
	keys := set.Key(t.Headers[0].KeyID)
	if len(keys) == 0 {
		return refuse("is signed by a key that workload trust %s does not have: if the cluster has new keys, read them with 'kubectl get --raw /openid/v1/jwks', and create the trust again with them", w.ID)
	}
	var c workloadClaims
	if !slices.ContainsFunc(keys, func(k jose.JSONWebKey) bool { return t.Claims(k.Public().Key, &c) == nil }) {
		return refuse("has a wrong signature")
	}
	k := c.Kubernetes
	switch {
	case !slices.Contains(c.Audience, w.Audience):
		return refuse("is for the audience %q and not for %q", []string(c.Audience), w.Audience)
	case c.Expiry == nil || !cloudTime.Before(c.Expiry.Time()):
		return refuse("has expired")
	case c.NotBefore != nil && cloudTime.Before(c.NotBefore.Time()):
		return refuse("is not valid yet")
	case k.Namespace != w.Namespace || k.ServiceAccount.Name != w.ServiceAccount:
		return refuse("is for another service account, %s/%s", k.Namespace, k.ServiceAccount.Name)
	case w.UID != "" && k.ServiceAccount.UID != w.UID:
		return refuse("belongs to an earlier service account of this name, which was deleted")
	case k.Pod.UID == "":
		return refuse("is not bound to a pod")
	}
	return c.Expiry.Time(), nil
}

// CreateWorkloadTrust lets a Kubernetes service account call the cloud as a service account of the
// cloud. If the caller lacks a permission of the cloud's service account, CreateWorkloadTrust
// returns Denied. It returns Exists if another trust conflicts with the new trust (see the function
// onlyTrust).
func (ac *access) CreateWorkloadTrust(ctx context.Context, req cloudsim.CreateWorkloadTrust) (w cloudsim.WorkloadTrust, err error) {
	if err := req.Validate(); err != nil {
		return w, err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(req.Keys), &set); err != nil || slices.ContainsFunc(set.Keys, func(k jose.JSONWebKey) bool { return !k.IsPublic() || !k.Valid() }) {
		return w, cloudsim.InvalidField("keys", "must be a JSON Web Key Set of public keys, as 'kubectl get --raw /openid/v1/jwks' prints it")
	}
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		w, err = idempotent(tx, call, workloadTrusts, req, func() (cloudsim.WorkloadTrust, error) { return ac.trustByName(tx, call, req) })
		return err
	})
	return w, err
}

func (ac *access) trustByName(tx *store.Tx, call Call, req cloudsim.CreateWorkloadTrust) (w cloudsim.WorkloadTrust, err error) {
	project, err := ac.projectOf(tx, call)
	if err != nil {
		return w, err
	}
	account, err := accountToCarry(tx, call, project, req.Account)
	if err != nil {
		return w, err
	}
	w = cloudsim.WorkloadTrust{Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels}, WorkloadTrustSpec: req.WorkloadTrustSpec, Account: account}
	switch have, err := workloadTrusts.Named(tx, project, req.Name); {
	case err == nil && (have.WorkloadTrustSpec != w.WorkloadTrustSpec || have.Account != w.Account || !sameLabels(have.Labels, w.Labels)):
		return have, errNameTaken(cloudsim.KindWorkloadTrust, req.Name, string(have.ID), "another account, issuer, audience or other fields")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return w, err
	}
	if err := onlyTrust(tx, call, w); err != nil {
		return w, err
	}
	id, err := workloadTrusts.NextID(tx)
	if err != nil {
		return w, err
	}
	w.ID = cloudsim.WorkloadTrustID(id)
	return w, workloadTrusts.Put(tx, &w)
}

// onlyTrust returns Exists if another trust, in any project, conflicts with w. Two trusts conflict
// if they have a common key and are for the same Kubernetes service account, issuer and audience.
// With both trusts, a token of this Kubernetes service account could be valid for two accounts of
// the cloud. Trusts without a common key do not conflict, because only one of them can verify the
// signature of a token.
//
// A project can copy the public keys of a cluster, and create a trust before the owner of the
// cluster does. The owner then gets Exists until an administrator deletes the trust of that
// project.
func onlyTrust(tx *store.Tx, call Call, w cloudsim.WorkloadTrust) error {
	all, err := workloadTrusts.Lookup(tx, bySubject, subjectOfPod(w.Namespace, w.ServiceAccount))
	if err != nil {
		return err
	}
	for _, have := range all {
		if have.Issuer != w.Issuer || have.Audience != w.Audience || !shareKey(have.Keys, w.Keys) {
			continue
		}
		trust, help := "workload trust "+string(have.ID), "delete that workload trust first"
		if !call.canSee(&have.Meta) {
			trust, help = "a workload trust of another project", "ask an administrator to delete that workload trust"
		}
		return cloudsim.Errorf(cloudsim.Exists, "%s already exists for the Kubernetes service account %s/%s with the issuer %q and the audience %q: %s, or use another audience", trust, w.Namespace, w.ServiceAccount, w.Issuer, w.Audience, help)
	}
	return nil
}

// shareKey reports whether two key sets have a key in common. It compares the keys and ignores
// their key ids. It also returns true if it cannot decode one of the sets.
func shareKey(a, b string) bool {
	var sets [2]jose.JSONWebKeySet
	if json.Unmarshal([]byte(a), &sets[0]) != nil || json.Unmarshal([]byte(b), &sets[1]) != nil {
		return true
	}
	known := map[string]bool{}
	for n, set := range sets {
		for _, k := range set.Keys {
			sum, err := k.Thumbprint(crypto.SHA256)
			if err != nil || n == 1 && known[string(sum)] {
				return true
			}
			if n == 0 {
				known[string(sum)] = true
			}
		}
	}
	return false
}

// GetWorkloadTrust returns a workload trust.
func (ac *access) GetWorkloadTrust(ctx context.Context, id cloudsim.WorkloadTrustID) (cloudsim.WorkloadTrust, error) {
	return read(ctx, ac.core, workloadTrusts, string(id))
}

// ListWorkloadTrusts returns one page of workload trusts.
func (ac *access) ListWorkloadTrusts(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.WorkloadTrust], error) {
	return listPage(ctx, ac.core, workloadTrusts, o, nil)
}

// DeleteWorkloadTrust deletes a trust. From the next call on, the cloud refuses the tokens that the
// trust accepted. The cloud also ends the open watches of callers with these tokens.
func (ac *access) DeleteWorkloadTrust(ctx context.Context, id cloudsim.WorkloadTrustID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		w, err := get(tx, call, workloadTrusts, string(id))
		if err != nil {
			return err
		}
		return workloadTrusts.Delete(tx, &w)
	})
}
