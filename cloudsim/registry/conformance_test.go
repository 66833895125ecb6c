package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// conformanceTest is a running registry with a bearer token. The conformance tests use no registry
// client. They send HTTP requests directly to the endpoints end-1 to end-13 of the OCI distribution
// specification 1.1.
type conformanceTest struct {
	*world
	bearer string
}

const (
	ociImage = "application/vnd.oci.image.manifest.v1+json"
	ociIndex = "application/vnd.oci.image.index.v1+json"
)

func newConformance(t *testing.T) *conformanceTest {
	t.Helper()
	w := start(t)
	cred, _ := w.password(t, w.user(t, "ci", cloudsim.RoleWriter, ""), cloudsim.CreateRegistryCredential{})
	return &conformanceTest{w, w.bearer(t, cred.Password, "repository:team-a/web:pull,push,delete", "repository:team-b/api:pull,push,delete")}
}

func (c *conformanceTest) call(t *testing.T, want int, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	resp, got := c.do(t, method, path, c.bearer, body, headers...)
	if resp.StatusCode != want {
		t.Errorf("%s %s: got %d %s, want %d", method, path, resp.StatusCode, got, want)
	}
	return resp, got
}

// mustRefuse sends a request that must fail with the given error code of the OCI
// distribution specification.
func (c *conformanceTest) mustRefuse(t *testing.T, status int, code, method, path, body string, headers ...string) {
	t.Helper()
	_, got := c.call(t, status, method, path, body, headers...)
	var e struct {
		Errors []struct{ Code, Message string }
	}
	if method == "HEAD" {
		return
	}
	if err := json.Unmarshal([]byte(got), &e); err != nil || len(e.Errors) != 1 || e.Errors[0].Code != code || e.Errors[0].Message == "" {
		t.Errorf("%s %s: got %s, want one error with the code %s", method, path, got, code)
	}
}

// uploadURL returns the URL at which an upload continues.
func uploadURL(resp *http.Response) string { return resp.Header.Get("Location") }

// finishURL returns the URL that completes an upload.
func finishURL(resp *http.Response, d digest.Digest) string {
	join := "?"
	if strings.Contains(uploadURL(resp), "?") {
		join = "&"
	}
	return uploadURL(resp) + join + "digest=" + d.String()
}

func (c *conformanceTest) blob(t *testing.T, repo, content string) digest.Digest {
	t.Helper()
	d := digest.FromString(content)
	resp, _ := c.call(t, 202, "POST", "/v2/"+repo+"/blobs/uploads/", "")
	c.call(t, 201, "PUT", finishURL(resp, d), content, "Content-Type", "application/octet-stream")
	return d
}

// manifest pushes a layer and a config. It returns an image manifest that refers to this layer and
// this config.
func (c *conformanceTest) manifest(t *testing.T, repo, layer string, more map[string]any) (raw string, d digest.Digest) {
	t.Helper()
	m := map[string]any{
		"schemaVersion": 2, "mediaType": ociImage,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": c.blob(t, repo, "{}"), "size": 2},
		"layers": []any{map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": c.blob(t, repo, layer), "size": len(layer)}},
	}
	for k, v := range more {
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), digest.FromBytes(b)
}

// TestConformanceBase tests the endpoint end-1 of the OCI distribution specification: the
// version check.
func TestConformanceBase(t *testing.T) {
	c := newConformance(t)
	c.call(t, 200, "GET", "/v2/", "")
	resp, _ := c.do(t, "GET", "/v2/", "", "")
	if resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer realm=") {
		t.Errorf("request without a token: got %d %v, want 401", resp.StatusCode, resp.Header)
	}
}

