package ccm_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// After a change of the URL, the token and the project, the next call of the
// same provider uses the new values. The URL of the new cloud may contain a
// path.
func TestReload(t *testing.T) {
	first, second := cloudtest.Start(t), cloudtest.Start(t)
	dir := t.TempDir()
	secret := func(name, s string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	token := func(source func() (string, error)) string {
		s, err := source()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if _, err := second.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(second.URL)
	if err != nil {
		t.Fatal(err)
	}
	below := httptest.NewServer(http.StripPrefix("/east", httputil.NewSingleHostReverseProxy(to)))
	t.Cleanup(below.Close)
	settings := ccm.NewSettings(ccm.Config{URL: first.URL, TokenFile: secret("first", token(first.Token)), Project: string(first.Project)})
	p := ccm.New(slog.New(slog.DiscardHandler), settings.Client(), settings, record.NewFakeRecorder(10))
	stop := make(chan struct{})
	p.Initialize(nil, stop)
	t.Cleanup(func() { close(stop); p.Wait() })
	eventually.True(t, "the first cloud is mirrored", p.Mirrored)
	i, _ := p.InstancesV2()
	if _, err := i.InstanceMetadata(t.Context(), newNode("node-1")); err == nil {
		t.Fatal("the first cloud contains the instance of the second cloud")
	}
	p.Reload(ccm.Config{
		URL: below.URL + "/east", TokenFile: secret("second", token(second.Token)), Project: string(second.Project),
		NodeDeletionGrace: metav1.Duration{Duration: 1},
	})
	eventually.True(t, "the second cloud is mirrored", p.Mirrored)
	if m, err := i.InstanceMetadata(t.Context(), newNode("node-1")); err != nil || m.Zone != "sim-1a" {
		t.Errorf("metadata from the second cloud: got %+v, %v", m, err)
	}
}

// The provider reads the token file for each call. After a change of the file,
// the next call uses the new token.
func TestTokenIsReplacedInItsFile(t *testing.T) {
	cloud := cloudtest.Start(t)
	path := filepath.Join(t.TempDir(), "token")
	issue := func(name string) cloudsim.TokenID {
		made, err := cloud.CreateToken(t.Context(), cloudsim.CreateToken{Name: name, Role: cloudsim.RoleReader})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(made.Secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	first := issue("first")
	api := ccm.NewSettings(ccm.Config{URL: cloud.URL, TokenFile: path, Project: string(cloud.Project)}).Client()
	for _, when := range []string{"with the first", "with the second"} {
		if _, err := api.ListInstances(t.Context(), cloudsim.ListOptions{}); err != nil {
			t.Errorf("list of instances %s token: got error %v", when, err)
		}
		if when == "with the first" {
			issue("second")
			if err := cloud.DeleteToken(t.Context(), first); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// If a changed setting takes effect only after a restart, the provider logs a
// warning once and continues with the old value.
func TestReloadOfSettingsThatNeedARestart(t *testing.T) {
	cfg := ccm.Config{URL: "http://127.0.0.1:1", TokenFile: "/token"}
	var log bytes.Buffer
	settings := ccm.NewSettings(cfg)
	p := ccm.New(slog.New(slog.NewTextHandler(&log, nil)), settings.Client(), settings, record.NewFakeRecorder(10))
	cfg.LoadBalancerClass = "example.com/other"
	for range 3 {
		p.Reload(cfg)
	}
	if n := strings.Count(log.String(), "restart the cloud controller manager"); n != 1 || strings.Contains(log.String(), "in use") {
		t.Errorf("log: got %q, want one warning that a restart is necessary, and no text \"in use\"", log.String())
	}
}

type observer func()

func (o observer) Write(p []byte) (int, error) { o(); return len(p), nil }

// As soon as the provider uses a new URL, callers can no longer use the mirror of the old cloud. A
// late message of the old cloud's watch does not change this.
func TestReloadDropsOldMirrorFirst(t *testing.T) {
	settings := ccm.NewSettings(ccm.Config{URL: "http://old.example"})
	var p *ccm.Provider
	logged := false
	log := observer(func() {
		logged = true
		if settings.Get().URL == "http://new.example" && p.Mirrored() {
			t.Error("the mirror of the old cloud is in use together with the new URL")
		}
	})
	p = ccm.New(slog.New(slog.NewTextHandler(log, nil)), settings.Client(), settings, record.NewFakeRecorder(10))
	if p.Hear(); !p.Mirrored() {
		t.Fatal("the mirror is not in use after a message of the watch")
	}
	if p.Reload(ccm.Config{URL: "http://new.example"}); !logged {
		t.Error("Reload logged nothing")
	}
	if p.Hear(); p.Mirrored() {
		t.Error("the mirror of the old cloud is in use after a late message of its watch")
	}
}
