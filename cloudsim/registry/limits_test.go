package registry_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// dial connects to the registry. In the TLS handshake, the client offers only the application
// protocol proto.
func (w *world) dial(t *testing.T, proto string) net.Conn {
	t.Helper()
	conf := w.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.NextProtos = []string{proto}
	c, err := tls.Dial("tcp", w.host, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestManifestRefusedBeforeBody proves that the registry refuses some manifests before it has read
// the body of the request. The registry refuses a manifest if the client has no permission to push,
// or if the client declares a size that is too large.
func TestManifestRefusedBeforeBody(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.Limits = run.Limits{Body: 50 * time.Millisecond} })
	cred, _ := w.password(t, w.user(t, "ci", cloudsim.RoleWriter, ""), cloudsim.CreateRegistryCredential{})
	reader, _ := w.password(t, w.user(t, "reader", cloudsim.RoleReader, ""), cloudsim.CreateRegistryCredential{})
	may := "Authorization: Bearer " + w.bearer(t, cred.Password, "repository:team-a/web:pull,push") + "\r\n"
	mayNot := "Authorization: Bearer " + w.bearer(t, reader.Password, "repository:team-a/web:pull,push") + "\r\n"
	for name, c := range map[string]struct {
		header string
		size   int
		want   int
	}{
		"anonymous":          {"", 1000, 401},
		"token without push": {mayNot, 1000, 403},
		"over 4 MiB":         {may, 4<<20 + 1, 400},
	} {
		conn := w.dial(t, "http/1.1")
		if _, err := fmt.Fprintf(conn, "PUT /v2/team-a/web/manifests/v1 HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", c.header, c.size); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: got error %v", name, err)
		}
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.want {
			t.Errorf("%s: got %d %s, error %v; want %d", name, resp.StatusCode, raw, err, c.want)
		}
	}
}

// TestHalfARequest proves that the registry closes the connection of a client
// that sends an incomplete request.
func TestHalfARequest(t *testing.T) {
	w := start(t, func(c *registry.Config) {
		c.Limits = run.Limits{AnonymousFor: time.Second, Body: 50 * time.Millisecond}
	})
	for request, want := range map[string]string{
		"":                       "",
		"GET /v2/ HTTP/1.1\r\nX": "",
		"POST /v2/team-a/web/blobs/uploads/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{": "HTTP/1.1 401",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{":                       "HTTP/1.1 200",
	} {
		conn := w.dial(t, "http/1.1")
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || !strings.HasPrefix(string(got), want) {
			t.Errorf("after %q: got %q, error %v; want %s", request, got, err, want)
		}
	}
}

// TestHTTP2Settings proves that an HTTP/2 connection has at most 32 concurrent
// requests and small buffers.
func TestHTTP2Settings(t *testing.T) {
	conn := start(t).dial(t, "h2")
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9) // RFC 9113 section 4.1
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	got := map[uint16]uint32{}
	for ; len(settings) >= 6; settings = settings[6:] {
		got[binary.BigEndian.Uint16(settings)] = binary.BigEndian.Uint32(settings[2:])
	}
	const streams, window, frame = 3, 4, 5
	if got[streams] != 32 || got[window] != 64<<10 || got[frame] != 16<<10 {
		t.Errorf("HTTP/2 settings: got a frame of type %d with settings %v, want 32 streams (3), a window of 64 KiB (4) and frames of 16 KiB (5)", head[3], got)
	}
}

// TestConformanceSuffixRange proves that a client can request the last bytes of
// a blob with a range that counts from the end.
func TestConformanceSuffixRange(t *testing.T) {
	c := newConformance(t)
	d := c.blob(t, "team-a/web", "0123456789")
	path := "/v2/team-a/web/blobs/" + d.String()
	for byteRange, want := range map[string]string{"bytes=-3": "789", "bytes=-10": "0123456789", "bytes=-500": "0123456789"} {
		resp, body := c.call(t, 206, "GET", path, "", "Range", byteRange)
		if first := 10 - len(want); body != want || resp.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-9/10", first) {
			t.Errorf("range %s: got %q with headers %v", byteRange, body, resp.Header)
		}
	}
	for _, bad := range []string{"bytes=-0", "bytes=-", "bytes=--1", "bytes=-x"} {
		c.call(t, 416, "GET", path, "", "Range", bad)
	}
	c.mustRefuse(t, 404, "BLOB_UNKNOWN", "GET", "/v2/team-a/web/blobs/"+digest.FromString("none").String(), "", "Range", "bytes=-3")
	if resp, _ := c.do(t, "GET", path, "", "", "Range", "bytes=-3"); resp.StatusCode != 401 {
		t.Errorf("range request without a token: got %d, want 401", resp.StatusCode)
	}
}

