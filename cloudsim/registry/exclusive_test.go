package registry_test

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
)

// TestConcurrentRequestsOfAnUpload proves that two requests cannot have the same upload open at the
// same time. Otherwise a request could write to the file of the upload after another request has
// stored the file as a shared blob.
func TestConcurrentRequestsOfAnUpload(t *testing.T) {
	w := start(t)
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "team-b/*")
	c, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	bearer := w.bearer(t, c.Password, "repository:team-b/api:pull,push")
	content := strings.Repeat("good layer ", 100)
	d := digest.FromString(content)
	resp, _ := w.do(t, "POST", "/v2/team-b/api/blobs/uploads/", bearer, "")
	at := resp.Header.Get("Location")

	body, slow := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "PATCH", "https://"+w.host+at, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	done := make(chan error, 1)
	go func() {
		resp, err := w.http.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	if _, err := io.WriteString(slow, content[:11]); err != nil { // the write returns after the request has begun
		t.Fatal(err)
	}
	id, err := base64.RawURLEncoding.DecodeString(path.Base(at))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, "repositories", "team-b%2Fapi", "uploads", string(id))
	for written := int64(0); written < 11; time.Sleep(time.Millisecond) { // wait until the server has the upload open
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		written = info.Size()
	}
	resp, got := w.do(t, "PUT", at+"?digest="+url.QueryEscape(string(d)), bearer, content[11:])
	if resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("second request on an open upload: got %d %s, want 416", resp.StatusCode, got)
	}
	if _, err := io.WriteString(slow, "EVIL"); err != nil {
		t.Error(err)
	}
	_ = slow.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if resp, got := w.do(t, "GET", "/v2/team-b/api/blobs/"+string(d), bearer, ""); resp.StatusCode == http.StatusOK {
		t.Errorf("blob of a refused upload: got %.30q, want none", got)
	}
}

// TestCatalogOfALimitedPassword proves that a password gives no access to the list of all
// repositories if the password is limited to some repositories or to pulls.
func TestCatalogOfALimitedPassword(t *testing.T) {
	w := start(t)
	for name, c := range map[string]struct {
		limits cloudsim.CreateRegistryCredential
		want   int
	}{
		"unlimited":      {cloudsim.CreateRegistryCredential{}, http.StatusOK},
		"pulls only":     {cloudsim.CreateRegistryCredential{PullOnly: true}, http.StatusForbidden},
		"one repository": {cloudsim.CreateRegistryCredential{Repositories: []string{"team-b/api"}}, http.StatusForbidden},
	} {
		cred, _ := w.password(t, w.Client, c.limits)
		resp, body := w.do(t, "GET", "/v2/_catalog", w.bearer(t, cred.Password, "registry:catalog:*"), "")
		if got := resp.StatusCode; got != c.want && (c.want == http.StatusOK || got == http.StatusOK) {
			t.Errorf("catalog for %s: got %d %s", name, got, body)
		}
	}
}

