package registry_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// getToken calls the token endpoint with GET, as docker does.
func (w *world) getToken(t *testing.T, password, query string) (*http.Response, string) {
	t.Helper()
	basic := base64.StdEncoding.EncodeToString([]byte("cloud:" + password))
	return w.do(t, "GET", "/token?"+query, "", "", "Authorization", "Basic "+basic)
}

func (w *world) advance(t *testing.T, d time.Duration) {
	t.Helper()
	if _, err := w.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: d.Seconds()}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) decisionsAfter(t *testing.T, n int) []cloudsim.RegistryDecision {
	t.Helper()
	l, err := w.ListRegistryDecisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Items[n:]
}

// TestTooManyTokens proves that token requests have a rate limit per address
// and per caller. The limit does not depend on the cloud's clock. The header
// Retry-After contains the waiting time.
func TestTooManyTokens(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.TokensPerSecond = 0.001 }) // a burst of one request, and the next request after 1,000 s
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	cred, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	if resp, body := w.getToken(t, cred.Password, ""); resp.StatusCode != 200 {
		t.Fatalf("first request: got %d %s, want 200", resp.StatusCode, body)
	}
	w.advance(t, 30*time.Minute) // longer than the wait
	retryAfter := regexp.MustCompile(`^(9\d\d|1000)$`)
	for _, method := range []string{"GET", "POST"} {
		resp, body := w.do(t, method, "/token", "", "")
		if resp.StatusCode != 429 || !retryAfter.MatchString(resp.Header.Get("Retry-After")) || !strings.Contains(body, "TOOMANYREQUESTS") {
			t.Errorf("%s after the burst: got %d, Retry-After %q, %s; want 429", method, resp.StatusCode, resp.Header.Get("Retry-After"), body)
		}
	}
	all := w.decisionsAfter(t, 0)
	if last := all[len(all)-1]; last.Allowed || !strings.Contains(last.Reason, "too many requests for tokens from address 127.0.0.1: wait ") {
		t.Errorf("audit trail: got %+v, want the refused request", last)
	}
	other := *w
	other.http = &http.Client{Transport: transportFrom(w.http.Transport, "127.0.0.2")}
	defer other.http.CloseIdleConnections()
	resp, body := other.getToken(t, cred.Password, "")
	if resp.StatusCode != 429 || !strings.Contains(body, "from caller ci") {
		t.Errorf("request from another address: got %d %s, want 429", resp.StatusCode, body)
	}
}

// transportFrom returns a copy of the transport rt that connects from the given local
// address.
func transportFrom(rt http.RoundTripper, address string) http.RoundTripper {
	other := rt.(*http.Transport).Clone()
	other.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	return other
}

func (w *world) withFault(t *testing.T, operation string, effect cloudsim.FaultEffect, fn func()) {
	t.Helper()
	f, err := w.CreateFault(t.Context(), cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{Match: cloudsim.FaultMatch{Operation: operation}, Effect: effect}})
	if err != nil {
		t.Fatal(err)
	}
	fn()
	if err := w.DeleteFault(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
}

