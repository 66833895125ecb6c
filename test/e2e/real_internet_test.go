package e2e

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/miekg/dns"
	"github.com/vishvananda/netns"
)

// Addresses of a test internet. The host of the lab has the addresses host4 and host6. The servers
// of the test internet have the addresses world4 and world6.
const (
	host4, world4 = "203.0.113.2", "203.0.113.1"
	host6, world6 = "2001:db8::2", "2001:db8::1"
	linkLocal     = "169.254.1.1" // an address that the host reaches and machines must not reach
	registryPort  = "5000"
	serverPort    = "8000"
)

// internet contains two network namespaces, one for the internet and one for the lab's host. The
// host has default routes into the internet, and its own /etc/resolv.conf.
type internet struct {
	t           *testing.T
	host, world int // process ids
}

func newInternet(t *testing.T) *internet {
	t.Helper()
	hold := func(args ...string) int {
		cmd := exec.Command("unshare", append(args, "sh", "-c", "echo ready; exec sleep 3600")...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, len("ready")))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	runtime.LockOSThread() // the kernel kills both processes when this thread ends
	w := &internet{t, hold("--net", "--mount", "--propagation", "slave"), hold("--net")}
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+world4+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.runIn("", "ip", "link", "add", "uplink", "netns", strconv.Itoa(w.host), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(w.world))
	for _, line := range []string{
		"host ip link set lo up",
		"host ip link set uplink up",
		"host ip address add " + host4 + "/24 dev uplink",
		"host ip address add " + host6 + "/64 dev uplink nodad",
		"host mount --bind " + conf + " /etc/resolv.conf",
		"host sysctl -qw net.ipv4.ip_forward=0",
		"world ip link set lo up",
		"world ip link set eth0 up",
		"world ip address add " + world4 + "/24 dev eth0",
		"world ip address add " + world6 + "/64 dev eth0 nodad",
		"world ip address add " + linkLocal + "/32 dev lo",
		"host ip route add default via " + world4,
		"host ip -6 route add default via " + world6,
	} {
		f := strings.Fields(line)
		w.runIn(f[0], f[1:]...)
	}
	return w
}

// enter returns the command that runs a program in the host's namespaces.
func (w *internet) enter() []string {
	return []string{"nsenter", "-t", strconv.Itoa(w.host), "-n", "-m", "--"}
}

// runIn runs a program on the host or in the test internet. If place is "", runIn uses
// the test's own namespaces.
func (w *internet) runIn(place string, args ...string) {
	w.t.Helper()
	switch place {
	case "host":
		args = append(w.enter(), args...)
	case "world":
		args = append([]string{"nsenter", "-t", strconv.Itoa(w.world), "-n", "--"}, args...)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// inNetwork calls fn on a thread that is in the network namespace of a process.
func inNetwork(pid int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		ns, err := netns.GetFromPid(pid)
		if err == nil {
			err = netns.Set(ns)
		}
		if err == nil {
			err = errors.Join(fn(), ns.Close())
		}
		done <- err
	}()
	return <-done
}

// runInNamespace calls fn in the network namespace of a process. The test fails if the thread
// cannot enter the namespace or if fn returns an error.
func (w *internet) runInNamespace(pid int, fn func() error) {
	w.t.Helper()
	if err := inNetwork(pid, fn); err != nil {
		w.t.Fatal(err)
	}
}

// listenIn listens on an address in the network namespace of a process.
func (w *internet) listenIn(pid int, address string) (l net.Listener) {
	w.t.Helper()
	w.runInNamespace(pid, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	w.t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve starts a DNS server in the test internet, and several HTTP servers that all serve the same
// registry. The name r4.test has only an IPv4 address, and the name r6.test has only an IPv6
// address.
func (w *internet) serve() {
	w.t.Helper()
	names := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		a, ask := new(dns.Msg).SetReply(q), q.Question[0]
		head := dns.RR_Header{Name: ask.Name, Rrtype: ask.Qtype, Class: dns.ClassINET, Ttl: 1}
		switch {
		case ask.Name == "r4.test." && ask.Qtype == dns.TypeA:
			a.Answer = []dns.RR{&dns.A{Hdr: head, A: net.ParseIP(world4)}}
		case ask.Name == "r6.test." && ask.Qtype == dns.TypeAAAA:
			a.Answer = []dns.RR{&dns.AAAA{Hdr: head, AAAA: net.ParseIP(world6)}}
		case ask.Name != "r4.test." && ask.Name != "r6.test.":
			a.Rcode = dns.RcodeNameError
		}
		_ = rw.WriteMsg(a)
	})
	var udp net.PacketConn
	w.runInNamespace(w.world, func() (err error) {
		udp, err = net.ListenPacket("udp", world4+":53")
		return err
	})
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: names}, {Listener: w.listenIn(w.world, world4+":53"), Handler: names}} {
		go func() { _ = s.ActivateAndServe() }()
		w.t.Cleanup(func() { _ = s.Shutdown() })
	}
	images := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	for _, ip := range []string{world4, world6} {
		for _, port := range []string{registryPort, serverPort} {
			s := &http.Server{Handler: images} //nolint:gosec // only for the test's own clients
			l := w.listenIn(w.world, net.JoinHostPort(ip, port))
			go func() { _ = s.Serve(l) }()
		}
	}
	w.listenIn(w.world, linkLocal+":"+serverPort)
}

