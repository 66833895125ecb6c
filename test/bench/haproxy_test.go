package bench

import (
	"fmt"
	"github.com/cloudsim-dev/allinone/test/proxylab"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// haproxyConfig is a configuration of HAProxy for TCP with the fastest settings: one thread for
// each processor, and splicing in the kernel.
const haproxyConfig = `
global
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout client 350s
  timeout server 350s
  option splice-auto
frontend in
  bind %s
  default_backend targets
backend targets
  server one %s check inter 2s
`

// targetPort is the port at which the instances of these benchmarks listen.
const targetPort = 30080

// Limits of BenchmarkHAProxy. Each limit is a ratio of the load balancer's figure to HAProxy's
// figure.
const (
	minThroughput  = 1.0  // ratio of bytes per second
	minConnections = 0.85 // ratio of connections per second
)

// BenchmarkHAProxy compares the cloud's load balancer with HAProxy in TCP mode and with a direct
// connection. In each turn, the benchmark measures these figures, first for the load balancer, then
// for HAProxy, then for the direct connection:
//   - The bytes per second of one stream. The ratio of the load balancer to HAProxy must be at
//     least minThroughput.
//   - The connections per second that clients open, use and close. The ratio of the load balancer
//     to HAProxy must be at least minConnections.
//   - The duration of round trips of 64 bytes. The benchmark reports the 99th percentile. For the
//     load balancer and HAProxy, it also reports the difference from the direct connection.
func BenchmarkHAProxy(b *testing.B) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		b.Skip("haproxy is not installed: apt-get install haproxy")
	}
	lb, target := benchLoadBalancer(b)
	worker(b, target)
	ways := []struct{ name, address string }{{"lb", lb}, {"haproxy", benchHAProxy(b, path, target)}, {"direct", target}}
	for _, w := range ways {
		awaitAnswer(b, w.address)
	}
	bulk, rate, late := map[string][]float64{}, map[string][]float64{}, map[string][]time.Duration{}
	b.ResetTimer()
	for range b.N {
		for _, w := range ways {
			bulk[w.name] = append(bulk[w.name], streamRate(b, w.address))
		}
		for _, w := range ways {
			rate[w.name] = append(rate[w.name], connectRate(b, w.address))
		}
		for _, w := range ways {
			late[w.name] = append(late[w.name], roundTrips(b, w.address)...)
		}
	}
	// The result is the median of the ratios of all turns. If the machine is busy
	// during a few turns, the median hardly changes.
	throughput, connections := ofTurns(bulk["lb"], bulk["haproxy"]), ofTurns(rate["lb"], rate["haproxy"])
	p99 := func(name string) float64 {
		slices.Sort(late[name])
		return float64(late[name][len(late[name])*99/100].Nanoseconds()) / 1e3
	}
	for _, w := range ways {
		b.ReportMetric(median(bulk[w.name])/1e6, w.name+"-MB/s")
		b.ReportMetric(median(rate[w.name]), w.name+"-conns/s")
		b.ReportMetric(p99(w.name), w.name+"-p99-µs")
		if w.name != "direct" {
			b.ReportMetric(p99(w.name)-p99("direct"), w.name+"-added-p99-µs")
		}
	}
	b.ReportMetric(throughput, "throughput/haproxy")
	b.ReportMetric(connections, "conns/haproxy")
	if throughput < minThroughput {
		b.Errorf("throughput relative to HAProxy: got %.2f, want at least %.2f", throughput, minThroughput)
	}
	if connections < minConnections {
		b.Errorf("connections per second relative to HAProxy: got %.2f, want at least %.2f", connections, minConnections)
	}
}

// ofTurns computes lb[i] / haproxy[i] for each turn i, and returns the median of these ratios.
func ofTurns(lb, haproxy []float64) float64 {
	all := make([]float64, len(lb))
	for i := range all {
		all[i] = lb[i] / haproxy[i]
	}
	return median(all)
}

// benchLoadBalancer starts a cloud with a load balancer that forwards to one instance. It returns
// the addresses of the load balancer and of the instance.
func benchLoadBalancer(b *testing.B) (lb, target string) {
	b.Helper()
	bin, dir := binaryPath(b, "allinone"), b.TempDir()
	url := filepath.Join(dir, "url")
	_, stop := startProgram(b, bin, "cloudsim", "--listen=127.0.0.1:0", "--data-dir="+dir, "--ready-file="+url, "--profile=instant",
		"--instance-range=127.120.0.0/16", "--load-balancer-range=127.121.0.0/16", "--load-balancer-range6=")
	b.Cleanup(stop)
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(url); err == nil {
			break
		}
	}
	at, err := os.ReadFile(url)
	if err != nil {
		b.Fatal(err)
	}
	cloud := func(args ...string) string {
		cmd := exec.Command(bin, append([]string{"cloud"}, args...)...)
		cmd.Env = append(os.Environ(), "CLOUDSIM_URL="+strings.TrimSpace(string(at)), "CLOUDSIM_TOKEN_FILE="+filepath.Join(dir, "admin.token"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	cloud("instances", "create", "one", "--zone", "sim-1a", "--wait")
	cloud("load-balancers", "create", "front", "--listener", fmt.Sprintf("tcp:8080:%d", targetPort), "--target", "one", "--wait")
	return "127.121.0.1:8080", fmt.Sprintf("127.120.0.1:%d", targetPort)
}

func benchHAProxy(b *testing.B, path, target string) (address string) {
	b.Helper()
	address = "127.0.0.1:" + strconv.Itoa(proxylab.FreePort(b))
	file := filepath.Join(b.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, address, target), 0o600); err != nil {
		b.Fatal(err)
	}
	_, stop := startProgram(b, path, "-db", "-f", file)
	b.Cleanup(stop)
	return address
}

func awaitAnswer(b *testing.B, address string) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			one := []byte("ee")
			if _, err = c.Write(one); err == nil {
				_, err = io.ReadFull(c, one[:1])
			}
			_ = c.Close()
		}
		switch {
		case err == nil:
			return
		case time.Since(began) > 30*time.Second:
			b.Fatal(err)
		}
	}
}

// streamRate returns the bytes per second that a client can send over one connection.
func streamRate(b *testing.B, address string) float64 {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("u")); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 256<<10)
	var n int
	began := time.Now()
	for time.Since(began) < benchSpan {
		wrote, err := c.Write(buf)
		if n += wrote; err != nil {
			b.Fatal(err)
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

// connectRate returns the connections per second that eight clients open, use once and
// close.
func connectRate(b *testing.B, address string) float64 {
	b.Helper()
	var total int
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for range 8 {
		all.Go(func() {
			n, one := 0, make([]byte, 2)
			for time.Since(began) < benchSpan {
				c, err := net.Dial("tcp", address)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err = c.Write([]byte("ee")); err == nil {
					_, err = io.ReadFull(c, one[:1])
				}
				_ = c.(*net.TCPConn).SetLinger(0) // closes with a reset, because the next rounds could not use a port in TIME_WAIT
				_ = c.Close()
				if err != nil {
					b.Error(err)
					return
				}
				n++
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	all.Wait()
	return float64(total) / time.Since(began).Seconds()
}

// roundTrips makes round trips of 64 bytes in sequence, and returns their durations.
func roundTrips(b *testing.B, address string) []time.Duration {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("e")); err != nil {
		b.Fatal(err)
	}
	message := make([]byte, 64)
	var all []time.Duration
	for end := time.Now().Add(benchSpan); time.Now().Before(end); {
		began := time.Now()
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	return all
}