// TestConformanceRangeAtTheEnd proves that the registry refuses a range that begins directly after
// the last byte of a blob (RFC 9110 section 14.1.2). Otherwise the answer would have an invalid
// Content-Range.
func TestConformanceRangeAtTheEnd(t *testing.T) {
	c := newConformance(t)
	for _, content := range []string{"0123456789", ""} {
		d := c.blob(t, "team-a/web", content)
		path := "/v2/team-a/web/blobs/" + d.String()
		c.call(t, 416, "GET", path, "", "Range", fmt.Sprintf("bytes=%d-", len(content)))
		c.call(t, 200, "GET", path, "")
	}
}

// TestConformanceManifestReference proves that the reference of a manifest must
// be a tag or a sha256 digest.
func TestConformanceManifestReference(t *testing.T) {
	c := newConformance(t)
	raw, _ := c.manifest(t, "team-a/web", "layer", nil)
	for reference, code := range map[string]string{
		"sha256:short": "DIGEST_INVALID", "sha256:" + strings.Repeat("z", 64): "DIGEST_INVALID", "md5:" + strings.Repeat("0", 32): "DIGEST_INVALID",
		"-not-a-tag": "MANIFEST_INVALID", strings.Repeat("x", 129): "MANIFEST_INVALID",
	} {
		c.mustRefuse(t, 400, code, "PUT", "/v2/team-a/web/manifests/"+reference, raw, "Content-Type", ociImage)
	}
}

// TestRegistryQuotas proves that the quotas limit the open uploads and the storage of a
// project.
func TestRegistryQuotas(t *testing.T) {
	c := newConformance(t)
	set := func(name cloudsim.QuotaName, limit int64) {
		t.Helper()
		if _, err := c.SetQuota(t.Context(), name, cloudsim.SetQuota{Limit: &limit}); err != nil {
			t.Fatal(err)
		}
	}
	raw, _ := c.manifest(t, "team-a/web", "layer", nil)
	set(cloudsim.QuotaRegistryUploads, 1)
	c.call(t, 202, "POST", "/v2/team-a/web/blobs/uploads/", "")
	_, why := c.call(t, 403, "POST", "/v2/team-b/api/blobs/uploads/", "")
	if !strings.Contains(why, "quota registryUploads") {
		t.Error(why)
	}
	set(cloudsim.QuotaRegistryUploads, 1000)
	set(cloudsim.QuotaRegistryGiB, 0)
	c.mustRefuse(t, 403, "DENIED", "PUT", "/v2/team-a/web/manifests/v1", raw, "Content-Type", ociImage)
	resp, _ := c.call(t, 202, "POST", "/v2/team-a/web/blobs/uploads/", "")
	c.mustRefuse(t, 403, "DENIED", "PATCH", uploadURL(resp), "more", "Content-Type", "application/octet-stream")
	set(cloudsim.QuotaRegistryGiB, 1)
	c.call(t, 201, "PUT", "/v2/team-a/web/manifests/v1", raw, "Content-Type", ociImage)
}

// TestOtherProjectsRepositoriesAreHidden proves that a caller gets the same answers
// for a repository of another project and for a repository that does not exist.
func TestOtherProjectsRepositoriesAreHidden(t *testing.T) {
	w := start(t)
	if _, err := w.CreateProject(t.Context(), cloudsim.CreateProject{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	other := *w.Client
	other.Project = "other"
	if _, err := other.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: "hidden/here"}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []cloudsim.RoleName{cloudsim.RoleWriter, cloudsim.RoleReader} {
		cred, _ := w.password(t, w.user(t, string(role), role, ""), cloudsim.CreateRegistryCredential{})
		answers := map[string]string{}
		for _, repo := range []string{"hidden/here", "hidden/none"} {
			bearer := w.bearer(t, cred.Password, "repository:"+repo+":pull,push")
			for _, r := range []struct{ method, path string }{{"GET", "/tags/list"}, {"POST", "/blobs/uploads/"}} {
				resp, body := w.do(t, r.method, "/v2/"+repo+r.path, bearer, "")
				answers[repo] += fmt.Sprintln(resp.StatusCode, resp.Header.Get("WWW-Authenticate"), body)
			}
		}
		if here := strings.ReplaceAll(answers["hidden/here"], "hidden/here", "hidden/none"); here != answers["hidden/none"] {
			t.Errorf("%s: answers differ for an existing repository:\n%sand a missing repository:\n%s", role, here, answers["hidden/none"])
		}
	}
}