// TestConformanceBlobs tests the endpoints end-2 and end-10 of the OCI distribution
// specification: reading a blob completely and in part, and deleting the blob.
func TestConformanceBlobs(t *testing.T) {
	c := newConformance(t)
	d := c.blob(t, "team-a/web", "0123456789")
	path := "/v2/team-a/web/blobs/" + d.String()
	for _, method := range []string{"HEAD", "GET"} {
		resp, body := c.call(t, 200, method, path, "")
		if resp.Header.Get("Docker-Content-Digest") != d.String() || resp.ContentLength != 10 || method == "GET" && body != "0123456789" {
			t.Errorf("%s of a blob: got body %q, headers %v; want digest %s and 10 bytes", method, body, resp.Header, d)
		}
	}
	if resp, body := c.call(t, 206, "GET", path, "", "Range", "bytes=2-5"); body != "2345" || resp.Header.Get("Content-Range") != "bytes 2-5/10" {
		t.Errorf("range 2-5: got %q with headers %v", body, resp.Header)
	}
	c.call(t, 416, "GET", path, "", "Range", "bytes=20-30")
	none := "/v2/team-a/web/blobs/" + digest.FromString("none").String()
	c.mustRefuse(t, 404, "BLOB_UNKNOWN", "HEAD", none, "")
	c.mustRefuse(t, 404, "BLOB_UNKNOWN", "GET", none, "")
	c.mustRefuse(t, 404, "BLOB_UNKNOWN", "DELETE", none, "")
	c.call(t, 202, "DELETE", path, "")
	c.mustRefuse(t, 404, "BLOB_UNKNOWN", "GET", path, "")
}

// TestConformanceUploads tests the endpoints end-4a, end-4b, end-5, end-6 and end-13 of the
// OCI distribution specification. The test pushes a blob in one request, in two requests,
// and in chunks, with a status request after each chunk. The registry refuses chunks in the
// wrong order.
func TestConformanceUploads(t *testing.T) {
	c := newConformance(t)
	uploads := "/v2/team-a/web/blobs/uploads/"
	content := "in one request"
	d := digest.FromString(content)
	resp, _ := c.call(t, 201, "POST", uploads+"?digest="+d.String(), content, "Content-Type", "application/octet-stream")
	if !strings.HasSuffix(uploadURL(resp), "/v2/team-a/web/blobs/"+d.String()) || resp.Header.Get("Docker-Content-Digest") != d.String() {
		t.Errorf("blob upload: got headers %v", resp.Header)
	}
	c.call(t, 200, "GET", uploadURL(resp), "")

	chunks := []string{"first, ", "second, ", "and last"}
	d = digest.FromString(strings.Join(chunks, ""))
	resp, _ = c.call(t, 202, "POST", uploads, "")
	begin, sent := resp, 0
	for n, chunk := range chunks {
		last := sent + len(chunk) - 1
		resp, _ = c.call(t, 202, "PATCH", uploadURL(resp), chunk, "Content-Type", "application/octet-stream", "Content-Range", fmt.Sprintf("%d-%d", sent, last))
		sent = last + 1
		if got := resp.Header.Get("Range"); got != fmt.Sprintf("0-%d", last) {
			t.Errorf("Range header after chunk %d: got %q", n, got)
		}
		status, _ := c.call(t, 204, "GET", uploadURL(resp), "")
		if got := status.Header.Get("Range"); got != fmt.Sprintf("0-%d", last) || uploadURL(status) == "" {
			t.Errorf("upload status after chunk %d: got headers %v", n, status.Header)
		}
	}
	c.call(t, 416, "PATCH", uploadURL(begin), "again", "Content-Type", "application/octet-stream", "Content-Range", "0-4")
	c.mustRefuse(t, 400, "DIGEST_INVALID", "PUT", finishURL(resp, digest.FromString("else")), "")
	c.mustRefuse(t, 400, "DIGEST_INVALID", "PUT", finishURL(resp, "sha256:short"), "")
	c.mustRefuse(t, 400, "DIGEST_INVALID", "POST", uploads+"?digest=sha256:short", "a", "Content-Type", "application/octet-stream")
	c.mustRefuse(t, 400, "DIGEST_INVALID", "POST", uploads+"?digest="+d.String(), "else", "Content-Type", "application/octet-stream")
	resp, _ = c.call(t, 201, "PUT", finishURL(resp, d), "")
	if _, body := c.call(t, 200, "GET", uploadURL(resp), ""); body != strings.Join(chunks, "") {
		t.Errorf("blob: got %q, want all chunks", body)
	}
	c.mustRefuse(t, 404, "BLOB_UPLOAD_UNKNOWN", "PUT", finishURL(begin, d), "")
}

