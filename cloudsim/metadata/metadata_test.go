package metadata_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/run"
)

func serve(t *testing.T, cl metadata.Cloud, cfg metadata.Config) string {
	t.Helper()
	ln, err := metadata.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener = ln
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- metadata.Run(ctx, slog.New(slog.DiscardHandler), cfg, cl) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: got error %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// clientFrom returns an HTTP client whose connections come from the source
// address ip, like the connections of an instance.
func clientFrom(t *testing.T, ip string) *http.Client {
	tr := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// sendRequest sends a request. The parameter headers contains pairs of a header name and a value.
// The header Host replaces the host of the URL in the request.
func sendRequest(t *testing.T, hc *http.Client, method, url string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// session gets a session token. It returns a function that sends a GET request with this token.
func session(t *testing.T, hc *http.Client, url string) func(path string) (int, string) {
	t.Helper()
	code, token := sendRequest(t, hc, "PUT", url+"/v1/token", "Metadata-Token-TTL-Seconds", "60")
	if code != 200 {
		t.Fatalf("token of a session: got %d %s, want 200", code, token)
	}
	return func(path string) (int, string) {
		t.Helper()
		return sendRequest(t, hc, "GET", url+path, "Metadata-Token", token)
	}
}

func instance(t *testing.T, cl *client.Client, name string) cloudsim.Instance {
	t.Helper()
	i, err := cl.CreateInstance(t.Context(), cloudsim.CreateInstance{
		Name: name, Zone: "sim-1a", Type: "small", Labels: map[string]string{"app.io/tier": name}, UserData: "#!/bin/sh\necho " + name,
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAnInstanceReadsAllAboutItself(t *testing.T) {
	cl := cloudtest.Start(t)
	i := instance(t, cl, "a")
	get := session(t, http.DefaultClient, serve(t, cl, metadata.Config{Instance: i.ID}))
	for path, want := range map[string]string{
		"/v1/instance/id":                 string(i.ID),
		"/v1/instance/name":               "a",
		"/v1/instance/hostname":           "a",
		"/v1/instance/type":               "small",
		"/v1/instance/zone":               "sim-1a",
		"/v1/instance/region":             "sim-1",
		"/v1/instance/project":            string(i.Project),
		"/v1/instance/provider-id":        i.ProviderID,
		"/v1/instance/network":            string(i.Network),
		"/v1/instance/subnet":             string(i.Subnet),
		"/v1/instance/pod-ranges":         "[]\n",
		"/v1/instance/labels/app.io/tier": "a",
		"/v1/instance/labels":             `{"app.io/tier":"a"}` + "\n",
		"/v1/instance/user-data":          "#!/bin/sh\necho a",
		"/v1/instance/notices":            "[]\n",
	} {
		if code, got := get(path); code != 200 || got != want {
			t.Errorf("%s: got %d %q, want %q", path, code, got, want)
		}
	}
	_, whole := get("/v1/instance/")
	var doc metadata.Document
	if err := json.Unmarshal([]byte(whole), &doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metadata.Of(i), doc); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/v1/instance/notices/preemption", "/v1/instance/labels/none", "/v1/instance/nothing", "/"} {
		if code, got := get(path); code != 404 {
			t.Errorf("%s: got %d %q, want 404", path, code, got)
		}
	}
	_, list := get("/v1/")
	if diff := cmp.Diff(metadata.Paths(), strings.Fields(list)); diff != "" {
		t.Error(diff)
	}
}

func TestRefusedCalls(t *testing.T) {
	cl := cloudtest.Start(t)
	a := instance(t, cl, "a")
	url := serve(t, cl, metadata.Config{Instance: a.ID, Hosts: []string{"metadata.internal"}})
	hc := http.DefaultClient
	_, token := sendRequest(t, hc, "PUT", url+"/v1/token", "Metadata-Token-TTL-Seconds", "21600")
	_, short := sendRequest(t, hc, "PUT", url+"/v1/token", "Metadata-Token-TTL-Seconds", "1")
	at, char := len(token)-4, "A" // the index of a character in the signature, and a different character
	if token[at] == 'A' {
		char = "B"
	}
	guess := token[:at] + char + token[at+1:]
	for name, tc := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"good":                              {"GET", "/v1/instance/id", []string{"Metadata-Token", token}, 200},
		"no token":                          {"GET", "/v1/instance/id", nil, 401},
		"unknown token":                     {"GET", "/v1/instance/id", []string{"Metadata-Token", guess}, 401},
		"not base64":                        {"GET", "/v1/instance/id", []string{"Metadata-Token", "***"}, 401},
		"forwarded":                         {"GET", "/v1/instance/id", []string{"Metadata-Token", token, "X-Forwarded-For", "10.0.0.1"}, 403},
		"session request with a Via header": {"PUT", "/v1/token", []string{"Metadata-Token-TTL-Seconds", "60", "Via", "1.1 proxy"}, 403},
		"foreign host name":                 {"GET", "/v1/instance/id", []string{"Metadata-Token", token, "Host", "evil.example"}, 421},
		"host name of the service":          {"GET", "/v1/instance/id", []string{"Metadata-Token", token, "Host", "metadata.internal:80"}, 200},
		"no TTL":                            {"PUT", "/v1/token", nil, 400},
		"TTL 0":                             {"PUT", "/v1/token", []string{"Metadata-Token-TTL-Seconds", "0"}, 400},
		"TTL of 6 h and 1 s":                {"PUT", "/v1/token", []string{"Metadata-Token-TTL-Seconds", "21601"}, 400},
		"session by GET":                    {"GET", "/v1/token", []string{"Metadata-Token-TTL-Seconds", "60"}, 405},
		"POST":                              {"POST", "/v1/instance/id", []string{"Metadata-Token", token}, 405},
		"no audience":                       {"GET", "/v1/instance/identity", []string{"Metadata-Token", token}, 400},
		"header too large":                  {"GET", "/v1/instance/id", []string{"Metadata-Token", strings.Repeat("x", 32<<10)}, 431},
		"same token for another path":       {"GET", "/v1/instance/zone", []string{"Metadata-Token", token}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			if code, got := sendRequest(t, hc, tc.method, url+tc.path, tc.headers...); code != tc.want {
				t.Errorf("got %d %q, want %d", code, got, tc.want)
			}
		})
	}
	eventually.True(t, "short session ends", func() bool {
		code, _ := sendRequest(t, hc, "GET", url+"/v1/instance/id", "Metadata-Token", short)
		return code == 401
	})
	b := instance(t, cl, "b")
	other := serve(t, cl, metadata.Config{Instance: b.ID})
	if code, got := sendRequest(t, hc, "GET", other+"/v1/instance/id", "Metadata-Token", token); code != 401 {
		t.Errorf("token of another instance: got %d %q, want 401", code, got)
	}
}

// TestInstancesThatShareALoopback proves that the source address identifies the instance. The
// service refuses the session token of one instance in a request of another instance. When a new
// instance gets the address of a deleted instance, the new instance reads its own metadata.
func TestInstancesThatShareALoopback(t *testing.T) {
	cl := cloudtest.Start(t)
	a, b := instance(t, cl, "a"), instance(t, cl, "b")
	url := serve(t, cl, metadata.Config{})
	for _, i := range []cloudsim.Instance{a, b} {
		if code, got := session(t, clientFrom(t, i.InternalIP()), url)("/v1/instance/id"); code != 200 || got != string(i.ID) {
			t.Errorf("id of %s: got %d %q", i.ID, code, got)
		}
	}
	_, token := sendRequest(t, clientFrom(t, a.InternalIP()), "PUT", url+"/v1/token", "Metadata-Token-TTL-Seconds", "60")
	if code, got := sendRequest(t, clientFrom(t, b.InternalIP()), "GET", url+"/v1/instance/id", "Metadata-Token", token); code != 401 {
		t.Errorf("request from b with the token of a: got %d %q, want 401", code, got)
	}
	if code, got := sendRequest(t, clientFrom(t, "127.0.0.1"), "PUT", url+"/v1/token", "Metadata-Token-TTL-Seconds", "60"); code != 403 {
		t.Errorf("request from the address of no instance: got %d %q, want 403", code, got)
	}
	if _, err := cl.DeleteInstance(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if code, got := sendRequest(t, clientFrom(t, a.InternalIP()), "GET", url+"/v1/instance/id", "Metadata-Token", token); code != 403 {
		t.Errorf("request from the address of the deleted instance a: got %d %q, want 403", code, got)
	}
	heir := cloudsim.Instance{}
	for n := 0; heir.InternalIP() != a.InternalIP(); n++ {
		heir = instance(t, cl, fmt.Sprintf("heir-%d", n))
		if n > 300 {
			t.Fatal("the cloud did not assign the address again")
		}
	}
	if code, got := session(t, clientFrom(t, a.InternalIP()), url)("/v1/instance/id"); code != 200 || got != string(heir.ID) {
		t.Errorf("request from an address that was assigned again: got %d %q, want %s", code, got, heir.ID)
	}
}

// blockedLists is a cloud. While the field blocked is true, each call of ListInstances waits until
// the caller cancels the call.
type blockedLists struct {
	metadata.Cloud
	blocked atomic.Bool
	waiting chan struct{} // receives a value when a call waits
}

func (b *blockedLists) ListInstances(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error) {
	if b.blocked.Load() {
		b.waiting <- struct{}{}
		<-ctx.Done()
		return cloudsim.List[cloudsim.Instance]{}, ctx.Err()
	}
	return b.Cloud.ListInstances(ctx, o)
}

// TestSlowListBlocksNoKnownInstance proves that instances get answers while the service waits for a
// list of all instances. The service reads this list for a caller with an address that no instance
// has.
func TestSlowListBlocksNoKnownInstance(t *testing.T) {
	cl := cloudtest.Start(t)
	a := instance(t, cl, "a")
	cloud := &blockedLists{Cloud: cl, waiting: make(chan struct{})}
	url := serve(t, cloud, metadata.Config{})
	get := session(t, clientFrom(t, a.InternalIP()), url)
	cloud.blocked.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/v1/token", http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Metadata-Token-TTL-Seconds", "60")
		if resp, err := clientFrom(t, "127.0.0.1").Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-cloud.waiting
	if code, got := get("/v1/instance/id"); code != 200 || got != string(a.ID) {
		t.Errorf("request of an instance while the service reads the list: got %d %q", code, got)
	}
	leave()
	<-done
	if code, got := get("/v1/instance/id"); code != 200 || got != string(a.ID) {
		t.Errorf("request of an instance after a list that failed: got %d %q", code, got)
	}
}

// TestIdentity proves that a program needs only the public key set to verify an identity
// document. After a rotation of the keys, the document stays valid until the cloud removes
// the key of the document from the set.
func TestIdentity(t *testing.T) {
	cl := cloudtest.Start(t)
	i := instance(t, cl, "a")
	get := session(t, http.DefaultClient, serve(t, cl, metadata.Config{Instance: i.ID}))
	_, before := get("/v1/instance/identity?audience=vault")
	var claims cloudsim.IdentityClaims
	if err := verifyDocument(t, cl, before, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Issuer != cl.URL || claims.Audience != "vault" || claims.Instance.ID != i.ID || claims.Instance.ProviderID != i.ProviderID ||
		claims.Expires-claims.IssuedAt != 3600 || claims.Subject != "instance:"+string(i.ID) {
		t.Errorf("claims of the identity document: got %+v, want issuer %s, audience vault, subject instance:%s, instance %s with provider ID %s and a lifetime of 3600 s",
			claims, cl.URL, i.ID, i.ID, i.ProviderID)
	}
	if _, err := cl.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyIdentity, OverlapSeconds: 60}); err != nil {
		t.Fatal(err)
	}
	_, after := get("/v1/instance/identity?audience=vault")
	for name, doc := range map[string]string{"before": before, "after": after} {
		if err := verifyDocument(t, cl, doc, &claims); err != nil {
			t.Errorf("identity document from %s the rotation: got error %v", name, err)
		}
	}
	if _, err := cl.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyIdentity}); err != nil {
		t.Fatal(err)
	}
	if err := verifyDocument(t, cl, after, &claims); err == nil {
		t.Error("the key set still contains a key that was rotated without overlap")
	}
	if err := verifyDocument(t, cl, before, &claims); err != nil {
		t.Errorf("identity document during the overlap of its key: got error %v", err)
	}
}

