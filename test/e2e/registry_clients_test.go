package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// registryRun is a cloud with a registry, and a folder for the registry's clients.
type registryRun struct {
	t     *testing.T
	host  string
	ca    string // file with the registry's certificate authority
	image string // path of the tar file of an image
	dir   string // folder of the client
	cloud *client.Client
}

// registryTool contains functions that run a common registry client. The error of a function
// contains the output of the client.
type registryTool struct {
	login  func(password string)
	push   func(ref string) error
	pull   func(ref string) error
	remove func(ref string) error // nil if the client cannot delete
}

// TestRegistryClients proves that common clients can push, pull and delete images. It also
// proves that the registry refuses wrong and expired passwords.
func TestRegistryClients(t *testing.T) {
	if testing.Short() {
		t.Skip("starts other programs: run make e2e")
	}
	tools := map[string]func(*registryRun) registryTool{"crane": crane, "skopeo": skopeo, "docker": dockerClient, "ctr": ctr}
	cloud, host, dir := registryCloud(t)
	for name, tool := range tools {
		t.Run(name, func(t *testing.T) {
			r := &registryRun{t: t, host: host, ca: filepath.Join(dir, "registry", "ca.crt"), image: filepath.Join(t.TempDir(), "image.tar"), dir: t.TempDir(), cloud: cloud}
			r.scenario("tools/"+name, tool(r))
		})
	}
}

// registryCloud starts a cloud with a registry. The cloud runs until the test ends.
func registryCloud(t *testing.T) (c *client.Client, host, dir string) {
	t.Helper()
	v, host := registryVictim(t)
	v.start()
	t.Cleanup(v.kill)
	return v.client(), host, v.dir
}

// registryVictim returns a cloud with a registry. The test must start the cloud, and can kill it.
func registryVictim(t *testing.T) (v *victim, host string) {
	t.Helper()
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	host = fmt.Sprintf("127.0.0.1:%d", ports[0])
	return &victim{t: t, dir: t.TempDir(), args: []string{"--no-data-plane", "--registry-listen", host}}, host
}

func (r *registryRun) scenario(repo string, tool registryTool) {
	t := r.t
	if _, err := r.cloud.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: repo}); err != nil {
		t.Fatal(err)
	}
	password := func() string {
		t.Helper()
		c, err := r.cloud.CreateRegistryCredential(t.Context(), cloudsim.CreateRegistryCredential{TTLSeconds: cloudsim.MinRegistryPassword})
		if err != nil {
			t.Fatal(err)
		}
		return c.Password
	}
	ref := r.host + "/" + repo + ":v1"
	r.makeImage(ref)
	good := password()
	tool.login(good)
	if err := errors.Join(tool.push(ref), tool.pull(ref)); err != nil {
		t.Fatal(err)
	}
	refused := func(operation string, err error, words ...string) {
		t.Helper()
		message := strings.ToLower(fmt.Sprint(err))
		if err == nil || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(message, w) }) {
			t.Errorf("%s: %v; want one of %q", operation, err, words)
		}
	}
	tool.login("a-guess")
	refused("pull with a wrong password", tool.pull(ref), "unauthorized", "401")
	refused("push with a wrong password", tool.push(ref), "unauthorized", "401")
	if _, err := r.cloud.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: cloudsim.MinRegistryPassword}); err != nil {
		t.Fatal(err)
	}
	tool.login(good)
	refused("pull with a password that is over", tool.pull(ref), "the registry password expired at", "denied", "403")
	tool.login(password())
	if err := tool.pull(ref); err != nil {
		t.Error(err)
	}
	if tool.remove != nil {
		if err := tool.remove(ref); err != nil {
			t.Error(err)
		}
		refused("pull of what is deleted", tool.pull(ref), "manifest_unknown", "manifest unknown", "404", "not found")
	}
}

// makeImage writes an image for this machine's platform, in the format of `docker save`.
func (r *registryRun) makeImage(ref string) {
	r.t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		r.t.Fatal(err)
	}
	img, err := random.Image(1<<16, 2)
	if err != nil {
		r.t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		r.t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, file); err != nil {
		r.t.Fatal(err)
	}
	if err := tarball.WriteToFile(r.image, tag, img); err != nil {
		r.t.Fatal(err)
	}
}

