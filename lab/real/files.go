package real

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// Paths in a machine. They are the standard paths of Kubernetes, so programs on the machine
// need no special configuration.
const (
	etcKubernetes = "/etc/kubernetes"
	programsDir   = "/opt/machine"
	kubeDir       = "/opt/kube"
	cniDir        = "/opt/cni/bin"
	pluginDir     = "/opt/credprovider"
	ownDir        = "/opt/cloudsim"
	registriesDir = etcKubernetes + "/registries"
	criSocket     = "/run/containerd/containerd.sock"
	logDir        = "/var/log"
)

// CredentialDir is the folder on a machine that contains the files of Registry.Kubelet.
const CredentialDir = etcKubernetes + "/credprovider"

// shutdownGrace is the longest time between SIGTERM and the end of a machine's processes. After
// this time, the machine's first process ends, and the kernel kills the remaining processes.
const shutdownGrace = 3 * time.Second

//go:embed files
var fileTemplates embed.FS

// templateValues holds the inputs of the templates for a machine's files.
type templateValues struct {
	Host           string
	Address        netip.Addr
	CgroupRoot     string
	ClusterDNS     string
	ClusterDomain  string
	Pods           netip.Prefix
	Pods6          netip.Prefix // the zero value means that pods have no IPv6 address
	NameServer     netip.Addr   // the zero value means that machines have no name server
	PauseImage     string
	ReservedMemory int64 // bytes of the host's memory that the machine may not use
	ReservedCPU    int64 // thousandths of a CPU
}

// glob returns the paths that match a pattern in the folder dir. In dir, characters like "[" have
// no special meaning.
func glob(dir, pattern string) ([]string, error) {
	found, err := fs.Glob(os.DirFS(dir), pattern)
	for i, name := range found {
		found[i] = filepath.Join(dir, name)
	}
	return found, err
}

// folder is the path of a machine's folder on the host. The folder contains the machine's disk,
// configuration and logs.
type folder string

func (f folder) path(elem ...string) string {
	return filepath.Join(append([]string{string(f)}, elem...)...)
}

