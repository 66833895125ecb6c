package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"github.com/cloudsim-dev/allinone/test/proxylab"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// binaryPath returns the path of a binary that `make build` has built.
func binaryPath(b *testing.B, name string) string {
	b.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		b.Fatalf("%v: run make build", err)
	}
	return path
}

func startProgram(b *testing.B, path string, args ...string) (pid int, stop func()) {
	b.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+b.TempDir())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// untilOK sends requests to url until an answer has the status 200. It returns the time until this
// answer.
func untilOK(b *testing.B, url string) time.Duration {
	b.Helper()
	hc := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server is on loopback and has a self-signed certificate
	}}
	begin := time.Now()
	for {
		resp, err := hc.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(begin)
			}
		}
		if time.Since(begin) > 2*time.Minute {
			b.Fatalf("%s: no answer with the status 200 within 2 minutes; last error: %v", url, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// maxIdleMiB is the limit in MiB of a cloud's anonymous memory, two seconds after the cloud is
// ready.
const maxIdleMiB = 25

// BenchmarkCloudsim starts only the cloud, without a cluster. It reports the time until the cloud
// is ready. The cloud must use at most maxIdleMiB of memory. The measured memory is RssAnon, see
// proc_pid_status(5). RssAnon excludes the pages of the program's file, which the kernel drops when
// memory is short.
func BenchmarkCloudsim(b *testing.B) {
	bin := binaryPath(b, "allinone")
	var ready time.Duration
	var anonymous float64
	for range b.N {
		addr := "127.0.0.1:" + strconv.Itoa(proxylab.FreePort(b))
		pid, stop := startProgram(b, bin, "cloudsim", "--listen", addr, "--data-dir", b.TempDir())
		ready += untilOK(b, "http://"+addr+"/readyz")
		time.Sleep(2 * time.Second) // wait until the cloud is idle
		anonymous += anonymousMiB(b, pid)
		stop()
	}
	ms, mib := ready.Seconds()*1000/float64(b.N), anonymous/float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms, "ms-to-ready")
	b.ReportMetric(mib, "MiB-anonymous")
	if mib > maxIdleMiB {
		b.Errorf("idle cloud: got %.1f MiB of anonymous memory, want at most %d", mib, maxIdleMiB)
	}
}

func anonymousMiB(b *testing.B, pid int) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "RssAnon:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

// Limits of BenchmarkUp.
const (
	maxUpRatio = 3
	maxLabMiB  = 1536
)

// BenchmarkUp starts complete labs in new folders. It measures the time from the command until
// three nodes are Ready and a load balancer answers. For comparison, the benchmark starts
// kube-apiserver with an etcd but without a lab, and measures the time until kube-apiserver is
// ready.
//
// The metric "of-apiserver" is the time of the lab divided by the time of kube-apiserver, and must
// be at most maxUpRatio. The metric "MiB-lab" is the sum of the proportional set sizes (PSS) of all
// components in MiB, and must be at most maxLabMiB.
func BenchmarkUp(b *testing.B) {
	bin, kube := binaryPath(b, "allinone"), binaryPath(b, "kube")
	var whole, limit time.Duration
	memory := map[string]float64{}
	for range b.N {
		limit += apiServerAlone(b, kube)
		took, s := upAndServe(b, bin)
		whole += took
		for _, c := range s.Components {
			memory[c.Name] += float64(c.Proportional) / (1 << 20)
		}
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(whole.Seconds()/n, "s-up")
	b.ReportMetric(limit.Seconds()/n, "s-apiserver")
	b.ReportMetric(whole.Seconds()/limit.Seconds(), "of-apiserver")
	total := 0.0
	for name, mib := range memory {
		total += mib
		b.ReportMetric(mib/n, "MiB-"+name)
	}
	b.ReportMetric(total/n, "MiB-lab")
	if ratio := whole.Seconds() / limit.Seconds(); ratio > maxUpRatio {
		b.Errorf("start of a lab: got %.1f times the start of kube-apiserver, want at most %d", ratio, maxUpRatio)
	}
	if total/n > maxLabMiB {
		b.Errorf("lab: got %.0f MiB of memory, want at most %d", total/n, maxLabMiB)
	}
}

// benchStatus is the part of `allinone status -o json` that the benchmark needs.
type benchStatus struct {
	Components []struct {
		Name                   string
		Resident, Proportional int64
	}
}

// upAndServe starts a lab and serves a Service through a load balancer. It returns the time until
// the first answer of the Service, and the lab's status.
func upAndServe(b *testing.B, bin string) (time.Duration, benchStatus) {
	b.Helper()
	dir := b.TempDir()
	run := func(name string, args ...string) string {
		b.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CLOUDSIM_DATA_DIR="+dir, "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("%s %v: %v", name, args, err)
		}
		return strings.TrimSpace(string(out))
	}
	defer func() { run(bin, "down") }()
	kubectl := filepath.Join(dir, "bin", "kubectl")
	begin := time.Now()
	run(bin, "up", "--detach", "--port-base", "0")
	run(kubectl, "create", "deployment", "web", "--image=web")
	run(kubectl, "expose", "deployment", "web", "--type=LoadBalancer", "--port=8080")
	run(kubectl, "wait", "service", "web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=60s")
	untilOK(b, "http://"+run(kubectl, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")+":8080/")
	took := time.Since(begin)
	run(kubectl, "wait", "node", "--all", "--for=condition=Ready", "--timeout=0")
	var s benchStatus
	if err := json.Unmarshal([]byte(run(bin, "status", "-o", "json")), &s); err != nil {
		b.Fatal(err)
	}
	return took, s
}

// apiServerAlone returns the time from the start of kube-apiserver until it is ready. During this
// time, the benchmark runs only kube-apiserver and an etcd.
func apiServerAlone(b *testing.B, kube string) time.Duration {
	b.Helper()
	dir := b.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	sa := filepath.Join(dir, "sa.key")
	if err := os.WriteFile(sa, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		b.Fatal(err)
	}
	etcd, port := "http://127.0.0.1:"+strconv.Itoa(proxylab.FreePort(b)), strconv.Itoa(proxylab.FreePort(b))
	_, stopEtcd := startProgram(b, kube, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", etcd,
		"--advertise-client-urls", etcd, "--listen-peer-urls", "http://127.0.0.1:0")
	defer stopEtcd()
	untilOK(b, etcd+"/readyz")
	_, stop := startProgram(b, kube, "kube-apiserver", "--etcd-servers", etcd, "--cert-dir", dir, "--bind-address", "127.0.0.1",
		"--secure-port", port, "--service-account-key-file", sa, "--service-account-signing-key-file", sa,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.96.0.0/16",
		"--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none")
	defer stop()
	return untilOK(b, "https://127.0.0.1:"+port+"/readyz")
}
