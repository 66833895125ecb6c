package credprovider_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/credprovider"
)

// cluster signs service account tokens in the same way as an API server.
type cluster struct{ key *rsa.PrivateKey }

const (
	issuer   = "https://kubernetes.default.svc.cluster.local"
	audience = "registry.cloudsim"
)

func (c cluster) keys(t *testing.T) string {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &c.key.PublicKey, KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// token returns a signed service account token in the form that a kubelet
// requests for a pod. The function changeFn can change the claims before token
// signs them.
func (c cluster) token(t *testing.T, changeFn func(claims map[string]any)) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: c.key, KeyID: "k1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	claims := map[string]any{
		"iss": issuer, "aud": []string{audience}, "sub": "system:serviceaccount:shop:web",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]string{"name": "web", "uid": "u-1"}, "pod": map[string]string{"name": "web-1", "uid": "p-1"},
		},
	}
	if changeFn != nil {
		changeFn(claims)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A workload trust is a record of the cloud that maps a Kubernetes service account to a service
// account of the cloud. If a pod's account has a trust, the pod pulls with the identity of the
// cloud's account, and not with the identity of the node. The cloud refuses invalid tokens, and
// tokens with claims that do not match the trust.
func TestAServiceAccountPulls(t *testing.T) {
	cl, cfg := node(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k8s := cluster{key}
	if _, err := cl.CreateServiceAccount(t.Context(), cloudsim.CreateServiceAccount{Name: "puller"}); err != nil {
		t.Fatal(err)
	}
	trust := cloudsim.CreateWorkloadTrust{Name: "shop-web", Account: "puller", WorkloadTrustSpec: cloudsim.WorkloadTrustSpec{
		Issuer: issuer, Audience: audience, Keys: k8s.keys(t), Namespace: "shop", ServiceAccount: "web", UID: "u-1",
	}}
	if _, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", k8s.token(t, nil)))); code(err) != credprovider.CodeDenied {
		t.Errorf("pull without a trust: got error %v, want the code %s", err, credprovider.CodeDenied)
	}
	w, err := cl.CreateWorkloadTrust(t.Context(), trust)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", k8s.token(t, nil))))
	if err != nil || a.CacheKeyType != "Image" || a.Auth[host].Password == "" {
		t.Fatalf("pull with a trust: got %+v, error %v; want a password and the cache key type Image", a, err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	within := func(part, field, value string) func(map[string]any) {
		return func(claims map[string]any) {
			claims["kubernetes.io"].(map[string]any)[part].(map[string]string)[field] = value
		}
	}
	for name, token := range map[string]string{
		"the API server's audience": k8s.token(t, func(c map[string]any) { c["aud"] = []string{issuer} }),
		"another cluster":           k8s.token(t, func(c map[string]any) { c["iss"] = "https://elsewhere" }),
		"another account":           k8s.token(t, func(c map[string]any) { c["sub"] = "system:serviceaccount:shop:api" }),
		"expired":                   k8s.token(t, func(c map[string]any) { c["exp"] = time.Now().Add(-time.Second).Unix() }),
		"without expiry":            k8s.token(t, func(c map[string]any) { delete(c, "exp") }),
		"not valid yet":             k8s.token(t, func(c map[string]any) { c["nbf"] = time.Now().Add(time.Hour).Unix() }),
		"recreated service account": k8s.token(t, within("serviceaccount", "uid", "u-2")),
		"without a pod":             k8s.token(t, within("pod", "uid", "")),
		"another key":               cluster{other}.token(t, nil),
	} {
		if _, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", token))); code(err) != credprovider.CodeDenied {
			t.Errorf("token %q: got error %v, want the code %s", name, err, credprovider.CodeDenied)
		} else if strings.Contains(err.Error(), token) {
			t.Errorf("token %q: the error contains the token", name)
		}
	}
	if err := cl.DeleteWorkloadTrust(t.Context(), w.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", k8s.token(t, nil)))); code(err) != credprovider.CodeDenied {
		t.Errorf("pull after the deletion of the trust: got error %v, want the code %s", err, credprovider.CodeDenied)
	}
}

// The configuration has an OptInAnnotation. If a service account lacks this
// annotation, its pods pull images with the identity of their node. If a service
// account has the annotation, its pods never use the identity of their node.
func TestOptIn(t *testing.T) {
	const own = "cloudsim.dev/own"
	_, cfg := node(t)
	cfg.OptInAnnotation = own
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	token := cluster{key}.token(t, nil) // the cloud does not trust this token
	if a, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", token, "cloudsim.dev/other"))); err != nil || a.CacheKeyType != "Registry" {
		t.Errorf("pod without the opt-in annotation: got %+v, error %v; want the cache key type Registry", a, err)
	}
	if a, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", token, own))); code(err) != credprovider.CodeDenied {
		t.Errorf("pod with the opt-in annotation: got %+v, error %v; want the code %s", a, err, credprovider.CodeDenied)
	}
	if a, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", "", own))); code(err) != credprovider.CodeInput {
		t.Errorf("pod with the opt-in annotation, without a token: got %+v, error %v; want the code %s", a, err, credprovider.CodeInput)
	}
}