// TestConformanceManifests tests the endpoints end-3, end-7 and end-9 of the OCI distribution
// specification. The test pushes a manifest by tag and by digest, and checks that the registry
// returns the same bytes. Then the test deletes the manifest by tag and by digest. The registry
// refuses a manifest with a wrong media type or digest.
func TestConformanceManifests(t *testing.T) {
	c := newConformance(t)
	raw, d := c.manifest(t, "team-a/web", "layer", nil)
	path := "/v2/team-a/web/manifests/"
	for _, ref := range []string{"v1", d.String()} {
		resp, _ := c.call(t, 201, "PUT", path+ref, raw, "Content-Type", ociImage)
		if resp.Header.Get("Docker-Content-Digest") != d.String() || uploadURL(resp) == "" {
			t.Errorf("manifest upload: got headers %v, want digest %s and a location", resp.Header, d)
		}
		for _, method := range []string{"HEAD", "GET"} {
			resp, body := c.call(t, 200, method, path+ref, "", "Accept", ociImage)
			if method == "GET" && body != raw || resp.Header.Get("Content-Type") != ociImage || resp.Header.Get("Docker-Content-Digest") != d.String() ||
				resp.Header.Get("Content-Length") != strconv.Itoa(len(raw)) {
				t.Errorf("%s %s: got headers %v and body %.100q, want type %s, digest %s and the uploaded manifest", method, ref, resp.Header, body, ociImage, d)
			}
		}
	}
	index := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`, ociIndex, ociImage, d, len(raw))
	c.call(t, 201, "PUT", path+"all", index, "Content-Type", ociIndex)

	none := digest.FromString("none")
	missing := strings.ReplaceAll(raw, digest.FromString("layer").String(), none.String())
	c.mustRefuse(t, 404, "MANIFEST_BLOB_UNKNOWN", "PUT", path+"v2", missing, "Content-Type", ociImage)
	for _, bad := range []string{"", "{", "[]", `{"subject":5}`} {
		c.mustRefuse(t, 400, "MANIFEST_INVALID", "PUT", path+"v2", bad, "Content-Type", ociImage)
	}
	c.mustRefuse(t, 400, "MANIFEST_INVALID", "PUT", path+"v2", raw, "Content-Type", ociIndex)
	c.mustRefuse(t, 400, "DIGEST_INVALID", "PUT", path+none.String(), raw, "Content-Type", ociImage)
	c.mustRefuse(t, 400, "SIZE_INVALID", "PUT", path+"v2", strings.Repeat(" ", 5<<20)+raw, "Content-Type", ociImage)
	c.mustRefuse(t, 404, "MANIFEST_UNKNOWN", "GET", path+"v2", "")
	c.mustRefuse(t, 404, "MANIFEST_UNKNOWN", "HEAD", path+none.String(), "")

	c.call(t, 202, "DELETE", path+"v1", "")
	c.mustRefuse(t, 404, "MANIFEST_UNKNOWN", "GET", path+"v1", "")
	c.call(t, 200, "GET", path+d.String(), "")
	c.call(t, 202, "DELETE", path+d.String(), "")
	c.mustRefuse(t, 404, "MANIFEST_UNKNOWN", "GET", path+d.String(), "")
	c.mustRefuse(t, 404, "MANIFEST_UNKNOWN", "DELETE", path+d.String(), "")
}

// TestConformanceTags tests the endpoints end-8a and end-8b of the OCI distribution
// specification: listing tags in alphabetical order and in pages.
func TestConformanceTags(t *testing.T) {
	c := newConformance(t)
	raw, _ := c.manifest(t, "team-a/web", "layer", nil)
	for _, tag := range []string{"c", "a", "d", "b", "e"} {
		c.call(t, 201, "PUT", "/v2/team-a/web/manifests/"+tag, raw, "Content-Type", ociImage)
	}
	list := func(path string) (tags []string, resp *http.Response) {
		t.Helper()
		resp, body := c.call(t, 200, "GET", path, "")
		var l struct {
			Name string
			Tags []string
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil || l.Name != "team-a/web" {
			t.Errorf("tag list %s: got error %v", body, err)
		}
		return l.Tags, resp
	}
	const path = "/v2/team-a/web/tags/list"
	if all, _ := list(path); !slices.Equal(all, []string{"a", "b", "c", "d", "e"}) {
		t.Error(all)
	}
	two, resp := list(path + "?n=2")
	if link := resp.Header.Get("Link"); !slices.Equal(two, []string{"a", "b"}) || !strings.Contains(link, `rel="next"`) {
		t.Errorf("first 2 tags: got %v with link %q", two, link)
	}
	if next, _ := list(path + "?n=2&last=b"); !slices.Equal(next, []string{"c", "d"}) {
		t.Error(next)
	}
	if none, _ := list(path + "?n=0"); len(none) > 0 {
		t.Error(none)
	}
}

// TestConformanceMount tests the endpoint end-11 of the OCI distribution specification:
// mounting a blob of another repository. If the other repository does not have the blob,
// the registry starts an upload.
func TestConformanceMount(t *testing.T) {
	c := newConformance(t)
	d := c.blob(t, "team-b/api", "shared")
	resp, _ := c.call(t, 201, "POST", "/v2/team-a/web/blobs/uploads/?mount="+d.String()+"&from=team-b/api", "")
	if !strings.HasSuffix(uploadURL(resp), "/v2/team-a/web/blobs/"+d.String()) {
		t.Errorf("blob mount: got headers %v", resp.Header)
	}
	c.call(t, 200, "HEAD", "/v2/team-a/web/blobs/"+d.String(), "")
	other := digest.FromString("not there")
	for _, from := range []string{"&from=team-b/api", "&from=team-b/none", ""} {
		resp, _ := c.call(t, 202, "POST", "/v2/team-a/web/blobs/uploads/?mount="+other.String()+from, "")
		c.call(t, 201, "PUT", finishURL(resp, other), "not there", "Content-Type", "application/octet-stream")
		c.call(t, 202, "DELETE", "/v2/team-a/web/blobs/"+other.String(), "")
	}
}

// TestConformanceReferrers tests the endpoints end-12a and end-12b of the OCI distribution
// specification: listing the referrers of a manifest, filtered by artifact type. If the
// registry does not have the manifest, the answer is an empty list and not an error.
func TestConformanceReferrers(t *testing.T) {
	c := newConformance(t)
	image, d := c.manifest(t, "team-a/web", "layer", nil)
	subject := map[string]any{"mediaType": ociImage, "digest": d, "size": len(image)}
	want := map[string]digest.Digest{}
	for _, kind := range []string{"example/signature", "example/sbom"} {
		raw, of := c.manifest(t, "team-a/web", kind, map[string]any{"artifactType": kind, "subject": subject, "annotations": map[string]string{"by": "ci"}})
		resp, _ := c.call(t, 201, "PUT", "/v2/team-a/web/manifests/"+of.String(), raw, "Content-Type", ociImage)
		if resp.Header.Get("OCI-Subject") != d.String() {
			t.Errorf("manifest with a subject: got headers %v, want OCI-Subject", resp.Header)
		}
		want[kind] = of
	}
	list := func(query string) map[string]digest.Digest {
		t.Helper()
		resp, body := c.call(t, 200, "GET", "/v2/team-a/web/referrers/"+query, "")
		var l struct {
			MediaType string
			Manifests []struct {
				Digest       digest.Digest
				ArtifactType string
				Annotations  map[string]string
			}
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil || l.MediaType != ociIndex || resp.Header.Get("Content-Type") != ociIndex {
			t.Errorf("referrers %s: got error %v", body, err)
		}
		got := map[string]digest.Digest{}
		for _, m := range l.Manifests {
			got[m.ArtifactType] = m.Digest
			if m.Annotations["by"] != "ci" {
				t.Errorf("referrer: got %v, want its annotations", m)
			}
		}
		return got
	}
	if got := list(d.String()); len(got) != 2 || got["example/sbom"] != want["example/sbom"] || got["example/signature"] != want["example/signature"] {
		t.Error(got)
	}
	if got := list(d.String() + "?artifactType=example/sbom"); len(got) != 1 || got["example/sbom"] != want["example/sbom"] {
		t.Error(got)
	}
	if got := list(digest.FromString("nothing").String()); len(got) != 0 {
		t.Error(got)
	}
}

// TestMountFaults proves that a fault for pushes affects the mount of a blob from another
// repository. A fault for pulls does not affect the mount.
func TestMountFaults(t *testing.T) {
	c := newConformance(t)
	path := "/v2/team-a/web/blobs/uploads/?mount=" + c.blob(t, "team-b/api", "shared").String() + "&from=team-b/api"
	for operation, want := range map[string]int{cloudsim.RegistryPush: 503, cloudsim.RegistryPull: 201} {
		c.withFault(t, operation, cloudsim.FaultEffect{Type: cloudsim.FaultError}, func() { c.call(t, want, "POST", path, "") })
	}
}
