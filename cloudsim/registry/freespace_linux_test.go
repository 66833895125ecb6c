package registry_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
)

// smallRegistry starts a registry that has its own disk of 64 MiB. It also returns a function
// that measures the free bytes of this disk.
func smallRegistry(t *testing.T, reserve int64) (c *conformanceTest, free func() int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small filesystem")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("cannot mount a small filesystem: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := start(t, func(cfg *registry.Config) { cfg.Dir, cfg.Reserve = dir, reserve })
	cred, _ := w.password(t, w.user(t, "ci", cloudsim.RoleWriter, ""), cloudsim.CreateRegistryCredential{})
	w.dir = dir
	c = &conformanceTest{w, w.bearer(t, cred.Password, "repository:team-a/web:pull,push,delete")}
	return c, func() int64 {
		var on unix.Statfs_t
		if err := unix.Statfs(dir, &on); err != nil {
			t.Fatal(err)
		}
		return int64(on.Bavail) * int64(on.Bsize) //nolint:unconvert // the field has 32 bits on other architectures
	}
}

func (w *world) fill(t *testing.T, bytes int64) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "filler"), make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPushWithoutEnd proves that a client that pushes without end cannot fill the disk. If a push
// request (PATCH, PUT or POST) would leave less free space than the reserve, the registry answers
// with status 507 and the reason. Clients can still pull.
func TestPushWithoutEnd(t *testing.T) {
	const reserve = 24 << 20
	c, free := smallRegistry(t, reserve)
	raw, d := c.manifest(t, "team-a/web", "layer", nil)
	c.call(t, 201, "PUT", "/v2/team-a/web/manifests/v1", raw, "Content-Type", ociImage)
	endless := strings.Repeat("x", 60<<20)
	for _, how := range []string{"PATCH", "PUT", "POST"} {
		path := "/v2/team-a/web/blobs/uploads/"
		if how == "POST" {
			path += "?digest=" + d.String()
		} else {
			resp, _ := c.call(t, 202, "POST", path, "")
			if path = uploadURL(resp); how == "PUT" {
				path = finishURL(resp, d)
			}
		}
		resp, got := c.do(t, how, path, c.bearer, endless, "Content-Type", "application/octet-stream")
		if resp.StatusCode != http.StatusInsufficientStorage || !strings.Contains(got, "and 24 MiB must stay free for other data") {
			t.Errorf("upload with %s: got %d %s, want 507", how, resp.StatusCode, got)
		}
		if n := free(); n < reserve {
			t.Errorf("after the upload with %s: got %d free bytes, want at least the reserve", how, n)
		}
	}
	c.fill(t, free()-reserve-1<<20)
	c.call(t, 507, "PUT", "/v2/team-a/web/manifests/v2", raw+strings.Repeat(" ", 3<<20), "Content-Type", ociImage)
	c.call(t, 200, "GET", "/v2/team-a/web/manifests/v1", "", "Accept", ociImage)
}

// TestPushToAFullDisk proves that a push fails if other programs have filled
// the disk. The error says that the disk is full.
func TestPushToAFullDisk(t *testing.T) {
	c, free := smallRegistry(t, -1)
	blob := func(size int) (int, string) {
		resp, _ := c.call(t, 202, "POST", "/v2/team-a/web/blobs/uploads/", "")
		r, got := c.do(t, "PATCH", uploadURL(resp), c.bearer, strings.Repeat("x", size), "Content-Type", "application/octet-stream")
		return r.StatusCode, got
	}
	if code, got := blob(1 << 20); code != 202 {
		t.Fatalf("push to an empty disk: got %d %s, want 202", code, got)
	}
	c.fill(t, free()-20<<20)
	if code, got := blob(12 << 20); code != 202 {
		t.Errorf("push with enough space: got %d %s, want 202", code, got)
	}
	if code, got := blob(12 << 20); code != 507 || !strings.Contains(got, "disk is full") {
		t.Errorf("push without enough space: got %d %s, want 507 and disk is full", code, got)
	}
}