// writeFile replaces a file of the machine. Programs on the machine can put symbolic links
// into the folder. So writeFile follows no link that leads out of the machine's folder on the
// host. If the file itself is a link, writeFile replaces the link.
func (f folder) writeFile(name string, content []byte, mode fs.FileMode) error {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	name = strings.TrimPrefix(filepath.Clean(name), "/")
	if err := errors.Join(root.MkdirAll(filepath.Dir(name), 0o755), root.RemoveAll(name)); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// writeAll calls writeFile for each file in the map files. The keys of this map are paths relative
// to dir. The parameter dir is a path in the machine's folder.
func (f folder) writeAll(dir string, files map[string][]byte) error {
	for name, content := range files {
		if err := f.writeFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates a folder of the machine. Like writeFile, it follows no link that leads out
// of the machine's folder on the host.
func (f folder) makeDir(name string, mode fs.FileMode) error {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return err
	}
	return errors.Join(root.MkdirAll(name, mode), root.Close())
}

// remove deletes a file or folder of the machine. Like writeFile, it follows no link that leads out
// of the machine's folder on the host. If the file does not exist, remove returns nil.
func (f folder) remove(name string) error {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(strings.TrimPrefix(name, "/")), root.Close())
}

// diskDirs maps paths in the machine's folder on the host to mount points in the machine. The
// folders under disk/ keep their data while the machine is off.
var diskDirs = map[string]string{
	"disk/kubelet":    "/var/lib/kubelet",
	"disk/containerd": "/var/lib/containerd",
	"disk/cni":        "/var/lib/cni",
	"disk/log":        logDir,
	"disk/cni-net":    "/etc/cni/net.d",
	"etc/kubernetes":  etcKubernetes,
}

// prepare creates the missing folders of a machine. If the machine has no disk yet, prepare also
// creates the disk, and copies the image store to the disk. The parameter images is the folder of
// the image store.
func (f folder) prepare(images string) error {
	for dir := range diskDirs {
		if dir == "disk/containerd" {
			continue
		}
		if err := os.MkdirAll(f.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{f.path("etc"), f.path("root")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return cloneStore(images, f.path("disk/containerd"))
}

// writeFiles writes the files that the machine reads at boot.
func (f folder) writeFiles(i cloudsim.Instance, v templateValues) error {
	files := map[string]string{
		"kubelet.yaml": "etc/kubernetes/kubelet.yaml", "proxy.yaml": "etc/kubernetes/proxy.yaml",
		"containerd.toml": "etc/kubernetes/containerd.toml", "cni.conflist": "etc/kubernetes/cni.conflist",
	}
	all, err := template.ParseFS(fileTemplates, "files/*")
	if err != nil {
		return err
	}
	for name, at := range files {
		var b bytes.Buffer
		if err := all.ExecuteTemplate(&b, name, v); err != nil {
			return err
		}
		if err := f.writeFile(at, b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(
		f.writeText("etc/hostname", i.Name+"\n"),
		f.writeText("etc/hosts", fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", v.Address, i.Name)),
		f.writeText("etc/machine-id", machineID(i)+"\n"),
		f.writeText("etc/resolv.conf", resolvConf(v.NameServer)))
}

func resolvConf(nameServer netip.Addr) string {
	if !nameServer.IsValid() {
		return "# Machines have no internet access, so there is no name server.\n"
	}
	return "nameserver " + nameServer.String() + "\n"
}

// registry writes the settings for pulls from the cloud's registry. The container runtime gets the
// registry's CA certificate and host names. The kubelet gets the files of the credential provider.
func (f folder) registry(r Registry) error {
	ca, err := os.ReadFile(r.CA)
	if err != nil {
		return fmt.Errorf("certificate authority of the registry: %w", err)
	}
	caFile := filepath.Join(r.Name, "ca.crt")
	files := map[string][]byte{caFile: ca}
	for _, name := range append([]string{r.Name}, r.Aliases...) {
		files[filepath.Join(name, "hosts.toml")] = fmt.Appendf(nil, "server = %q\n[host.%q]\n  ca = %q\n", "https://"+r.Name, "https://"+r.Name, filepath.Join(registriesDir, caFile))
	}
	return errors.Join(f.writeAll(registriesDir, files), f.writeAll(CredentialDir, r.Kubelet))
}

func (f folder) writeText(name, content string) error {
	return f.writeFile(name, []byte(content), 0o644) // all programs on the machine read these files
}

// machineID returns an id that never changes for an instance and differs between instances.
func machineID(i cloudsim.Instance) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "machine %s %d", i.ProviderID, i.CreatedAt.UnixNano()))
	return hex.EncodeToString(sum[:16])
}

// tunableValues returns the values that the kubelet requires for some kernel settings. The host and
// all machines share one kernel, which has only one value of each setting. On a machine, a file
// with the required value is mounted over each setting in /proc/sys, so the settings of the host do
// not change.
func tunableValues() map[string]string {
	return map[string]string{
		"/proc/sys/vm/overcommit_memory":      "1",
		"/proc/sys/vm/panic_on_oom":           "0",
		"/proc/sys/kernel/panic":              "10",
		"/proc/sys/kernel/panic_on_oops":      "1",
		"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
		"/proc/sys/kernel/keys/root_maxbytes": "25000000",
	}
}

// spec returns the boot settings of the machine. The parameter runtimeEnv contains environment
// variables for containerd.
func (f folder) spec(i cloudsim.Instance, p Programs, runtimeEnv []string) boot.Spec {
	s := boot.Spec{
		Hostname: i.Name, Root: f.path("root"), Tunables: tunableValues(), Grace: shutdownGrace,
		Dirs: []string{"/etc", "/root", "/var/lib", "/var/tmp", "/mnt", "/opt/cni"},
		Env:  []string{"PATH=" + programsDir + ":" + kubeDir + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		s.Binds = append(s.Binds, boot.Bind{From: dir, To: dir, ReadOnly: true, Optional: true})
	}
	for _, file := range []string{"/etc/ssl", "/etc/ca-certificates", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/protocols",
		"/etc/services", "/etc/mke2fs.conf", "/etc/ld.so.cache", "/etc/alternatives", "/etc/os-release"} {
		s.Binds = append(s.Binds, boot.Bind{From: file, To: file, ReadOnly: true, Optional: true})
	}
	for _, name := range []string{"hostname", "hosts", "machine-id", "resolv.conf"} {
		s.Binds = append(s.Binds, boot.Bind{From: f.path("etc", name), To: "/etc/" + name})
	}
	s.Binds = append(s.Binds,
		boot.Bind{From: f.path("dev"), To: "/dev", Recursive: true},
		boot.Bind{From: "/sys", To: "/sys", Recursive: true})
	for _, dir := range sortedKeys(diskDirs) {
		s.Binds = append(s.Binds, boot.Bind{From: f.path(dir), To: diskDirs[dir]})
	}
	// Bind the whole folder p.Machine instead of each file in this folder. runc executes itself
	// from a cloned mount of its folder. In this clone, a file that is bind-mounted separately
	// would be empty.
	s.Binds = append(s.Binds,
		boot.Bind{From: p.Machine, To: programsDir, ReadOnly: true},
		boot.Bind{From: filepath.Join(p.Machine, "cni"), To: cniDir, ReadOnly: true},
		boot.Bind{From: p.Plugin, To: filepath.Join(pluginDir, filepath.Base(p.Plugin)), ReadOnly: true},
		boot.Bind{From: p.Allinone, To: filepath.Join(ownDir, "allinone"), ReadOnly: true})
	for name, file := range p.Plugins {
		s.Binds = append(s.Binds, boot.Bind{From: file, To: filepath.Join(pluginDir, name), ReadOnly: true})
	}
	for name, file := range p.kube() {
		s.Binds = append(s.Binds, boot.Bind{From: file, To: filepath.Join(kubeDir, name), ReadOnly: true})
	}
	s.Programs = machinePrograms(runtimeEnv)
	return s
}

// machinePrograms returns the programs of a machine. The kubelet starts when containerd's
// socket accepts connections.
func machinePrograms(runtimeEnv []string) []boot.Program {
	program := func(dir, name string, args ...string) boot.Program {
		return boot.Program{Name: name, Path: filepath.Join(dir, name), Args: args, Log: filepath.Join(logDir, name+".log")}
	}
	kubelet := program(kubeDir, "kubelet",
		"--config="+etcKubernetes+"/kubelet.yaml", "--kubeconfig="+etcKubernetes+"/kubelet.kubeconfig", "--cloud-provider=external",
		"--image-credential-provider-config="+CredentialDir+"/kubelet.yaml", "--image-credential-provider-bin-dir="+pluginDir)
	kubelet.Await = criSocket
	containerd := program(programsDir, "containerd", "--config="+etcKubernetes+"/containerd.toml")
	containerd.Env = runtimeEnv
	return []boot.Program{
		containerd,
		kubelet,
		program(kubeDir, "kube-proxy", "--config="+etcKubernetes+"/proxy.yaml"),
	}
}

// specFile is the name of the file that contains the machine's Spec. The file is in the machine's
// folder on the host. The machine has no access to this file.
const specFile = "boot.json"

// writeSpec writes the Spec for the machine's first process.
func (f folder) writeSpec(s boot.Spec) (path string, err error) {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", err
	}
	path = f.path(specFile)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path) // hostname may read the file at any time
}

// hostname returns the host name of a machine, or "" if the machine has never run. It reads the
// boot settings, because root on the machine can change the machine's /etc/hostname.
func (f folder) hostname() (string, error) {
	s, err := boot.Load(f.path(specFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return s.Hostname, err
}
