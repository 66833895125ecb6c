package real

import (
	"errors"
	"os"
	"path/filepath"
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
		return errors.Join(f.prepare(t.TempDir()), f.write(i, values{}), f.registry(Registry{Name: "registry", CA: ca, Kubelet: map[string][]byte{"kubelet.yaml": nil}}),
			f.volumes(&s, i, volumes), f.networkProxy(&s, i, proxy))
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
