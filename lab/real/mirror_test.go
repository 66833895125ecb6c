package real

import (
	"os"
	"strings"
	"testing"
)

func TestParseMirror(t *testing.T) {
	for s, want := range map[string]string{
		"docker.io=https://mirror.example.com":       "",
		"docker.io=http://10.0.0.1:5000/cache":       "",
		"registry.test:5000=http://[2001:db8::1]:80": "",
		"docker.io":                           "want HOST=URL",
		"=http://mirror":                      "want HOST=URL",
		"docker.io=":                          "want HOST=URL",
		"https://docker.io=http://mirror":     "not the registry of an image name",
		"../../etc=http://mirror":             "not the registry of an image name",
		"..=http://mirror":                    "not the registry of an image name",
		"docker.io=mirror:5000":               "must begin with http",
		"docker.io=ftp://mirror":              "must begin with http",
		"docker.io=http://":                   "has no host",
		"docker.io=http://:5000":              "has no host",
		"docker.io=http://mirror:port":        "is not valid",
		"docker.io=http://user:secret@mirror": "may have only",
		"docker.io=user:secret@mirror":        "must begin with http",
		"docker.io=http://user:secret@m:port": "is not valid",
		"docker.io=http://user:secret/x@m":    "is not valid",
		"docker.io=http://user:secret?x@m":    "is not valid",
		"docker.io=http://m?token=secret":     "may have only",
		"docker.io=http://mirror?x=y":         "may have only",
		"https://user:secret=w@mirror":        "not the registry of an image name",
		"user:secret=w@mirror":                "must begin with http",
		"user:secret=http://w@mirror":         "may have only",
		"docker.io=http://127.0.0.1:5000":     "loopback",
		"docker.io=http://localhost:5000":     "loopback",
		"docker.io=http://[::1]:5000":         "loopback",
	} {
		_, err := ParseMirror(s)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the password: %v", s, err)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got error %v, want %q", s, err, want)
		}
	}
}

// A mirror serves the images of one registry. An image name without a registry means docker.io.
func TestMirrorServes(t *testing.T) {
	for image, want := range map[string]bool{
		"web": true, "team/web:v1": true, "docker.io/library/web": true,
		"ghcr.io/web": false, "docker.io.example.com/web": false, "Bad Name": false,
	} {
		if got := (Mirror{Host: "docker.io"}).Serves(image); got != want {
			t.Errorf("%s: got %v, want %v", image, got, want)
		}
	}
}

// The file of a registry lists the registry's mirrors in the given order. It lists each mirror
// once, because containerd cannot read a file that contains a mirror twice. The next call of
// writeMirrors deletes the files of registries that have no mirror any more.
func TestMirrorFiles(t *testing.T) {
	f := folder(t.TempDir())
	if err := f.writeMirrors([]Mirror{{"old.example.com", "http://a"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.writeMirrors([]Mirror{{"docker.io", "http://b"}, {"ghcr.io", "http://c"}, {"docker.io", "http://a"}, {"docker.io", "http://b"}}); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"docker.io": "[host.\"http://b\"]\n  capabilities = [\"pull\", \"resolve\"]\n[host.\"http://a\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
		"ghcr.io":   "[host.\"http://c\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
	} {
		raw, err := os.ReadFile(f.path(registriesDir, host, "hosts.toml"))
		if err != nil || string(raw) != want {
			t.Errorf("%s: got %q, error %v; want %q", host, raw, err, want)
		}
	}
	if _, err := os.Stat(f.path(registriesDir, "old.example.com")); !os.IsNotExist(err) {
		t.Errorf("settings of the old mirror: got error %v", err)
	}
}