// verifyDocument verifies an identity document as an external program does. It finds the key set
// with OpenID Connect discovery, and selects the key by its id.
func verifyDocument(t *testing.T, cl *client.Client, doc string, claims any) error {
	t.Helper()
	_, raw := sendRequest(t, http.DefaultClient, "GET", cl.URL+"/.well-known/openid-configuration")
	var conf cloudsim.OpenIDConfiguration
	if err := json.Unmarshal([]byte(raw), &conf); err != nil || conf.Issuer != cl.URL {
		t.Fatalf("OpenID configuration: got error %v, document %s", err, raw)
	}
	_, raw = sendRequest(t, http.DefaultClient, "GET", conf.JWKSURI)
	if strings.Contains(raw, `"d"`) {
		t.Fatalf("the key set contains private keys: %s", raw)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(raw), &set); err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(doc, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Key(token.Headers[0].KeyID) {
		return token.Claims(k.Key.(*ecdsa.PublicKey), claims)
	}
	return fmt.Errorf("the key set does not contain key %s", token.Headers[0].KeyID)
}

func TestNotices(t *testing.T) {
	cl := cloudtest.Start(t)
	i := instance(t, cl, "a")
	get := session(t, http.DefaultClient, serve(t, cl, metadata.Config{Instance: i.ID}))
	for _, n := range []cloudsim.CreateNotice{{Type: "maintenance", InSeconds: 3600}, {Type: "preemption", InSeconds: 120}} {
		if _, err := cl.AnnounceNotice(t.Context(), i.ID, n); err != nil {
			t.Fatal(err)
		}
	}
	_, raw := get("/v1/instance/notices")
	var notices []cloudsim.Notice
	if err := json.Unmarshal([]byte(raw), &notices); err != nil || len(notices) != 2 || notices[0].Type != "preemption" {
		t.Errorf("notices: got error %v, %s; want 2, the first of type preemption", err, raw)
	}
	if _, err := cl.WithdrawNotice(t.Context(), i.ID, "maintenance"); err != nil {
		t.Error(err)
	}
	if code, _ := get("/v1/instance/notices/maintenance"); code != 404 {
		t.Errorf("withdrawn notice: got %d, want 404", code)
	}
	if code, raw := get("/v1/instance/notices/preemption"); code != 200 || !strings.Contains(raw, `"at":`) {
		t.Errorf("preemption notice: got %d %s, want 200", code, raw)
	}
}

// TestHalfARequest proves that the service closes the connection if a caller sends an incomplete
// request.
func TestHalfARequest(t *testing.T) {
	cl := cloudtest.Start(t)
	url := serve(t, cl, metadata.Config{Instance: instance(t, cl, "a").ID, Limits: run.Limits{AnonymousFor: 2 * time.Second, Body: 50 * time.Millisecond}})
	for request, want := range map[string]string{
		"": "",
		"PUT /v1/token HTTP/1.1\r\nHost: 127.0.0.1\r\nX":                                   "",
		"PUT /v1/token HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{":         "HTTP/1.1 400",
		"GET /v1/instance/id HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 10\r\n\r\n": "HTTP/1.1 421",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(c)
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // io.ReadAll does not wrap
				t.Fatal("the service keeps the connection open")
			}
			if !strings.HasPrefix(string(raw), want) {
				t.Errorf("got %q, want prefix %s", raw, want)
			}
		})
	}
}

// TestLoopbackGetsNoSecrets proves that a caller from a loopback address gets no secrets if
// TrustLoopback is false. The reason is that any user of the machine can call from any
// loopback address.
func TestLoopbackGetsNoSecrets(t *testing.T) {
	cl := cloudtest.Start(t)
	i := instance(t, cl, "a")
	hc := clientFrom(t, i.InternalIP())
	secrets := []string{"/v1/instance/user-data", "/v1/instance/user-data/", "/v1/instance/identity?audience=a", "/v1/instance/service-account/token"}
	get := session(t, hc, serve(t, cl, metadata.Config{}))
	for _, path := range secrets {
		if code, got := get(path); code != 403 || !strings.Contains(got, "--trust-loopback") {
			t.Errorf("%s: got %d %q, want 403", path, code, got)
		}
	}
	if code, got := get("/v1/instance/id"); code != 200 || got != string(i.ID) {
		t.Errorf("instance id: got %d %q, want 200", code, got)
	}
	get = session(t, hc, serve(t, cl, metadata.Config{TrustLoopback: true}))
	for _, path := range secrets {
		if code, got := get(path); code == 403 {
			t.Errorf("%s with --trust-loopback: got %d %q, want any status but 403", path, code, got)
		}
	}
}