// program returns the path of a program in the PATH. If the program is missing, the method skips
// the test. The skip message contains installHint, which explains how to install the program.
func (r *registryRun) program(name, installHint string) string {
	r.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		r.t.Skipf("NOT RUN: %s is missing: %s", name, installHint)
	}
	return path
}

func (r *registryRun) runProgram(env []string, path string, args ...string) error {
	cmd := exec.CommandContext(r.t.Context(), path, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(path), args[0], err, out)
	}
	return nil
}

// authFile writes a password into the configuration file that crane, skopeo and docker read.
func (r *registryRun) authFile(password string) {
	r.t.Helper()
	raw, err := json.Marshal(map[string]any{"auths": map[string]any{r.host: map[string]string{
		"auth": base64.StdEncoding.EncodeToString([]byte(cloudsim.RegistryUser + ":" + password)),
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "config.json"), raw, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// crane builds the client crane from the module version in this project's go.mod.
func crane(r *registryRun) registryTool {
	const module = "github.com/google/go-containerregistry"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	bin := r.t.TempDir()
	if err := r.runProgram([]string{"GOBIN=" + bin, "CGO_ENABLED=0"}, "go", "install", module+"/cmd/crane@"+strings.TrimSpace(string(version))); err != nil {
		r.t.Skipf("NOT RUN: crane cannot be built: %v", err)
	}
	do := func(args ...string) error {
		return r.runProgram([]string{"DOCKER_CONFIG=" + r.dir, "SSL_CERT_FILE=" + r.ca}, filepath.Join(bin, "crane"), args...)
	}
	return registryTool{
		login: r.authFile,
		push:  func(ref string) error { return do("push", r.image, ref) },
		pull: func(ref string) error {
			return errors.Join(do("validate", "--remote", ref), do("pull", ref, filepath.Join(r.dir, "out.tar")))
		},
		remove: func(ref string) error { return r.removeByDigest(ref, do) },
	}
}

// removeByDigest deletes a manifest by its digest, which also deletes the manifest's tags.
func (r *registryRun) removeByDigest(ref string, crane func(...string) error) error {
	repo, _, _ := strings.Cut(strings.TrimPrefix(ref, r.host+"/"), ":")
	tags := filepath.Join(filepath.Dir(r.ca), "repositories", strings.ReplaceAll(repo, "/", "%2F"), "tags", "v1")
	digest, err := os.ReadFile(tags)
	if err != nil {
		return err
	}
	return crane("delete", r.host+"/"+repo+"@"+string(digest))
}

func skopeo(r *registryRun) registryTool {
	path := r.program("skopeo", "apt-get install skopeo")
	certs := filepath.Join(r.dir, "certs") // skopeo reads each .crt as an authority and requires a certificate for each .key
	raw, err := os.ReadFile(r.ca)
	if err == nil {
		err = os.Mkdir(certs, 0o700)
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(certs, "ca.crt"), raw, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	auth := filepath.Join(r.dir, "config.json")
	do := func(args ...string) error {
		return r.runProgram(nil, path, append([]string{"--insecure-policy"}, args...)...)
	}
	return registryTool{
		login: r.authFile,
		push: func(ref string) error {
			return do("copy", "--authfile", auth, "--dest-cert-dir", certs, "docker-archive:"+r.image, "docker://"+ref)
		},
		pull: func(ref string) error {
			return do("copy", "--authfile", auth, "--src-cert-dir", certs, "docker://"+ref, "dir:"+filepath.Join(r.dir, "out"))
		},
		remove: func(ref string) error { return do("delete", "--authfile", auth, "--cert-dir", certs, "docker://"+ref) },
	}
}

// dockerClient returns Docker's client, and starts a container engine if no engine runs. Docker
// trusts every registry on loopback, so it does not need the registry's CA. Docker cannot delete
// images in registries, so the result has no function remove.
func dockerClient(r *registryRun) registryTool {
	path := r.program("docker", "apt-get install docker.io")
	sock := r.engine()
	do := func(args ...string) error {
		return r.runProgram([]string{"DOCKER_CONFIG=" + r.dir, "DOCKER_HOST=" + sock}, path, args...)
	}
	return registryTool{
		login: r.authFile,
		push:  func(ref string) error { return errors.Join(do("load", "--input", r.image), do("push", ref)) },
		pull: func(ref string) error {
			_ = do("rmi", ref) // the image may be missing
			return do("pull", ref)
		},
	}
}

// engine returns the address of the running container engine. If no engine runs, it starts one.
func (r *registryRun) engine() (host string) {
	r.t.Helper()
	if os.Geteuid() != 0 && os.Getenv("DOCKER_HOST") == "" {
		r.t.Skip("NOT RUN: a container engine needs root")
	}
	cmd := exec.Command("../../hack/with-engine", "sh", "-c", `echo "engine ${DOCKER_HOST:-unix:///var/run/docker.sock}"; read -r _`)
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "engine "); ok {
			return at
		}
	}
	r.t.Skip("NOT RUN: no container engine starts here; hack/with-engine prints the reason")
	return ""
}

// ctr returns the client ctr. It starts a containerd, which pushes and pulls the images.
func ctr(r *registryRun) registryTool {
	if os.Geteuid() != 0 {
		r.t.Skip("NOT RUN: containerd needs root")
	}
	made, err := filepath.Abs("../../bin/machine")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Setenv("PATH", made+":"+os.Getenv("PATH"))
	daemon, path := r.program("containerd", "run make machine"), r.program("ctr", "run make machine")
	sock := r.containerd(daemon)
	hosts := filepath.Join(r.dir, "hosts", r.host)
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		r.t.Fatal(err)
	}
	toml := fmt.Sprintf("server = %q\n[host.%q]\nca = %q\n", "https://"+r.host, "https://"+r.host, r.ca)
	if err := os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(toml), 0o600); err != nil {
		r.t.Fatal(err)
	}
	user := ""
	images := func(args ...string) error {
		return r.runProgram(nil, path, append([]string{"--address", sock, "images"}, args...)...)
	}
	with := func(verb string, more ...string) error {
		return images(append([]string{verb, "--hosts-dir", filepath.Dir(hosts), "--user", user}, more...)...)
	}
	return registryTool{
		login: func(password string) { user = cloudsim.RegistryUser + ":" + password },
		push: func(ref string) error {
			return errors.Join(images("import", "--no-unpack", r.image), with("push", ref))
		},
		pull: func(ref string) error {
			_ = images("rm", "--sync", ref) // the image may be missing
			return with("pull", ref)
		},
	}
}

func (r *registryRun) containerd(path string) (sock string) {
	r.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "containerd.") // the path of a Unix socket must be short
	if err != nil {
		r.t.Fatal(err)
	}
	sock = filepath.Join(dir, "sock")
	config := filepath.Join(dir, "config.toml")
	words := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n", dir+"/root", dir+"/state", sock)
	if err := os.WriteFile(config, []byte(words), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(path, "--config", config)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if err := os.RemoveAll(dir); err != nil {
			r.t.Error(err)
		}
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("unix", sock); err == nil {
			_ = conn.Close()
			return sock
		}
	}
	r.t.Fatal("containerd did not start")
	return ""
}