// TestReusedIDsGiveNoAccess proves that a reused id gives no access to the data of a deleted
// repository. The cloud can reuse ids after it has loaded a saved state. The password of a
// deleted account does not work for a new account that has the same id. The images of a
// deleted repository do not appear in a new repository with the same id.
func TestReusedIDsGiveNoAccess(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.Collect = 24 * time.Hour })
	if _, err := w.SaveState(t.Context(), cloudsim.SaveState{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	weak := w.user(t, "weak", cloudsim.RoleRegistryReader, "team-b/*")
	_, old := w.password(t, weak, cloudsim.CreateRegistryCredential{})
	_, all := w.password(t, w.Client, cloudsim.CreateRegistryCredential{})
	first, err := w.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: "secret/app"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.push(t, "secret/app:v1", all); err != nil {
		t.Fatal(err)
	}
	if err := w.LoadState(t.Context(), "before", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateServiceAccount(t.Context(), cloudsim.CreateServiceAccount{Name: "release-bot"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateRoleBinding(t.Context(), cloudsim.CreateRoleBinding{Name: "rb", Role: cloudsim.RoleRegistryWriter, ServiceAccount: "release-bot"}); err != nil {
		t.Fatal(err)
	}
	if err := w.push(t, "team-a/web:evil", old); err == nil {
		t.Error("the password of a deleted account works for a new account")
	}
	p, err := w.CreateProject(t.Context(), cloudsim.CreateProject{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other := *w.Client
	other.Project = p.ID
	second, err := other.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: "secret/app"})
	if err != nil {
		t.Fatal(err)
	}
	if second.ID != first.ID {
		t.Fatalf("new repository: got ID %s, want the reused ID %s", second.ID, first.ID)
	}
	if _, err := w.pull(t, "secret/app:v1", all); err == nil {
		t.Error("the new repository contains the images of the deleted repository")
	}
}

// TestStalledClients proves that the registry disconnects a client that stalls
// in a token request or in the download of a blob.
func TestStalledClients(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.StallTimeout = 200 * time.Millisecond })
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "team-a/*")
	c, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	bearer := w.bearer(t, c.Password, "repository:team-a/web:pull,push")
	content := strings.Repeat("0123456789abcdef", 2<<20)
	d := digest.FromString(content)
	if resp, body := w.do(t, "POST", "/v2/team-a/web/blobs/uploads/?digest="+url.QueryEscape(string(d)), bearer, content); resp.StatusCode != http.StatusCreated {
		t.Fatalf("blob upload: got %d %s, want 201", resp.StatusCode, body)
	}
	for name, tc := range map[string]struct {
		request string
		pause   time.Duration
	}{
		"token request": {"POST /token HTTP/1.1\r\nHost: " + w.host + "\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\na=", 0},
		"blob download": {"GET /v2/team-a/web/blobs/" + string(d) + " HTTP/1.1\r\nHost: " + w.host + "\r\nAuthorization: Bearer " + bearer + "\r\n\r\n", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", w.host, w.http.Transport.(*http.Transport).TLSClientConfig.Clone()) //nolint:forcetypeassert // start sets this type
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, tc.request); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tc.pause)
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, conn)
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || n >= int64(len(content)) {
				t.Errorf("stalled client: read %d bytes, then error %v; want the registry to end the connection before %d bytes", n, err, len(content))
			}
		})
	}
}

// TestLongLatency proves that an HTTP/2 client gets its answer even if a fault delays the answer
// for longer than StallTimeout.
func TestLongLatency(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.StallTimeout = time.Second })
	w.http.Transport.(*http.Transport).ForceAttemptHTTP2 = true //nolint:forcetypeassert // start sets this type
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "team-a/*")
	c, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	const scope = "repository:team-a/web:pull"
	bearer := w.bearer(t, c.Password, scope)
	for operation, send := range map[string]func() (*http.Response, string){
		cloudsim.RegistryToken: func() (*http.Response, string) { return w.getToken(t, c.Password, "scope="+scope) },
		cloudsim.RegistryPull:  func() (*http.Response, string) { return w.do(t, "GET", "/v2/team-a/web/tags/list", bearer, "") },
	} {
		w.withFault(t, operation, cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 1500}, func() {
			if resp, body := send(); resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
				t.Errorf("%s after a latency: got %s %d %s, want status 200 over HTTP/2", operation, resp.Proto, resp.StatusCode, body)
			}
		})
	}
}

// TestSlowPush proves that an HTTP/2 client can push a blob even if the push takes longer than
// StallTimeout. The test pushes a blob without a fault, and then with a fault that delays the push.
func TestSlowPush(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.StallTimeout = time.Second })
	w.http.Transport.(*http.Transport).ForceAttemptHTTP2 = true //nolint:forcetypeassert // start sets this type
	ci := w.user(t, "ci", cloudsim.RoleRegistryWriter, "team-a/*")
	c, _ := w.password(t, ci, cloudsim.CreateRegistryCredential{})
	bearer := w.bearer(t, c.Password, "repository:team-a/web:pull,push")
	push := func() {
		body, slow := io.Pipe()
		go func() {
			for range 7 {
				time.Sleep(300 * time.Millisecond)
				if _, err := io.WriteString(slow, "x"); err != nil {
					return // the registry has refused the blob
				}
			}
			_ = slow.Close() // the method Close of a pipe returns no error
		}()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+w.host+"/v2/team-a/web/blobs/uploads/?digest="+digest.FromString("xxxxxxx").String(), body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		req.Header.Set("Content-Type", "application/octet-stream")
		req.ContentLength = 7
		resp, err := w.http.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close() // the test needs only the status
		if resp.StatusCode != http.StatusCreated || resp.ProtoMajor != 2 {
			t.Errorf("got %s %d, want status 201 over HTTP/2", resp.Proto, resp.StatusCode)
		}
	}
	push()
	w.withFault(t, cloudsim.RegistryPush, cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 100}, push)
}
