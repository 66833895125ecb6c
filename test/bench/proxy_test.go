package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/test/proxylab"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// Limits of BenchmarkNetworkProxy. Each constant except minStalled limits a ratio: the figure of
// this project's proxy divided by the same figure of upstream's proxy. For minStalled, both figures
// are of this project's proxy. Decision 0055 contains the measured ratios.
const (
	minFromTarget = 2.3  // throughput of 16 connections from the target
	minToTarget   = 1.6  // throughput of 16 connections toward the target
	maxCPU        = 0.6  // CPU time per byte
	minDials      = 1.0  // dials per second
	maxIdle       = 1.15 // memory of an idle connection
	minStalled    = 0.95 // throughput with a stalled reader, relative to the throughput without a stalled reader
)

// BenchmarkNetworkProxy has benchRounds rounds. A measurement of a rate takes benchSpan. The
// measurement of memory opens idleConns idle connections.
const (
	benchRounds = 3
	benchSpan   = 2 * time.Second
	idleConns   = 1000
)

// way is a kind of connection: through this project's proxy, through upstream's proxy, or directly.
type way struct {
	name string
	dial func(addr string) (net.Conn, error)
	pids []int // processes of the server and the agent
}

// startWays starts this project's server and agent, and upstream's server and agent. The mode is
// the protocol between the clients and the servers: grpc or http-connect.
func startWays(b *testing.B, mode string) (us, them way) {
	b.Helper()
	var out [2]way
	for i, s := range []proxylab.Implementation{proxylab.Ours, proxylab.Theirs} {
		l := proxylab.New(b)
		server := l.Server(s, mode)
		agent := l.Agent(s)
		out[i] = way{name: s.Name, pids: []int{server.Pid, agent.Pid}, dial: func(addr string) (net.Conn, error) { return benchConnect(l.Socket, addr) }}
		if mode == "grpc" {
			out[i].dial = func(addr string) (net.Conn, error) { return benchTunnel(l.Socket, addr) }
		}
	}
	return out[0], out[1]
}

func benchTunnel(socket, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", addr)
}

func benchConnect(socket, addr string) (net.Conn, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", addr)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return conn, nil
}

// worker starts a target. The first byte of a connection selects the behavior of the target: 'd'
// sends data forever, 'u' reads all data, and 'e' echoes.
func worker(b *testing.B, address string) string {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() { // this goroutine ends when Cleanup closes the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go work(c)
		}
	}()
	return ln.Addr().String()
}

func work(c net.Conn) {
	defer c.Close()
	first := make([]byte, 1)
	if _, err := c.Read(first); err != nil {
		return
	}
	switch buf := make([]byte, 64<<10); first[0] {
	case 'd':
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	case 'u':
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, buf)
	default:
		_, _ = io.Copy(c, c)
	}
}

// bulk returns the throughput in MB/s. It also returns the CPU seconds that the server and the
// agent use for each GB.
func (w way) bulk(b *testing.B, addr string, conns int, direction byte) (rate, cpu float64) {
	b.Helper()
	var moved atomic.Int64
	var all sync.WaitGroup
	var open []net.Conn
	for range conns {
		c, err := w.dial(addr)
		if err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		open = append(open, c)
		all.Go(func() { pump(c, direction, &moved) })
	}
	time.Sleep(benchSpan / 4) // wait until the throughput is stable
	before, cpuBefore, began := moved.Load(), cpuOf(b, w.pids), time.Now()
	time.Sleep(benchSpan)
	bytes, took := float64(moved.Load()-before), time.Since(began).Seconds()
	cpu = cpuOf(b, w.pids) - cpuBefore
	for _, c := range open {
		go c.Close() // the Close of upstream's client waits for an answer that arrives only after the remaining data
	}
	all.Wait()
	return bytes / took / 1e6, cpu / (bytes / 1e9)
}

func pump(c net.Conn, direction byte, moved *atomic.Int64) {
	buf := make([]byte, 32<<10)
	if _, err := c.Write([]byte{direction}); err != nil {
		return
	}
	for {
		var n int
		var err error
		if direction == 'u' {
			n, err = c.Write(buf)
		} else {
			n, err = c.Read(buf)
		}
		moved.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// cpuOf returns the CPU seconds that the processes have used since their start.
func cpuOf(b *testing.B, pids []int) (sum float64) {
	b.Helper()
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		var user, system float64
		if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
			b.Fatal(err)
		}
		sum += (user + system) / 100 // USER_HZ is 100 on Linux
	}
	return sum
}

// dialRate returns the number of connections per second that four goroutines open and
// close.
func (w way) dialRate(b *testing.B, addr string) float64 {
	b.Helper()
	var n atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(benchSpan)
	for range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				c, err := w.dial(addr)
				if err != nil {
					b.Errorf("%s: %v", w.name, err)
					return
				}
				n.Add(1)
				c.Close()
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / benchSpan.Seconds()
}