// TestRegistryAuditSurvivesAKill proves that the audit log keeps the registry's decisions after
// the test kills the cloud.
func TestRegistryAuditSurvivesAKill(t *testing.T) {
	v, host := registryVictim(t)
	v.start()
	c := v.client()
	if err := v.askRegistry(host); err != nil {
		t.Fatal(err)
	}
	before, err := c.ListRegistryDecisions(t.Context())
	if err != nil || len(before.Items) == 0 {
		t.Fatal(before, err)
	}
	v.kill()
	v.start()
	defer v.kill()
	after, err := v.client().ListRegistryDecisions(t.Context())
	if err != nil || len(after.Items) != len(before.Items) || after.Items[0] != before.Items[0] {
		t.Errorf("decisions after the kill: got %+v, error %v; want the same as before: %+v", after.Items, err, before.Items)
	}
}

// askRegistry sends an invalid password to the token endpoint. It returns nil if the registry
// answers, even if the registry refuses the password.
func (v *victim) askRegistry(host string) error {
	pem, err := os.ReadFile(filepath.Join(v.dir, "registry", "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	hc := http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer hc.CloseIdleConnections()
	resp, err := hc.PostForm("https://"+host+"/token", url.Values{"grant_type": {"password"}, "password": {"a-guess"}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
