// Package credprovider tests the image credential provider with the kubelet's
// own code. The kubelet's code reads the configuration files, runs the provider
// and parses its answers.
package credprovider

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/plugin"
)

const (
	registry = "registry.sim:5000"
	optIn    = "cloudsim.dev/pull-as-itself"
	issuer   = "https://kubernetes.default.svc.cluster.local"
	audience = "registry.cloudsim"
)

// cloud is a simulated cloud. A test controls it with bin/allinone, as a user does.
type cloud struct {
	t   *testing.T
	bin string
	dir string
	url string
}

func start(t *testing.T) *cloud {
	t.Helper()
	if testing.Short() {
		t.Skip("runs programs: run make e2e")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"allinone", "allinone-credprovider"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("%v: run make build", err)
		}
	}
	c := &cloud{t: t, bin: filepath.Join(bin, "allinone"), dir: t.TempDir()}
	ready := c.file("url")
	c.background("cloudsim", "--listen=127.0.0.1:0", "--data-dir="+c.file("cloud"), "--admin-token-file="+c.file("token"), "--ready-file="+ready,
		"--profile=instant", "--no-data-plane", "--registry-listen=127.0.0.1:0", "--registry-name="+registry)
	c.url = c.await(ready)
	return c
}

func (c *cloud) file(name string) string { return filepath.Join(c.dir, name) }

// The method background runs a program until the test ends.
func (c *cloud) background(args ...string) {
	c.t.Helper()
	cmd := exec.Command(c.bin, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Env = c.env()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", args[0], said.String())
		}
	})
}

func (c *cloud) env() []string {
	return append(os.Environ(), "CLOUDSIM_URL="+c.url, "CLOUDSIM_TOKEN_FILE="+c.file("token"))
}

// await waits until a program has written a file, and returns the content.
func (c *cloud) await(file string) string {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 {
			return strings.TrimSpace(string(raw))
		}
	}
	c.t.Fatalf("no program wrote the file %s within one minute", file)
	return ""
}

func (c *cloud) run(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.bin, args...)
	cmd.Env = c.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// serveMetadata starts the metadata service, from which the plugin learns that
// it runs on an instance.
func (c *cloud) serveMetadata(instance string) (url string) {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.background("metadata", "--listen="+at, "--instance="+instance)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", at); err == nil {
			_ = conn.Close()
			return "http://" + at
		} else if time.Since(began) > time.Minute {
			c.t.Fatal(err)
		}
	}
}

// cluster signs tokens of service accounts as an API server does.
type cluster struct{ key *rsa.PrivateKey }

func (c cluster) keys() string {
	enc := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"k1","alg":"RS256","use":"sig","n":%q,"e":%q}]}`,
		enc(c.key.N.Bytes()), enc(big.NewInt(int64(c.key.E)).Bytes()))
}

func (c cluster) token(namespace, name string, _ *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": []string{audience}, "sub": "system:serviceaccount:" + namespace + ":" + name,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]string{"name": name, "uid": "u-" + name}, "pod": map[string]string{"name": "p", "uid": "p-1"},
		},
	})
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc([]byte(`{"alg":"RS256","kid":"k1"}`)) + "." + enc(claims)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(rand.Reader, c.key, crypto.SHA256, sum[:])
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
		Token: signed + "." + enc(sig), ExpirationTimestamp: metav1.NewTime(now.Add(time.Hour)),
	}}, err
}

// account returns a service account, as the API server would return it. If the name is not
// "default", the service account has the annotation optIn. Pods of a service account with this
// annotation pull images with the identity of the account.
func account(namespace, name string) (*v1.ServiceAccount, error) {
	a := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("u-" + name)}}
	if name != "default" {
		a.Annotations = map[string]string{optIn: "yes"}
	}
	return a, nil
}

func lookup(account, image string) []credentialprovider.TrackedAuthConfig {
	found, _ := plugin.NewExternalCredentialProviderDockerKeyring("shop", "p", "p-1", account).Lookup(image)
	return found
}

// TestTheKubeletTakesTheAnswers proves that the kubelet accepts every answer of the credential
// provider. If the pod's service account does not have the annotation optIn, the kubelet pulls the
// image with the identity of the node. If the account has the annotation and the cloud trusts the
// account, the kubelet uses the identity of the account. If the account has the annotation, but the
// cloud does not trust the account, the kubelet gets no credentials.
func TestTheKubeletTakesTheAnswers(t *testing.T) {
	c := start(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k8s := cluster{key}
	c.run("cloud", "service-accounts", "create", "node")
	c.run("cloud", "role-bindings", "create", "node", "--role", "node", "--service-account", "node")
	c.run("cloud", "instances", "create", "n", "--zone", "sim-1a", "--service-account", "node", "--wait")
	metadata := c.serveMetadata("i-000001")
	c.run("credprovider", "config", "--registry", registry, "--node-cloud-url", c.url, "--metadata-url", metadata, "--cache-dir", c.file("cache"),
		"--dir", c.file("node"), "--audience", audience, "--allow-no-service-account", "--opt-in-annotation", optIn)
	if err := plugin.RegisterCredentialProviderPlugins(c.file("node/kubelet.yaml"), filepath.Dir(c.bin), k8s.token, account); err != nil {
		t.Fatalf("the kubelet would not start: %v", err)
	}
	image := registry + "/shop/web:v1"
	node := lookup("default", image)
	if len(node) != 1 || node[0].Username == "" || strings.Count(node[0].Password, ".") != 2 {
		t.Fatalf("image pull with the identity of the node: got %d credentials, want one valid credential", len(node))
	}
	if again := lookup("default", image); len(again) != 1 || again[0].Password != node[0].Password {
		t.Error("the kubelet does not cache the answer")
	}
	if got := lookup("default", "elsewhere.sim:5000/shop/web:v1"); len(got) > 0 {
		t.Error("the plugin answered for another registry")
	}
	if got := lookup("web", image); len(got) > 0 {
		t.Error("a service account without a trust got a credential, perhaps the node's")
	}
	if err := os.WriteFile(c.file("keys"), []byte(k8s.keys()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("cloud", "service-accounts", "create", "puller")
	c.run("cloud", "workload-trusts", "create", "web", "--jwks-file", c.file("keys"), "--issuer", issuer, "--audience", audience,
		"--namespace", "shop", "--service-account", "web", "--account", "puller")
	pod := lookup("web", image)
	if len(pod) != 1 || pod[0].Password == node[0].Password || pod[0].Source == nil || pod[0].Source.ServiceAccount == nil || pod[0].Source.ServiceAccount.Name != "web" {
		t.Fatalf("image pull with the identity of the pod: got %+v, want one credential of the service account web", pod)
	}
}