// TestFaults checks the answers that a client gets for each type of fault in
// the registry.
func TestFaults(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	cred, auth := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	if err := w.push(t, "team-a/web:v1", auth); err != nil {
		t.Fatal(err)
	}
	broken := func(operation string, effect cloudsim.FaultEffect, try func()) {
		t.Helper()
		w.withFault(t, operation, effect, try)
	}
	const scope = "scope=repository:team-a/web:pull"
	broken(cloudsim.RegistryToken, cloudsim.FaultEffect{Type: cloudsim.FaultThrottle, RetryAfterSeconds: 7}, func() {
		if resp, body := w.getToken(t, cred.Password, scope); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
			t.Errorf("throttled token endpoint: got %d, Retry-After %q, %s; want 429 and 7", resp.StatusCode, resp.Header.Get("Retry-After"), body)
		}
	})
	broken(cloudsim.RegistryToken, cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 600_000}, func() {
		// The fault delays the answer for ten minutes. The client sends a request and then closes
		// its half of the TLS connection. The registry must close the connection without an answer,
		// before the ten minutes have passed.
		conn, err := tls.Dial("tcp", w.host, w.http.Transport.(*http.Transport).TLSClientConfig.Clone()) //nolint:forcetypeassert // start sets this type
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+w.host+"/token?"+scope, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("cloud", cred.Password)
		if err := errors.Join(req.Write(conn), conn.CloseWrite(), conn.SetReadDeadline(time.Now().Add(30*time.Second))); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); err != nil || len(answer) > 0 {
			t.Errorf("token endpoint after the client left: got answer %q, error %v; want none", answer, err)
		}
	})
	broken(cloudsim.RegistryToken, cloudsim.FaultEffect{Type: cloudsim.FaultCorruptToken}, func() {
		if resp, body := w.do(t, "GET", "/v2/", w.bearer(t, cred.Password), ""); resp.StatusCode != 401 || !strings.Contains(body, "signature") {
			t.Errorf("bearer token with a wrong signature: got %d %s, want 401", resp.StatusCode, body)
		}
	})
	broken(cloudsim.RegistryChallenge, cloudsim.FaultEffect{Type: cloudsim.FaultCorruptToken}, func() {
		_, err := w.pull(t, "team-a/web:v1", auth)
		mustContain(t, "a realm that is not the token endpoint", err, "not-the-token-endpoint")
	})
	broken(cloudsim.RegistryPull, cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}, func() {
		resp, body := w.do(t, "GET", "/v2/team-a/web/manifests/v1", w.bearer(t, cred.Password, "repository:team-a/web:pull"), "")
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, "TOOMANYREQUESTS") {
			t.Errorf("throttled pull: got %d %s, want 429", resp.StatusCode, body)
		}
	})
	broken(cloudsim.RegistryPull, cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "denied", Message: "blocked"}, func() {
		resp, body := w.do(t, "GET", "/v2/team-a/web/manifests/v1", w.bearer(t, cred.Password, "repository:team-a/web:pull"), "")
		if resp.StatusCode != 403 || !strings.Contains(body, "DENIED") || !strings.Contains(body, "blocked") {
			t.Errorf("pull with an error of the kind denied: got %d %s, want 403 DENIED", resp.StatusCode, body)
		}
	})
	const missing = "/v2/team-a/web/manifests/none"
	bearer := w.bearer(t, cred.Password, "repository:team-a/web:pull")
	broken(cloudsim.RegistryPull, cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit, Message: "too late"}, func() { // changes no answer of a failed call
		if resp, body := w.do(t, "GET", missing, bearer, ""); resp.StatusCode != 404 || strings.Contains(body, "too late") || !strings.Contains(body, "MANIFEST_UNKNOWN") {
			t.Errorf("missing manifest: got %d %s, want 404", resp.StatusCode, body)
		}
	})
	broken(cloudsim.RegistryPull, cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit, Message: "too late"}, func() {
		resp, body := w.do(t, "GET", "/v2/team-a/web/manifests/v1", bearer, "")
		if !json.Valid([]byte(body)) || resp.StatusCode < 500 || !strings.Contains(body, "too late") || resp.Header.Get("Docker-Content-Digest") != "" {
			t.Errorf("manifest with an error after the commit: got %d, header %v, body %s; want a complete JSON error", resp.StatusCode, resp.Header, body)
		}
	})
	broken(cloudsim.RegistryPull, cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply}, func() {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+w.host+missing, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		if resp, err := w.http.Do(req); err == nil {
			t.Errorf("pull with a lost answer: got status %d, want an error", resp.StatusCode)
			_ = resp.Body.Close()
		}
	})
	if _, err := w.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyRegistry}); err != nil { // without an overlap, the old key becomes invalid at once
		t.Fatal(err)
	}
	_, err := w.pull(t, "team-a/web:v1", auth)
	mustContain(t, "an expired key", err, "a key that the cloud does not have")
	_, fresh := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	if _, err := w.pull(t, "team-a/web:v1", fresh); err != nil {
		t.Errorf("pull without a fault: got error %v", err)
	}
}

