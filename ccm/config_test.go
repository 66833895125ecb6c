package ccm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
)

func writeTemp(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadConfig(t *testing.T) {
	path := writeTemp(t, "cloud.yaml", "url: http://127.0.0.1:8180\ntokenFile: token\nproject: lab\nregion: sim-1\n")
	got, err := ccm.ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	want := ccm.Config{URL: "http://127.0.0.1:8180", TokenFile: filepath.Join(filepath.Dir(path), "token"), Project: "lab", Region: "sim-1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for content, says := range map[string]string{
		"urll: http://x\n":             "urll",
		"url: http://x\nurl: http://y": "url",
		"url: [1, 2]\n":                "url",
		"\t":                           "cloud.yaml",
	} {
		path := writeTemp(t, "cloud.yaml", content)
		if _, err := ccm.ReadConfig(path); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v; want an error that names the file and %q", content, err, says)
		}
	}
	if _, err := ccm.ReadConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("reading a missing file returned no error")
	}
}

func TestValidateNamesInvalidFields(t *testing.T) {
	token := writeTemp(t, "token", "hush")
	for name, tc := range map[string]struct {
		cfg  ccm.Config
		says []string
	}{
		"nothing":                         {ccm.Config{}, []string{"url is required", "--cloud-url", "tokenFile is required", "--cloud-token-file"}},
		"URL without a host":              {ccm.Config{URL: "127.0.0.1:8180", TokenFile: token}, []string{"url"}},
		"other scheme":                    {ccm.Config{URL: "ftp://x", TokenFile: token}, []string{`scheme "ftp"`, `host "x"`}},
		"no token file":                   {ccm.Config{URL: "http://x", TokenFile: token + "-gone"}, []string{token + "-gone"}},
		"secret in url":                   {ccm.Config{URL: "http://me:hush@x", TokenFile: token}, []string{"no user"}},
		"secret in url with a wrong port": {ccm.Config{URL: "http://me:hush@x:9z", TokenFile: token}, []string{"url is not a valid URL"}},
		"secret that url.Parse regards as a port": {ccm.Config{URL: "http://me:hush/@x", TokenFile: token}, []string{"url is not a valid URL"}},
		"secret in url without a scheme":          {ccm.Config{URL: "me:hush@x", TokenFile: token}, []string{`scheme "me"`}},
		"secret in path":                          {ccm.Config{URL: "http://x?token=hush", TokenFile: token}, []string{"query"}},
	} {
		err := tc.cfg.Validate()
		if err == nil {
			t.Errorf("%s: Validate returned no error", name)
			continue
		}
		for _, word := range tc.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", name, err, word)
			}
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %q tells a secret", name, err)
		}
		if cloudsim.KindOf(err) != cloudsim.Invalid {
			t.Errorf("%s: got error kind %v, want %v", name, cloudsim.KindOf(err), cloudsim.Invalid)
		}
	}
	if err := (ccm.Config{URL: "https://cloud.example:8443/api", TokenFile: token}).Validate(); err != nil {
		t.Errorf("valid configuration: %v", err)
	}
}