func (w *internet) pushImage(image v1.Image, repository string) {
	w.t.Helper()
	ref, err := name.ParseReference(net.JoinHostPort(world4, registryPort)+"/"+repository, name.Insecure)
	if err != nil {
		w.t.Fatal(err)
	}
	dial := &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = inNetwork(w.host, func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	if err := remote.Write(ref, image, remote.WithTransport(dial)); err != nil {
		w.t.Fatal(err)
	}
}

func pauseImage(t *testing.T, bin string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "layer.tar")
	if out, err := exec.Command("tar", "-cf", archive, "-C", filepath.Join(bin, "machine/images"), "pause").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	layer, err := tarball.LayerFromFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{Entrypoint: []string{"/pause"}},
			RootFS: must(t, image.ConfigFile).RootFS})
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func must[T any](t *testing.T, fn func() (T, error)) T {
	t.Helper()
	v, err := fn()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRealInternet proves that a pod on a real node pulls images by name over IPv4 and IPv6, and
// reaches servers of the internet. The pod reaches no private services of the host. Without
// internet access, neither pulls nor connections work.
func TestRealInternet(t *testing.T) {
	l := newRealLab(t)
	w := newInternet(t)
	l.enter = w.enter()
	t.Cleanup(l.stopLab)
	w.serve()
	w.pushImage(pauseImage(t, filepath.Dir(l.allinone)), "pause:v1")
	w.pushImage(must(t, func() (v1.Image, error) { return random.Image(50<<20, 1) }), "large:v1")
	up := func(args ...string) string {
		t.Helper()
		return l.must(l.allinone, append([]string{"up", "--detach", "--nodes", "real", "--instances", "1", "--port-base", "0", "--profile", "instant", "--volumes=false"}, args...)...)
	}
	mirror := func(host, address, port string) string {
		return "--registry-mirror=" + host + "=http://" + net.JoinHostPort(address, port)
	}
	out := up(mirror("r4.test", "r4.test", registryPort), mirror("r6.test", "r6.test", registryPort), mirror("down.test", world4, "9"))
	if want := "machines reach the internet over IPv4 and IPv6"; !strings.Contains(out, want) || !strings.Contains(l.must(l.allinone, "status"), want) {
		t.Errorf("up and status do not print %q:\n%s", want, out)
	}
	l.walk(t, []step{
		{"pulls", func(l *labRun, _ *testing.T) {
			for _, host := range []string{"r4", "r6"} {
				l.runOn("node-1", "from-"+host, host+".test/pause:v1", nil)
				l.awaitPull("from-" + host)
			}
			l.runOn("node-1", "from-down", "down.test/pause:v1", nil)
			l.awaitOutput("Check that the mirror http://"+world4+":9 runs", "describe", "pod", "from-down")
			l.refusedFor(world4+":9", "from-down") // the error of the pull names the mirror
		}},
		{"connections", func(l *labRun, t *testing.T) { l.testInternetConnections(t, w) }},
		{"rate", (*labRun).testInternetRate},
	})
	if t.Failed() {
		return
	}
	l.must(l.allinone, "down")
	if out := l.must("nft", "list", "tables"); strings.Contains(out, "cloudsim") {
		t.Errorf("tables after down: %s", out)
	}
	if now := l.must("sysctl", "-n", "net.ipv4.ip_forward"); now != "0" {
		t.Errorf("net.ipv4.ip_forward after down: got %s, want 0", now)
	}
	out = up("--no-internet")
	if want := "machines have no internet access: --no-internet"; !strings.Contains(out, want) {
		t.Errorf("up does not print %q:\n%s", want, out)
	}
	l.walk(t, []step{{"no internet", (*labRun).testNoInternet}})
}

// testInternetConnections proves that a pod reaches servers by name, but reaches no private
// service of the host.
func (l *labRun) testInternetConnections(t *testing.T, w *internet) {
	l.runOn("node-1", "client", agnhost, nil, "pause")
	l.awaitReady("client")
	for _, to := range []string{"r4.test", world4, "r6.test", world6} {
		l.connects("a server of the internet: "+to, "client", net.JoinHostPort(to, serverPort))
	}
	for _, ip := range []string{"127.0.0.1", host4, host6} {
		w.listenIn(w.host, net.JoinHostPort(ip, serverPort))
	}
	for _, ip := range []string{host4, host6, linkLocal} {
		at := net.JoinHostPort(ip, serverPort)
		w.runInNamespace(w.host, func() error { // the host itself reaches the service
			c, err := net.Dial("tcp", at)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if _, err := l.runProgram(l.kubectlPath(), "exec", "client", "--", "/agnhost", "connect", "--timeout=2s", at); err == nil {
			t.Errorf("a pod reaches the host's service at %s", at)
		}
	}
	api := l.component("kube-apiserver").Address // on the host's loopback
	_, port, err := net.SplitHostPort(strings.TrimPrefix(api, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{net.JoinHostPort(host4, port), net.JoinHostPort(host4, "2379")} {
		if _, err := l.runProgram(l.kubectlPath(), "exec", "client", "--", "/agnhost", "connect", "--timeout=2s", at); err == nil {
			t.Errorf("a pod reaches the port of a loopback service of the host at %s", at)
		}
	}
}

// testInternetRate downloads a layer of 50 MB on a machine and on the host, and prints the rates.
func (l *labRun) testInternetRate(t *testing.T) {
	manifest := l.must("curl", "-sf", "http://"+net.JoinHostPort(world4, registryPort)+"/v2/large/manifests/v1")
	_, digest, _ := strings.Cut(manifest, `"layers"`)
	if _, digest, _ = strings.Cut(digest, `sha256:`); len(digest) < 64 {
		t.Fatalf("manifest without a layer: %s", manifest)
	}
	args := []string{"curl", "-sf", "-o", "/dev/null", "-w", "%{speed_download}", "http://" + net.JoinHostPort(world4, registryPort) + "/v2/large/blobs/sha256:" + digest[:64]}
	speed := func(output string) float64 {
		n, err := strconv.ParseFloat(output, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var host, machine float64 // the best rates
	for range 10 {
		host = max(host, speed(l.must(args[0], args[1:]...)))
		machine = max(machine, speed(l.inMachine("i-000001", args...)))
	}
	t.Logf("download of 50 MB: %.0f MB/s on a machine, %.0f MB/s on the host, ratio %.2f", machine/1e6, host/1e6, machine/host)
	l.inMachine("i-000001", "/opt/machine/ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir", "/etc/kubernetes/registries", "r6.test/large:v1")
}

// testNoInternet proves that pulls and connections fail without internet access.
func (l *labRun) testNoInternet(t *testing.T) {
	l.runOn("node-1", "blocked", "r4.test/pause:v2", nil)
	l.awaitOutput("machines have no internet access: --no-internet", "describe", "pod", "blocked")
	l.refusedFor("Failed to pull image", "blocked")
	l.kubectl("delete", "pod", "client", "--force", "--ignore-not-found")
	l.runOn("node-1", "client", agnhost, nil, "pause")
	l.awaitReady("client")
	for _, to := range []string{"r4.test", world4, world6} {
		at := net.JoinHostPort(to, serverPort)
		if _, err := l.runProgram(l.kubectlPath(), "exec", "client", "--", "/agnhost", "connect", "--timeout=2s", at); err == nil {
			t.Errorf("a pod reaches %s without internet access", at)
		}
	}
	if forward := l.must("sysctl", "-n", "net.ipv4.ip_forward"); forward != "0" {
		t.Errorf("net.ipv4.ip_forward is %s without internet access", forward)
	}
}
