package real

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// Programs on a machine can replace the machine's files and folders by links or pipes. The
// hypervisor writes these files as root at the next boot and when it renews a certificate. The
// hypervisor must not change files outside the machine's folder, and must not wait for the other
// end of a pipe.
func TestLinksOfAMachineAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	token := filepath.Join(t.TempDir(), "token")
	for _, file := range []string{secret, token} {
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	proxy := testProxy(t)
	h := &hypervisor{log: slog.New(slog.DiscardHandler), cfg: Config{
		Dir: t.TempDir(), Mirrors: []Mirror{{"docker.io", "http://mirror"}},
		Registry:     Registry{Name: "registry", CA: proxy.CA, Kubelet: map[string][]byte{"kubelet.yaml": nil}},
		Volumes:      &Volumes{Name: "csi.cloudsim.dev", TokenFile: token},
		NetworkProxy: proxy,
		Identify: func(string, netip.Addr) (map[string][]byte, error) {
			return map[string][]byte{
				"ca.crt": []byte("ca"), "kubelet.crt": []byte("cert"), "kubelet.key": []byte("key"), "kubelet.kubeconfig": []byte("kubelet"), "kube-proxy.kubeconfig": []byte("proxy"),
			}, nil
		},
	}}
	m := h.newMachine("i-000001")
	i := cloudsim.Instance{Meta: cloudsim.Meta{Name: "node-1"}}
	if err := m.folder.prepare(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	install := func() error {
		return inTime(t, func() error {
			_, err := m.install(t.Context(), i, cloudsim.InstanceType{}, netip.MustParseAddr("10.0.0.1"))
			return err
		})
	}
	if err := install(); err != nil {
		t.Fatal(err)
	}
	var files []string
	err := filepath.WalkDir(m.folder.path(etcKubernetes), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 15 {
		t.Fatalf("files of the machine: got %v, %v; want at least 15", files, err)
	}
	checkFiles := func(when string, want func(path string) bool) {
		t.Helper()
		for _, at := range files {
			info, err := os.Lstat(at)
			if err != nil {
				t.Fatal(err)
			}
			if want(at) && !info.Mode().IsRegular() {
				t.Errorf("%s %s: got the mode %s, want a regular file", at, when, info.Mode())
			}
		}
	}
	for _, replace := range []func(at string) error{
		func(at string) error { return os.Symlink(secret, at) },
		func(at string) error { return unix.Mkfifo(at, 0o600) },
	} {
		replaceAll := func() {
			for _, at := range files {
				if err := errors.Join(os.Remove(at), replace(at)); err != nil {
					t.Fatal(err)
				}
			}
		}
		replaceAll()
		if err := install(); err != nil {
			t.Fatal(err)
		}
		checkFiles("after the next boot", func(string) bool { return true })
		replaceAll()
		for _, now := range []time.Time{time.Now(), time.Now().AddDate(1, 0, 0)} {
			if err := inTime(t, func() error { return m.renewAgent(i, now) }); err != nil {
				t.Fatal(err)
			}
		}
		checkFiles("after a renewal", func(path string) bool { return strings.HasPrefix(filepath.Base(path), "proxy-") })
	}
	if err := install(); err != nil {
		t.Fatal(err)
	}
	for dir, starts := range map[string]bool{"etc/kubernetes/registries": true, "etc/kubernetes/credprovider": false, "disk/kubelet/plugins": false} {
		at := m.folder.path(dir)
		if err := errors.Join(os.RemoveAll(at), os.Symlink(outside, at)); err != nil {
			t.Fatal(err)
		}
		if err := install(); (err == nil) != starts {
			t.Errorf("%s is a symbolic link: got %v, want success %v", dir, err, starts)
		}
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := os.ReadFile(secret); err != nil || string(raw) != "kept" {
		t.Errorf("the file outside the machine has the content %.20q, %v", raw, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("the directory outside the machine has the files %v, %v", names, err)
	}
}

// inTime returns the result of fn. It ends the test if fn takes longer than a minute.
func inTime(t *testing.T, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the hypervisor waits for a file of the machine")
		return nil
	}
}

// If an image name contains an alias of the registry, the machine pulls the image from the
// registry. The test also checks that the machine gets the credential providers in
// Programs.Plugins.
func TestAliasesOfTheRegistry(t *testing.T) {
	f := folder(t.TempDir())
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, []byte("authority"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.registry(Registry{Name: "10.0.0.2:5000", Aliases: []string{"a.example", "b.example"}, CA: ca}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.0.0.2:5000", "a.example", "b.example"} {
		raw, err := os.ReadFile(f.path(registriesDir, name, "hosts.toml"))
		const want = "server = \"https://10.0.0.2:5000\"\n[host.\"https://10.0.0.2:5000\"]\n  ca = \"/etc/kubernetes/registries/10.0.0.2:5000/ca.crt\"\n"
		if err != nil || string(raw) != want {
			t.Errorf("%s: got %q, error %v; want %q", name, raw, err, want)
		}
	}
	s := f.spec(cloudsim.Instance{}, Programs{Plugins: map[string]string{"other": "/host/provider"}}, nil)
	if !slices.Contains(s.Binds, boot.Bind{From: "/host/provider", To: "/opt/credprovider/other", ReadOnly: true}) {
		t.Errorf("the machine has no further credential provider: %+v", s.Binds)
	}
}

// TestHostNameIsString proves that kube-proxy reads the name of each instance as a string. Without
// quotes, YAML reads some names as numbers or as booleans.
func TestHostNameIsString(t *testing.T) {
	for _, name := range []string{"42", "1e3", "on", "no", "y", "true", "node-1"} {
		f := folder(t.TempDir())
		if err := f.writeFiles(cloudsim.Instance{Meta: cloudsim.Meta{Name: name}}, templateValues{Host: name}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(f.path("etc/kubernetes/proxy.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := yaml.Unmarshal(raw, &got); err != nil || got["hostnameOverride"] != name {
			t.Errorf("got the host name %#v, %v, want %q", got["hostnameOverride"], err, name)
		}
	}
}
