package real

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// Programs on a machine can replace the machine's files and folders by links. At the next
// boot, the hypervisor writes these files as root. It must not change files outside the
// machine's folder.
func TestLinksOfAMachineAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	ca, token := filepath.Join(t.TempDir(), "ca"), filepath.Join(t.TempDir(), "token")
	for _, file := range []string{secret, ca, token} {
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := folder(filepath.Join(t.TempDir(), "machine"))
	i := cloudsim.Instance{Meta: cloudsim.Meta{Name: "node-1"}}
	volumes := &Volumes{Name: "csi.cloudsim.dev", TokenFile: token}
	proxy := &NetworkProxy{CA: ca, Issue: func(cloudsim.Instance) (cert, key []byte, err error) { return []byte("cert"), []byte("key"), nil }}
	install := func() error {
		s := boot.Spec{}
		return errors.Join(f.prepare(t.TempDir()), f.writeFiles(i, templateValues{}), f.registry(Registry{Name: "registry", CA: ca, Kubelet: map[string][]byte{"kubelet.yaml": nil}}),
			f.addVolumes(&s, i, volumes), f.networkProxy(&s, i, proxy))
	}
	if err := install(); err != nil {
		t.Fatal(err)
	}
	linked := []string{"kubelet.yaml", "proxy.yaml", "containerd.toml", "cni.conflist", "csi.token", "proxy-agent.key"}
	for _, name := range linked {
		at := f.path(etcKubernetes, name)
		if err := errors.Join(os.Remove(at), os.Symlink(secret, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := install(); err != nil {
		t.Fatal(err)
	}
	for _, name := range linked {
		if info, err := os.Lstat(f.path(etcKubernetes, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is %v, %v after the next boot", name, info, err)
		}
	}
	for _, dir := range []string{"etc/kubernetes/registries", "disk/kubelet/plugins"} {
		at := f.path(dir)
		if err := errors.Join(os.RemoveAll(at), os.Symlink(outside, at)); err != nil {
			t.Fatal(err)
		}
		if err := install(); err == nil {
			t.Errorf("the machine starts although %s is a symbolic link", dir)
		}
		if err := os.Remove(at); err != nil {
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

// If an image name contains an alias of the registry, the machine pulls the image from the
// registry. The machine also has the additional credential providers.
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