// latency returns the median and the 99th percentile of the time for a round trip of one byte, in
// µs.
func (w way) latency(b *testing.B, addr string) (p50, p99 float64) {
	b.Helper()
	c, err := w.dial(addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var took []float64
	one := []byte{'e'}
	for range 2000 {
		began := time.Now()
		if _, err := c.Write(one); err != nil {
			b.Fatal(err)
		}
		if len(took) == 0 { // the target does not echo the first byte, because this byte selects the behavior
			if _, err := c.Write(one); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := c.Read(one); err != nil {
			b.Fatal(err)
		}
		took = append(took, float64(time.Since(began).Microseconds()))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// idleMemory opens many idle connections. It returns the memory that the server and the agent
// use for each connection, in KiB.
func (w way) idleMemory(b *testing.B, addr string) float64 {
	b.Helper()
	before := residentOf(b, w.pids)
	var open []net.Conn
	for range idleConns {
		c, err := w.dial(addr)
		if err != nil {
			b.Fatal(err)
		}
		open = append(open, c)
	}
	time.Sleep(2 * time.Second) // wait until the processes release unneeded memory
	after := residentOf(b, w.pids)
	for _, c := range open {
		c.Close()
	}
	return (after - before) / idleConns
}

func residentOf(b *testing.B, pids []int) (kib float64) {
	b.Helper()
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(raw), "RssAnon:")
		var n float64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			b.Fatal(err)
		}
		kib += n
	}
	return kib
}

// measureStalled measures the throughput of four connections without and with a fifth connection.
// The client of the fifth connection does not read its data. measureStalled alternates between the
// two measurements, so a change of the machine's load affects both of them.
func (w way) measureStalled(b *testing.B, addr string, f results) {
	b.Helper()
	others := func(name string) {
		rate, _ := w.bulk(b, addr, 4, 'd')
		f.add(name, rate)
	}
	others("without")
	c, err := w.dial(addr)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Write([]byte{'d'}); err != nil {
		b.Fatal(err)
	}
	time.Sleep(benchSpan / 2) // wait until all buffers are full
	others("with")
	others("with")
	go c.Close()
	time.Sleep(benchSpan / 2) // wait until the connection has ended
	others("without")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// results maps the name of a measurement to its values from all rounds.
type results map[string][]float64

func (f results) add(name string, v float64) { f[name] = append(f[name], v) }

func (w way) measure(b *testing.B, addr string, f results) {
	for _, conns := range []int{1, 16} {
		for _, d := range []byte{'d', 'u'} {
			rate, cpu := w.bulk(b, addr, conns, d)
			f.add(fmt.Sprintf("%c%d MB/s", d, conns), rate)
			if len(w.pids) > 0 {
				f.add(fmt.Sprintf("%c%d cpu-s/GB", d, conns), cpu)
			}
		}
	}
	f.add("dials/s", w.dialRate(b, addr))
	p50, p99 := w.latency(b, addr)
	f.add("p50 µs", p50)
	f.add("p99 µs", p99)
}

// BenchmarkNetworkProxy compares the network proxy of this project with upstream's proxy and with a
// direct connection. In each round, the benchmark measures the project's proxy, then upstream's
// proxy, then the direct connection. The benchmark reports the medians of all rounds. It also
// reports the ratio of each figure to the same figure of upstream's proxy, and fails if a ratio
// violates its limit.
func BenchmarkNetworkProxy(b *testing.B) {
	addr := worker(b, "127.0.0.1:0")
	direct := way{name: "direct", dial: func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }}
	for _, mode := range []string{"grpc", "http-connect"} {
		b.Run(mode, func(b *testing.B) {
			us, them := startWays(b, mode)
			got := map[string]results{"ours": {}, "upstream": {}, "direct": {}}
			for range benchRounds { // start new processes, because an old process keeps free memory from an earlier round
				fresh, other := startWays(b, mode)
				got["ours"].add("idle KiB", fresh.idleMemory(b, addr))
				got["upstream"].add("idle KiB", other.idleMemory(b, addr))
			}
			stalled := results{}
			for range benchRounds {
				for _, w := range []way{us, them, direct} {
					w.measure(b, addr, got[w.name])
				}
				us.measureStalled(b, addr, stalled)
			}
			reportProxy(b, mode, got, median(stalled["with"])/median(stalled["without"]))
			for range b.N - 1 { // this loop does nothing, because the benchmark has its own number of rounds
			}
		})
	}
}

func reportProxy(b *testing.B, mode string, got map[string]results, stalled float64) {
	b.Helper()
	var names []string
	for name := range got["ours"] {
		names = append(names, name)
	}
	slices.Sort(names)
	ratio := map[string]float64{}
	for _, name := range names {
		o, u := median(got["ours"][name]), median(got["upstream"][name])
		ratio[name] = o / u
		line := fmt.Sprintf("%-12s %-12s ours %9.1f  upstream %9.1f  ratio %5.2f", mode, name, o, u, o/u)
		if d := got["direct"][name]; len(d) > 0 {
			line += fmt.Sprintf("  direct %9.1f", median(d))
		}
		b.Log(line)
	}
	b.Logf("%-12s stalled      ours keeps %.0f %%", mode, stalled*100)
	check := func(name string, v float64, ok bool, bound string, limit float64) {
		b.ReportMetric(v, strings.ReplaceAll(name, " ", "-"))
		if !ok {
			b.Errorf("%s: %s: got %.2f, want %s %.2f", mode, name, v, bound, limit)
		}
	}
	atLeast := func(name string, v, limit float64) { check(name, v, v >= limit, "at least", limit) }
	atMost := func(name string, v, limit float64) { check(name, v, v <= limit, "at most", limit) }
	for d, least := range map[string]float64{"d16": minFromTarget, "u16": minToTarget} {
		atLeast(d+" throughput-ratio", ratio[d+" MB/s"], least)
		atMost(d+" cpu-ratio", ratio[d+" cpu-s/GB"], maxCPU)
	}
	atLeast("dial ratio", ratio["dials/s"], minDials)
	atMost("idle ratio", ratio["idle KiB"], maxIdle)
	atLeast("stalled ratio", stalled, minStalled)
}
