package credprovider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

const host = "registry.sim:5000"

// node starts a cloud with a registry. It returns a client of the cloud, and
// the plugin's configuration for a node with the permission to pull.
func node(t testing.TB) (*client.Client, credprovider.Config) {
	t.Helper()
	return nodeOf(t, host)
}

func nodeOf(t testing.TB, registry string) (*client.Client, credprovider.Config) {
	t.Helper()
	cl := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Registry = registry }))
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := cl.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "node"})
	must(err)
	_, err = cl.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "node", Role: cloudsim.RoleRegistryReader, ServiceAccount: "node"})
	must(err)
	i, err := cl.CreateInstance(ctx, cloudsim.CreateInstance{Name: "n", Zone: "sim-1a", Type: "small", ServiceAccount: "node"})
	must(err)
	ln, err := metadata.Listen(ctx, "127.0.0.1:0")
	must(err)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- metadata.Run(ctx, slog.New(slog.DiscardHandler), metadata.Config{Listener: ln, Instance: i.ID}, cl)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return cl, credprovider.Config{CloudURL: cl.URL, MetadataURL: "http://" + ln.Addr().String(), Registries: []string{registry}}
}

// ask returns the kubelet's request for an image. The token and the annotations
// belong to the pod's service account.
func ask(image, token string, annotations ...string) string {
	has := map[string]string{}
	for _, a := range annotations {
		has[a] = "yes"
	}
	raw, _ := json.Marshal(map[string]any{
		"apiVersion": credprovider.APIVersion, "kind": "CredentialProviderRequest", "image": image, "serviceAccountToken": token,
		"serviceAccountAnnotations": has, "fieldOfTheFuture": 1,
	})
	return string(raw)
}

type answer struct {
	APIVersion, Kind, CacheKeyType, CacheDuration string
	Auth                                          map[string]struct{ Username, Password string }
}

func run(t *testing.T, cfg credprovider.Config, stdin io.Reader) (a answer, err error) {
	t.Helper()
	var out bytes.Buffer
	if err := credprovider.Run(t.Context(), cfg, stdin, &out); err != nil {
		if out.Len() > 0 {
			t.Errorf("the plugin failed and wrote %q", out.String())
		}
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("error with more than one line: %q", err)
		}
		return a, err
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("output with more than one document")
	}
	return a, nil
}

func code(err error) credprovider.Code {
	e, ok := errors.AsType[*credprovider.Error](err)
	if !ok {
		return ""
	}
	return e.Code
}

func TestANodePulls(t *testing.T) {
	_, cfg := node(t)
	a, err := run(t, cfg, strings.NewReader(ask(host+"/team-a/web", "")))
	if err != nil {
		t.Fatal(err)
	}
	d, err := time.ParseDuration(a.CacheDuration)
	cred, ok := a.Auth[host]
	if a.APIVersion != credprovider.APIVersion || a.Kind != "CredentialProviderResponse" || a.CacheKeyType != "Registry" || err != nil ||
		d < 25*time.Minute || d > 30*time.Minute || !ok || len(a.Auth) != 1 || cred.Username == "" || strings.Count(cred.Password, ".") != 2 {
		t.Errorf("answer for a node: got %+v, want one credential, for %s, for 25 to 30 minutes, with the cache key type Registry", a, host)
	}
}

// The plugin refuses invalid requests, and requests for registries that its
// configuration does not contain. Each error has the expected code.
func TestRefusals(t *testing.T) {
	_, cfg := node(t)
	for name, tc := range map[string]struct {
		stdin string
		want  credprovider.Code
	}{
		"empty":                             {"", credprovider.CodeInput},
		"request that is not JSON":          {"image: a", credprovider.CodeInput},
		"truncated request":                 {`{"apiVersion":`, credprovider.CodeInput},
		"JSON list":                         {`[]`, credprovider.CodeInput},
		"huge":                              {`{"image":"` + strings.Repeat("x", 2<<20), credprovider.CodeInput},
		"another version":                   {strings.Replace(ask(host+"/a", ""), "/v1", "/v1beta1", 1), credprovider.CodeVersion},
		"another kind":                      {strings.Replace(ask(host+"/a", ""), "CredentialProviderRequest", "Foo", 1), credprovider.CodeVersion},
		"no image":                          {ask("", ""), credprovider.CodeImage},
		"no registry":                       {ask("nginx", ""), credprovider.CodeImage},
		"another registry":                  {ask("evil.example/a", ""), credprovider.CodeHost},
		"another port":                      {ask("registry.sim/a", ""), credprovider.CodeHost},
		"capitals":                          {ask("REGISTRY.sim:5000/a", ""), credprovider.CodeHost},
		"IP address as registry":            {ask("[::1]:5000/a", ""), credprovider.CodeHost},
		"token of a pod without permission": {ask(host+"/a", "a.b.c"), credprovider.CodeDenied},
		"secret instead of a token":         {ask(host+"/a", "secret-that-nobody-knows"), credprovider.CodeDenied},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, cfg, strings.NewReader(tc.stdin))
			if code(err) != tc.want {
				t.Errorf("got error %v, want the code %s", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret-that-nobody-knows") {
				t.Error("the error contains a secret")
			}
		})
	}
}

