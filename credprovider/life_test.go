package credprovider_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/credprovider"
)

// In the answer, the key of the credential is the registry of the image in the form host[:port].
// This is true for every form of the image name.
func TestAuthKeys(t *testing.T) {
	const digest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for registry, images := range map[string][]string{
		host:             {"/a", "/a/b/c", "/a:v1", "/a" + digest, "/a/b:v1" + digest},
		"[::1]:5000":     {"/a", "/a:v1"},
		"registry.sim":   {"/team/app"},
		"localhost:5000": {"/a"},
		"Registry.sim":   {"/a"},
	} {
		_, cfg := nodeOf(t, registry)
		for _, image := range images {
			a, err := run(t, cfg, strings.NewReader(ask(registry+image, "")))
			if _, ok := a.Auth[registry]; err != nil || !ok || len(a.Auth) != 1 {
				t.Errorf("%s%s: got the credentials %v, error %v; want only the key %s", registry, image, a.Auth, err, registry)
			}
		}
	}
}

// serveLifetime starts a server that simulates the cloud. The server returns
// passwords with the given remaining life.
func serveLifetime(t *testing.T, seconds int64) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(cloudsim.RegistryCredential{Registry: host, Username: "cloud", Password: "p", TTLSeconds: seconds})
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// The cache duration in an answer depends on the remaining life of the
// password. If the password expires within a minute, the plugin returns an
// error instead of an answer. Otherwise the cache duration is
// (remaining life - 1 minute) / 2, but at most 30 minutes. Every answer has a
// cache duration. Without a cache duration in the answer, the kubelet would use
// its own default.
func TestCacheDuration(t *testing.T) {
	_, cfg := node(t)
	for seconds, want := range map[int64]string{-1: "", 0: "", 30: "", 59: "", 61: "0s", 90: "14s", 900: "6m59s", 3600: "29m29s", 1 << 30: "30m0s"} {
		cfg.CloudURL = serveLifetime(t, seconds)
		a, err := run(t, cfg, strings.NewReader(ask(host+"/a", "")))
		if want == "" {
			if code(err) != credprovider.CodeExpired {
				t.Errorf("password that expires in %d s: got the answer %+v, error %v; want the error code %s", seconds, a, err, credprovider.CodeExpired)
			}
			continue
		}
		got, bad := time.ParseDuration(a.CacheDuration)
		most, _ := time.ParseDuration(want)
		if err != nil || bad != nil || got > most+time.Second || got < most-30*time.Second || got < 0 { // the duration of the run shortens the remaining life
			t.Errorf("password that expires in %d s: got the cache duration %q, error %v; want %s, or up to 30 s less", seconds, a.CacheDuration, err, want)
		}
	}
}

// payload returns the header and the claims of a password. Each password is a
// signed token.
func payload(t *testing.T, password string) (header struct{ Kid string }, claims struct {
	Iss, Sub, Aud, Use string
	PullOnly           bool
	Only               []string
	Exp, Iat           int64
}) {
	t.Helper()
	parts := strings.Split(password, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is not signed", password)
	}
	for i, into := range []any{&header, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

// The password is valid only for pulls from the registry, and for at most an
// hour. The API of the cloud does not accept the password as a token.
func TestThePasswordIsNoToken(t *testing.T) {
	cl, cfg := node(t)
	a, err := run(t, cfg, strings.NewReader(ask(host+"/team/app", "")))
	if err != nil {
		t.Fatal(err)
	}
	_, claims := payload(t, a.Auth[host].Password)
	if claims.Iss != cl.URL || claims.Aud != host || claims.Use != "password" || !claims.PullOnly || claims.Exp-claims.Iat > 3600 || claims.Exp-claims.Iat < 900 {
		t.Errorf("claims of the password: got %+v, want a pull-only password of %s for %s that is valid for 900 to 3600 seconds", claims, cl.URL, host)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", cl.URL+"/v1/instances", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Auth[host].Password)
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cloud's API accepted the password: %s", resp.Status)
	}
}

// The cache has one file for the credential of the node, and one file for each
// pair of a pod's token and a repository. So one identity never gets the
// credential of another identity.
func TestCacheKeepsIdentitiesApart(t *testing.T) {
	cl, cfg := node(t)
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k8s := cluster{key}
	if _, err := cl.CreateServiceAccount(t.Context(), cloudsim.CreateServiceAccount{Name: "puller"}); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.CreateWorkloadTrust(t.Context(), cloudsim.CreateWorkloadTrust{Name: "shop-web", Account: "puller", WorkloadTrustSpec: cloudsim.WorkloadTrustSpec{
		Issuer: issuer, Audience: audience, Keys: k8s.keys(t), Namespace: "shop", ServiceAccount: "web",
	}}); err != nil {
		t.Fatal(err)
	}
	pod := k8s.token(t, nil)
	seen := map[string]string{}
	for identity, in := range map[string]string{
		"node": ask(host+"/shop/web", ""), "pod": ask(host+"/shop/web", pod), "pod, another repository": ask(host+"/shop/api", pod),
		"another pod": ask(host+"/shop/web", k8s.token(t, func(c map[string]any) { c["jti"] = "2" })),
	} {
		for range 2 { // the second run has the same token
			a, err := run(t, cfg, strings.NewReader(in))
			if err != nil {
				t.Fatalf("%s: %v", identity, err)
			}
			if was, ok := seen[a.Auth[host].Password]; ok && was != identity {
				t.Errorf("%s got the password of %s", identity, was)
			}
			seen[a.Auth[host].Password] = identity
			if _, claims := payload(t, a.Auth[host].Password); identity != "node" && len(claims.Only) != 1 {
				t.Errorf("%s: got a password for the repositories %v, want one repository", identity, claims.Only)
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("got %d passwords for four identities", len(seen))
	}
	if a, err := run(t, cfg, strings.NewReader(ask(host+"/shop/web", "a.b.c"))); code(err) != credprovider.CodeDenied {
		t.Errorf("a workload got the cached password of another workload: %+v %v", a, err)
	}
}

// After a rotation of the signing keys, the cache still contains a credential
// that the old key signed. The plugin uses this credential only for the first
// half of its life, and then gets a new credential. The plugin also deletes old
// files of the cache.
func TestCacheFollowsARotation(t *testing.T) {
	cl, cfg := node(t)
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	pull := func() (kid string) {
		t.Helper()
		a, err := run(t, cfg, strings.NewReader(ask(host+"/a", "")))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := payload(t, a.Auth[host].Password)
		return h.Kid
	}
	before := pull()
	if _, err := cl.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyRegistry, OverlapSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	if kid := pull(); kid != before {
		t.Error("the plugin did not use the cache")
	}
	files, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]any{}
	if err := json.Unmarshal(raw, &kept); err != nil {
		t.Fatal(err)
	}
	kept["madeAt"], kept["expiresAt"] = time.Now().Add(-31*time.Minute), time.Now().Add(29*time.Minute)
	if raw, err = json.Marshal(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-3 * time.Hour)
	for i := range 3 {
		path := filepath.Join(cfg.CacheDir, fmt.Sprintf("old-%d.json", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if kid := pull(); kid == before {
		t.Error("the plugin used a password of a retiring key for more than half of its lifetime")
	}
	if all, err := os.ReadDir(cfg.CacheDir); err != nil || len(all) != 2 {
		t.Errorf("files in the cache: %v: %v", all, err)
	}
}
