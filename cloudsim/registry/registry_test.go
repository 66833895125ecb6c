package registry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
)

// world contains a client of a cloud and a client of the cloud's registry. The cloud's clock is
// frozen.
type world struct {
	*client.Client
	host string
	dir  string
	http *http.Client
}

func start(t *testing.T, change ...func(*registry.Config)) *world {
	t.Helper()
	return startLogging(t, slog.New(slog.DiscardHandler), change...)
}

func startLogging(t *testing.T, log *slog.Logger, change ...func(*registry.Config)) *world {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{host: ln.Addr().String(), dir: t.TempDir()}
	conf, err := registry.TLS(w.dir, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := registry.Config{Listener: tls.NewListener(ln, conf), Dir: w.dir, URL: "https://" + w.host, Name: w.host, TokensPerSecond: 1000}
	for _, c := range change {
		c(&cfg)
	}
	w.Client = cloudtest.Start(t,
		cloudtest.WithConfig(func(c *engine.Config) { c.Registry, c.FrozenAt = w.host, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return registry.Run(ctx, log, cfg, e)
		}), cloudtest.WithLog(log))
	pem, err := os.ReadFile(filepath.Join(w.dir, registry.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	w.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(w.http.CloseIdleConnections)
	for _, repo := range []string{"team-a/web", "team-b/api"} {
		if _, err := w.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: repo}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// user creates a service account with a role for some repositories. It returns
// a client that calls the cloud as this account.
func (w *world) user(t *testing.T, account string, role cloudsim.RoleName, resource string) *client.Client {
	t.Helper()
	a, err := w.CreateServiceAccount(t.Context(), cloudsim.CreateServiceAccount{Name: account})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateRoleBinding(t.Context(), cloudsim.CreateRoleBinding{Name: account, Role: role, ServiceAccount: account, Resource: resource}); err != nil {
		t.Fatal(err)
	}
	tok, err := w.CreateToken(t.Context(), cloudsim.CreateToken{ServiceAccount: string(a.ID)})
	if err != nil {
		t.Fatal(err)
	}
	c := *w.Client
	c.Token, c.Project = client.StaticToken(tok.Secret), ""
	return &c
}

// password creates a registry password for the caller of c. It also returns the option with which
// go-containerregistry sends this password.
func (w *world) password(t *testing.T, c *client.Client, req cloudsim.CreateRegistryCredential) (cloudsim.RegistryCredential, remote.Option) {
	t.Helper()
	cred, err := c.CreateRegistryCredential(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return cred, remote.WithAuth(&authn.Basic{Username: cred.Username, Password: cred.Password})
}

func (w *world) ref(t *testing.T, s string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(w.host + "/" + s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func (w *world) push(t *testing.T, image string, opts ...remote.Option) error {
	t.Helper()
	img, err := random.Image(4096, 3)
	if err != nil {
		t.Fatal(err)
	}
	return remote.Write(w.ref(t, image), img, append(opts, w.wire(t))...)
}

func (w *world) pull(t *testing.T, image string, opts ...remote.Option) (v1.Image, error) {
	t.Helper()
	img, err := remote.Image(w.ref(t, image), append(opts, w.wire(t))...)
	if err != nil {
		return nil, err
	}
	return img, validate.Image(img)
}

func (w *world) wire(*testing.T) remote.Option {
	return remote.WithTransport(w.http.Transport)
}

func mustContain(t *testing.T, scenario string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got error %v, want %q", scenario, err, word)
		}
	}
}

// TestPushAndPull proves that a client can push to a repository, or pull from it, only if the
// client's roles permit this. The client is the library go-containerregistry. If a caller has no
// permission to use a repository, the answer does not show whether the repository exists.
func TestPushAndPull(t *testing.T) {
	w := start(t)
	ci, node := w.user(t, "ci", cloudsim.RoleRegistryWriter, "team-a/*"), w.user(t, "node", cloudsim.RoleRegistryReader, "team-a/*")
	_, asCI := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	_, asNode := w.password(t, node, cloudsim.CreateRegistryCredential{PullOnly: true})
	if err := w.push(t, "team-a/web:v1", asCI); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pull(t, "team-a/web:v1", asNode); err != nil {
		t.Error(err)
	}
	mustContain(t, "a node pushes", w.push(t, "team-a/web:v2", asNode), "DENIED", "does not permit the action push")
	mustContain(t, "into another team's repository", w.push(t, "team-b/api:v1", asCI), "403")
	mustContain(t, "into one that is not there", w.push(t, "team-b/none:v1", asCI), "403")
	_, err := w.pull(t, "team-a/web:v1")
	mustContain(t, "without a password", err, "DENIED", "the request has no password")
	_, err = w.pull(t, "team-a/web:v1", remote.WithAuth(&authn.Basic{Username: "cloud", Password: "guess"}))
	mustContain(t, "with a guess", err, "UNAUTHORIZED", "neither a valid token of the cloud nor a registry password")
	tags, err := remote.List(w.ref(t, "team-a/web").Context(), asNode, w.wire(t))
	if err != nil || len(tags) != 1 || tags[0] != "v1" {
		t.Errorf("tags: got %v, error %v; want v1", tags, err)
	}
	_, err = remote.Catalog(t.Context(), w.ref(t, "team-a/web").Context().Registry, asCI, w.wire(t))
	mustContain(t, "a catalog without its scope", err, "DENIED", "registry.catalog")
	secret, err := w.Token()
	if err != nil {
		t.Fatal(err)
	}
	names, err := remote.Catalog(t.Context(), w.ref(t, "team-a/web").Context().Registry, remote.WithAuth(&authn.Basic{Username: "any", Password: secret}), w.wire(t))
	if err != nil || strings.Join(names, " ") != "team-a/web" {
		t.Errorf("catalog of an admin: got %v, error %v; want team-a/web", names, err)
	}
	l, err := w.ListRegistryDecisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := false
	for _, d := range l.Items {
		refused = refused || !d.Allowed && d.Caller == "node" && strings.Contains(d.Reason, "not permit the action push")
	}
	if !refused {
		t.Errorf("audit trail: got %+v, want the reason of the refused push", l.Items)
	}
}

// TestEndsOfCredentials checks the times at which credentials become invalid. A password expires
// exactly at its expiry time on the cloud's clock. The removal of a role has effect at once, even
// for valid bearer tokens. After a key rotation, signatures of the old key stay valid until the
// overlap period ends.
func TestEndsOfCredentials(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	_, auth := w.password(t, ci, cloudsim.CreateRegistryCredential{TTLSeconds: 900})
	if err := w.push(t, "team-a/web:v1", auth); err != nil {
		t.Fatal(err)
	}
	w.advance(t, 15*time.Minute-time.Second)
	if _, err := w.pull(t, "team-a/web:v1", auth); err != nil {
		t.Errorf("pull one second before the password expires: got error %v", err)
	}
	w.advance(t, time.Second)
	_, err := w.pull(t, "team-a/web:v1", auth)
	mustContain(t, "at its end", err, "DENIED", "the registry password expired at 2026-01-01T00:15:00Z")

	_, before := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	if _, err := w.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyRegistry, OverlapSeconds: 60}); err != nil {
		t.Fatal(err)
	}
	_, after := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	for phase, auth := range map[string]remote.Option{"before": before, "after": after} {
		if _, err := w.pull(t, "team-a/web:v1", auth); err != nil {
			t.Errorf("pull with a password from %s the rotation: got error %v", phase, err)
		}
	}
	w.advance(t, time.Minute)
	_, err = w.pull(t, "team-a/web:v1", before)
	mustContain(t, "when the overlap is over", err, "DENIED", "a key that the cloud does not have")

	puller, err := remote.NewPuller(after, w.wire(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := puller.Head(t.Context(), w.ref(t, "team-a/web:v1")); err != nil {
		t.Fatal(err)
	}
	l, err := w.ListRoleBindings(t.Context(), cloudsim.ListOptions{Name: "ci"})
	if err != nil || len(l.Items) != 1 {
		t.Fatal(l, err)
	}
	if err := w.DeleteRoleBinding(t.Context(), l.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	_, err = puller.Get(t.Context(), w.ref(t, "team-a/web:v1"))
	mustContain(t, "a bearer token without its role", err, "DENIED", "lacks the permission registry.pull")
}

// bearer calls the token endpoint with POST, as containerd does.
func (w *world) bearer(t *testing.T, password string, scopes ...string) string {
	t.Helper()
	form := url.Values{"grant_type": {"password"}, "service": {w.host}, "username": {"cloud"}, "password": {password}, "scope": scopes}
	resp, err := w.http.PostForm("https://"+w.host+"/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 || out.ExpiresIn != 300 {
		t.Fatalf("token: got %d %+v, error %v", resp.StatusCode, out, err)
	}
	return out.AccessToken
}

func (w *world) do(t *testing.T, method, path, bearer string, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	u := path
	if strings.HasPrefix(path, "/") {
		u = "https://" + w.host + path
	}
	req, err := http.NewRequestWithContext(t.Context(), method, u, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// TestIsolation proves that a bearer token gives access only to the repository
// and the actions for which it was issued. Paths, mounts and invalid tokens do
// not give access to other repositories.
func TestIsolation(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	cred, auth := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	if err := w.push(t, "team-b/api:v1", auth); err != nil {
		t.Fatal(err)
	}
	img, err := w.pull(t, "team-b/api:v1", auth)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	a, b := w.bearer(t, cred.Password, "repository:team-a/web:pull,push"), w.bearer(t, cred.Password, "repository:team-b/api:pull")
	for testName, tc := range map[string]struct {
		method, path, bearer string
		want                 int
	}{
		"no bearer token":                             {"GET", "/v2/", "", 401},
		"valid bearer token":                          {"GET", "/v2/", a, 200},
		"password as bearer token":                    {"GET", "/v2/", cred.Password, 401},
		"forged bearer token":                         {"GET", "/v2/", a[:len(a)-8] + "AAAAAAAA", 401},
		"token of the repository":                     {"GET", "/v2/team-b/api/blobs/" + blob.String(), b, 200},
		"token of another repository":                 {"GET", "/v2/team-b/api/blobs/" + blob.String(), a, 401},
		"blob of another repository":                  {"GET", "/v2/team-a/web/blobs/" + blob.String(), a, 404},
		"mount without pull permission on the source": {"POST", "/v2/team-a/web/blobs/uploads/?from=team-b/api&mount=" + blob.String(), a, 202},
		"push with a pull token":                      {"POST", "/v2/team-b/api/blobs/uploads/", b, 401},
		"delete with a pull and push token":           {"DELETE", "/v2/team-a/web/blobs/" + blob.String(), a, 403},
		"path outside the repositories":               {"GET", "/v2/..%2f..%2fteam-b/api/tags/list", a, 400},
		"forged upload id":                            {"PATCH", "/v2/team-a/web/blobs/uploads/Li4vLi4vb3duZXI", a, 404},
		"digest with another algorithm":               {"GET", "/v2/team-a/web/blobs/sha512:" + strings.Repeat("0", 128), a, 400},
		"catalog with a token for one repository":     {"GET", "/v2/_catalog", a, 403},
	} {
		t.Run(testName, func(t *testing.T) {
			if resp, body := w.do(t, tc.method, tc.path, tc.bearer, ""); resp.StatusCode != tc.want {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, tc.want)
			}
		})
	}
	both := w.bearer(t, cred.Password, "repository:team-a/web:pull,push repository:team-b/api:pull")
	if resp, body := w.do(t, "POST", "/v2/team-a/web/blobs/uploads/?from=team-b/api&mount="+blob.String(), both, ""); resp.StatusCode != 201 {
		t.Errorf("mount with the permission to pull: got %d %s, want 201", resp.StatusCode, body)
	}
	resp, _ := w.do(t, "GET", "/v2/team-a/web/tags/list", "", "")
	want := fmt.Sprintf(`Bearer realm="https://%s/token",service=%q,scope="repository:team-a/web:pull"`, w.host, w.host)
	if got := resp.Header.Get("WWW-Authenticate"); got != want {
		t.Errorf("challenge: got %s, want %s", got, want)
	}
}