// If standard input has too many blanks, the error states that the request is too large.
func TestBlanks(t *testing.T) {
	_, cfg := node(t)
	_, err := run(t, cfg, strings.NewReader(strings.Repeat(" ", 2<<20)))
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got error %v, want one about the size", err)
	}
}

// If the plugin cannot replace a file of the cache, it leaves no temporary file.
func TestFailedRenameLeavesNoFile(t *testing.T) {
	_, cfg := node(t)
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	for range 2 {
		if _, err := run(t, cfg, strings.NewReader(ask(host+"/a", ""))); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("got the files %v, %v; want one", files, err)
		}
		if err := errors.Join(os.RemoveAll(files[0]), os.Mkdir(files[0], 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(cfg.CacheDir, ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files stay: %v, %v", left, err)
	}
}

// The plugin answers even if the kubelet never closes standard input.
func TestStandardInputThatNeverEnds(t *testing.T) {
	_, cfg := node(t)
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, ask(host+"/a", "")) }()
	if _, err := run(t, cfg, r); err != nil {
		t.Error(err)
	}
}

// If the cloud or the metadata service answers with a redirect, the plugin does
// not follow the redirect. So the target of the redirect gets no token.
func TestRedirect(t *testing.T) {
	_, good := node(t)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the plugin sent a token to another server: %s", r.URL)
	}))
	defer target.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	for service, cfg := range map[string]credprovider.Config{
		"cloud":    {CloudURL: srv.URL, MetadataURL: good.MetadataURL, Registries: good.Registries},
		"metadata": {CloudURL: good.CloudURL, MetadataURL: srv.URL, Registries: good.Registries},
	} {
		if _, err := run(t, cfg, strings.NewReader(ask(host+"/a", ""))); err == nil {
			t.Errorf("%s: the plugin followed the redirect", service)
		}
	}
}

// Two hundred concurrent runs share a cache. All runs together make only one call to the cloud.
// Only the user of the plugin can read the cache. The plugin does not use an invalid or expired
// credential in the cache, and does not use a cache that other users can read.
func TestCache(t *testing.T) {
	cl, cfg := node(t)
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	var mu sync.Mutex
	calls := 0
	cfg.CloudURL = startProxy(t, cl, func(*http.Request) {
		mu.Lock()
		calls++
		mu.Unlock()
	})
	errs := make(chan error, 200)
	for i := range 200 {
		go func() {
			errs <- credprovider.Run(t.Context(), cfg, strings.NewReader(ask(fmt.Sprintf("%s/team/app-%d", host, i), "")), io.Discard)
		}()
	}
	for range 200 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("got %d calls to the cloud, want 1", calls)
	}
	if info, err := os.Stat(cfg.CacheDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("cache folder: got mode %v, error %v; want 0700", info.Mode(), err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cache files: got %q, error %v; want 1 file", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("cache file: got mode %v, error %v; want 0600", info.Mode(), err)
	}
	for _, kept := range []string{`{`, `{"username":"u","password":"p","madeAt":"2020-01-01T00:00:00Z","expiresAt":"2020-01-01T01:00:00Z"}`} {
		if err := os.WriteFile(files[0], []byte(kept), 0o600); err != nil {
			t.Fatal(err)
		}
		calls = 0
		if _, err := run(t, cfg, strings.NewReader(ask(host+"/a", ""))); err != nil || calls != 1 {
			t.Errorf("cache with %s: got error %v and %d calls to the cloud, want no error and 1 call", kept, err, calls)
		}
	}
	if err := os.Chmod(cfg.CacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	calls = 0
	if _, err := run(t, cfg, strings.NewReader(ask(host+"/a", ""))); err != nil || calls != 1 {
		t.Errorf("cache that other users can read: got error %v and %d calls to the cloud, want no error and 1 call", err, calls)
	}
}

// unusedURL returns a URL of this machine with a port on which no server listens.
func unusedURL(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0])
}

func TestCloudWithoutAnswer(t *testing.T) {
	_, cfg := node(t)
	cfg.CloudURL = unusedURL(t)
	if _, err := run(t, cfg, strings.NewReader(ask(host+"/a", ""))); code(err) != credprovider.CodeCloud {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"cloudURL":"http://127.0.0.1:1","registries":["a:5000"]}`:      true,
		`{"cloudURL":"http://127.0.0.1:1","registries":[]}`:              false,
		`{"cloudURL":"127.0.0.1:1","registries":["a"]}`:                  false,
		`{"cloudURL":"http://a","registries":["*.a"]}`:                   false,
		`{"cloudURL":"http://a","registries":["https://a"]}`:             false,
		`{"cloudURL":"http://a","registries":["a"],"token":"x"}`:         false,
		`{"cloudURL":"http://a","registries":["a"],"metadataURL":"ftp"}`: false,
	} {
		if _, err := credprovider.ReadConfig(strings.NewReader(raw)); (err == nil) != want || err != nil && code(err) != credprovider.CodeConfig {
			t.Errorf("ReadConfig(%s): got error %v, want success %t and, for an error, the code %s", raw, err, want, credprovider.CodeConfig)
		}
	}
}