// forge returns a token with the given claims, signed with the given key. This key is not the
// cloud's key.
func forge(t *testing.T, key jose.SigningKey, header map[jose.HeaderKey]any, claims any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestForgedTokens proves that the registry accepts a token only if the cloud's key has
// signed the claims of the token with the expected algorithm.
func TestForgedTokens(t *testing.T) {
	w := start(t)
	admin, err := w.Token()
	if err != nil {
		t.Fatal(err)
	}
	good := w.bearer(t, admin, "repository:team-a/web:pull")
	parts := strings.Split(good, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(good, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	kid := parsed.Headers[0].KeyID
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	for name, token := range map[string]string{
		"no algorithm":       enc([]byte(`{"alg":"none","kid":"`+kid+`"}`)) + "." + parts[1] + ".",
		"a shared secret":    forge(t, jose.SigningKey{Algorithm: jose.HS256, Key: bytes.Repeat([]byte(kid), 4)}, map[jose.HeaderKey]any{"kid": kid}, claims),
		"another key":        forge(t, jose.SigningKey{Algorithm: jose.ES256, Key: own}, map[jose.HeaderKey]any{"kid": kid}, claims),
		"a key in the token": forge(t, jose.SigningKey{Algorithm: jose.ES256, Key: own}, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: own.Public()}}, claims),
		"an unknown key":     forge(t, jose.SigningKey{Algorithm: jose.ES256, Key: own}, map[jose.HeaderKey]any{"kid": "k"}, claims),
		"other claims":       parts[0] + "." + enc(bytes.Replace(raw, []byte("team-a/web"), []byte("team-b/api"), 1)) + "." + parts[2],
		"nothing":            "",
		"too long":           parts[0] + "." + strings.Repeat("A", 20<<10) + "." + parts[2],
	} {
		if resp, body := w.do(t, "GET", "/v2/", token, ""); resp.StatusCode != 401 {
			t.Errorf("%s: got %d %s, want 401", name, resp.StatusCode, body)
		}
	}
	if resp, _ := w.do(t, "GET", "/v2/", good, ""); resp.StatusCode != 200 {
		t.Errorf("bearer token of the cloud: got %d, want 200", resp.StatusCode)
	}
}

// TestRotation proves that the published key set has the old and the new key during the overlap of
// a rotation. During the overlap, the registry accepts bearer tokens from before and after the
// rotation. The test also checks that a bearer token expires after five minutes. If the client's
// password expires earlier, the bearer token expires together with the password.
func TestRotation(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	cred, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{TTLSeconds: 900})
	before := w.bearer(t, cred.Password)
	set, err := w.KeySet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	had := len(set.Keys)
	if _, err := w.RotateSigningKey(t.Context(), cloudsim.RotateSigningKey{Use: cloudsim.KeyRegistry, OverlapSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	after := w.bearer(t, cred.Password)
	if set, err = w.KeySet(t.Context()); err != nil || len(set.Keys) != had+1 {
		t.Errorf("published keys: got %d, want %d; error %v", len(set.Keys), had+1, err)
	}
	for phase, bearer := range map[string]string{"before": before, "after": after} {
		if resp, body := w.do(t, "GET", "/v2/", bearer, ""); resp.StatusCode != 200 {
			t.Errorf("bearer token from %s the rotation: got %d %s, want 200", phase, resp.StatusCode, body)
		}
	}
	w.advance(t, 5*time.Minute-time.Second)
	if resp, _ := w.do(t, "GET", "/v2/", after, ""); resp.StatusCode != 200 {
		t.Errorf("bearer token one second before its expiry: got %d, want 200", resp.StatusCode)
	}
	w.advance(t, time.Second)
	if resp, body := w.do(t, "GET", "/v2/", after, ""); resp.StatusCode != 401 || !strings.Contains(body, "the bearer token expired at 2026-01-01T00:05:00Z") {
		t.Errorf("bearer token at its expiry: got %d %s, want 401", resp.StatusCode, body)
	}
	w.advance(t, 8*time.Minute) // two minutes of the password's lifetime are left
	var short struct {
		ExpiresIn int `json:"expires_in"`
	}
	if _, body := w.getToken(t, cred.Password, ""); json.Unmarshal([]byte(body), &short) != nil || short.ExpiresIn != 120 {
		t.Errorf("token endpoint: got %s, want a bearer token that expires with its password", body)
	}
	w.advance(t, 50*time.Minute) // the overlap has ended
	if set, err = w.KeySet(t.Context()); err != nil || len(set.Keys) != had {
		t.Errorf("published keys after the overlap: got %d, error %v", len(set.Keys), err)
	}
}

// TestDeletedAccount proves that the registry refuses the credentials of a
// deleted account at once, even if they have not expired.
func TestDeletedAccount(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "")
	cred, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	bearer := w.bearer(t, cred.Password, "repository:team-a/web:pull")
	accounts, err := w.ListServiceAccounts(t.Context(), cloudsim.ListOptions{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := w.ListRoleBindings(t.Context(), cloudsim.ListOptions{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteRoleBinding(t.Context(), bindings.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	tokens, err := w.ListTokens(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range tokens.Items {
		if tok.ServiceAccount == accounts.Items[0].ID {
			if err := w.DeleteToken(t.Context(), tok.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.DeleteServiceAccount(t.Context(), accounts.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	if resp, body := w.do(t, "GET", "/v2/", bearer, ""); resp.StatusCode != 401 || !strings.Contains(body, "does not exist any more") {
		t.Errorf("bearer token of a deleted account: got %d %s, want 401", resp.StatusCode, body)
	}
	if resp, body := w.getToken(t, cred.Password, ""); resp.StatusCode != 401 || !strings.Contains(body, "does not exist any more") {
		t.Errorf("password of a deleted account: got %d %s, want 401", resp.StatusCode, body)
	}
}

// logBuffer is a buffer that is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *logBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func formatDecisions(all []cloudsim.RegistryDecision) (lines []string) {
	for _, d := range all {
		word := "yes"
		if !d.Allowed {
			word = "no: " + d.Reason
		}
		lines = append(lines, strings.TrimSpace(d.Caller+" "+d.Operation+" "+d.Resource+" "+word))
	}
	return lines
}

// TestAudit proves that the audit trail has each decision once, with caller,
// resource and reason. Neither the trail nor the log contains a password or a
// bearer token.
func TestAudit(t *testing.T) {
	var log logBuffer
	w := startLogging(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ci := w.user(t, "ci", cloudsim.RoleRegistryReader, "team-a/*")
	cred, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	other, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{Repositories: []string{"team-a/other"}, PullOnly: true})
	bearer := w.bearer(t, cred.Password, "repository:team-a/web:pull,push")
	narrow := w.bearer(t, other.Password, "repository:team-a/web:pull")
	const wrong = "a-guess-of-somebody"
	n := len(w.decisionsAfter(t, 0))
	for _, step := range []func(){
		func() {
			w.do(t, "GET", "/v2/team-a/web/tags/list", bearer, "", "X-Request-Id", strings.Repeat("x", 4096))
		},
		func() { w.do(t, "POST", "/v2/team-a/web/blobs/uploads/", bearer, "") },
		func() { w.do(t, "GET", "/v2/team-b/api/tags/list", bearer, "") },
		func() { w.do(t, "GET", "/v2/_catalog", bearer, "") },
		func() { w.do(t, "GET", "/v2/team-a/web/tags/list", wrong, "") },
		func() { w.do(t, "GET", "/v2/team-a/web/tags/list", narrow, "") },
		func() { w.getToken(t, wrong, "scope=repository:team-a/web:pull") },
		func() { w.getToken(t, cred.Password, "service=elsewhere") },
		func() { w.getToken(t, cred.Password, "scope=repository:team-a/web:pull,delete") },
	} {
		step()
	}
	got := formatDecisions(w.decisionsAfter(t, n))
	want := []string{
		"ci registry.pull team-a/web yes",
		"ci registry.push team-a/web no: ",
		"ci registry.pull team-b/api no: ",
		"ci registry.catalog  no: ",
		"registry.pull team-a/web no: ",
		"ci registry.pull team-a/web no: ",
		"registry.token  no: ",
		"registry.token  no: the parameter service must be ",
		"ci registry.token team-a/web:pull yes",
		"ci registry.token team-a/web:delete no: ",
	}
	begins := func(x, y string) bool { return strings.HasPrefix(x, y) || strings.HasPrefix(y, x) }
	if diff := cmp.Diff(want, got, cmp.Comparer(begins)); diff != "" {
		t.Error(diff)
	}
	if id := w.decisionsAfter(t, n)[0].RequestID; len(id) != 128 {
		t.Errorf("request ID in the trail: got %d characters, want 128", len(id))
	}
	for _, line := range got {
		if strings.HasSuffix(line, "no: ") {
			t.Errorf("the decision has no reason: %s", line)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for kind, secret := range map[string]string{"a password": cred.Password, "a bearer": bearer, "a guess": wrong} {
		if strings.Contains(log.buf.String(), secret) || strings.Contains(strings.Join(got, "\n"), secret) {
			t.Errorf("the log or the trail contains %s", kind)
		}
	}
	if log.buf.Len() == 0 {
		t.Error("the log is empty")
	}
}

// TestUnusedFilesAndFileModes proves that a running registry removes unused files periodically,
// and that other users cannot read its private files.
func TestUnusedFilesAndFileModes(t *testing.T) {
	var given string
	w := start(t, func(c *registry.Config) {
		given = filepath.Join(c.Dir, ".new-given-up")
		if err := os.WriteFile(given, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(given, then, then); err != nil {
			t.Fatal(err)
		}
	})
	eventually.True(t, "unused file is collected", func() bool {
		_, err := os.Stat(given)
		return errors.Is(err, fs.ErrNotExist)
	})
	if _, auth := w.password(t, w.user(t, "ci", cloudsim.RoleRegistryWriter, ""), cloudsim.CreateRegistryCredential{}); w.push(t, "team-a/web:v1", auth) != nil {
		t.Error("push after the collection failed")
	}
	if err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && path != w.dir {
			t.Errorf("%s: got mode %04o, want no access for group and others", path, info.Mode().Perm())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
