package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

const (
	lbID = cloudsim.LoadBalancerID("lb-000001")
	port = 8080 // of the load balancers in these tests
)

// addresses is the number of loopback addresses that freshIP has returned. Each test uses its own
// addresses. Two simultaneous runs usually use different addresses, because freshIP computes the
// addresses from the process id.
var addresses atomic.Int32

func freshIP(network int) string {
	n := int(addresses.Add(1))
	return fmt.Sprintf("127.%d.%d.%d", network, 100+(os.Getpid()+n/200)%150, 1+n%200)
}

// loopback contains the address ranges of the instances in these tests.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.64.0.0/10"), netip.MustParsePrefix("::1/128")}

func lbIP() string       { return freshIP(65) }
func instanceIP() string { return freshIP(64) }

// runDataplane starts a data plane. It returns a function that ends the data plane and waits for
// its end. The test framework also calls this function at the end of the test.
func runDataplane(t testing.TB, cloud dataplane.Cloud, cfg dataplane.Config) (stop func()) {
	t.Helper()
	return runLogged(t, slog.DiscardHandler, cloud, cfg)
}

func runLogged(t testing.TB, log slog.Handler, cloud dataplane.Cloud, cfg dataplane.Config) (stop func()) {
	t.Helper()
	if cfg.Instances == nil {
		cfg.Instances = loopback
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- dataplane.Run(ctx, slog.New(log), cfg, cloud) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: got error %v", err)
			}
		case <-time.After(testTimeout):
			t.Error("Run did not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

// warnings is a channel that receives the warnings of a log.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "level=WARN") {
		w <- string(line)
	}
	return len(line), nil
}

// takeDescriptors lowers the limit of descriptors for the process, and opens files until no
// descriptor is free. The function giveOne frees one descriptor. The function giveAll restores the
// old limit of descriptors for the process. A test must call giveAll before it uses a target,
// because the target needs descriptors, too.
func takeDescriptors(t *testing.T) (giveOne, giveAll func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = min(limit.Cur, 1000)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	giveAll = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(giveAll)
	for last := (*os.File)(nil); ; {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return func() { last.Close() }, giveAll
		}
		t.Cleanup(func() { file.Close() })
		last = file
	}
}

// server listens on an address of an instance.
type server struct {
	ip   string
	port int
	ln   net.Listener
	work sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]bool
}

// serve listens on ip:port until the test ends or calls the server's method close. Port 0 means any
// free port.
func serve(t testing.TB, ip string, port int, handle func(*net.TCPConn)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ip: ip, port: ln.Addr().(*net.TCPAddr).Port, ln: ln, open: map[net.Conn]bool{}}
	s.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[c] = true
			s.mu.Unlock()
			s.work.Go(func() {
				handle(c.(*net.TCPConn))
				c.Close()
				s.mu.Lock()
				delete(s.open, c)
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.ln.Close()
	s.mu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// sayWord returns a handler that sends a word. It keeps the connection open until the client ends
// the connection.
func sayWord(word string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		if _, err := io.WriteString(c, word+"\n"); err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// fleet is a load balancer with servers on instances i-000001, i-000002 and so on. All servers
// use the same port.
type fleet struct {
	cloud   *fakeCloud
	lb      cloudsim.LoadBalancer
	servers []*server
}

// newFleet makes n instances with servers, and a load balancer that is not in the cloud yet. It
// calls newHandler with each number from 1 to n to get the handlers of the servers.
func newFleet(t testing.TB, n int, newHandler func(n int) func(*net.TCPConn)) *fleet {
	t.Helper()
	f := &fleet{cloud: newMemory()}
	at := 0
	for i := range n {
		s := serve(t, instanceIP(), at, newHandler(i+1))
		at = s.port
		f.servers = append(f.servers, s)
		f.cloud.putInstance(instance(i+1), s.ip, cloudsim.InstanceRunning)
		f.lb.Targets = append(f.lb.Targets, cloudsim.Target{Instance: instance(i + 1)})
	}
	f.lb.ID, f.lb.IP = lbID, lbIP()
	f.lb.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: at}}
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 10}
	return f
}

// start adds the load balancer to the cloud, runs a data plane, and waits until all
// listeners accept connections and all targets are healthy.
func (f *fleet) start(t testing.TB, cfg dataplane.Config) (stop func()) {
	t.Helper()
	f.cloud.putLB(f.lb)
	stop = runDataplane(t, f.cloud, cfg)
	f.cloud.await(t, lbID, unreadyReason)
	return stop
}

func (f *fleet) address() string { return fmt.Sprintf("%s:%d", f.lb.IP, port) }

func instance(n int) cloudsim.InstanceID { return cloudsim.InstanceID(fmt.Sprintf("i-%06d", n)) }

func each(handle func(*net.TCPConn)) func(int) func(*net.TCPConn) {
	return func(int) func(*net.TCPConn) { return handle }
}

func sayName(n int) func(*net.TCPConn) { return sayWord(string(instance(n))) }

// testTimeout is the longest time that a test waits. It is long enough for a machine under load.
const testTimeout = 30 * time.Second

// client is a connection with a deadline of testTimeout for reads and writes.
type client struct {
	*net.TCPConn
	t testing.TB
}

func dial(t testing.TB, address string) client {
	t.Helper()
	c, refused := tryDial(t, address)
	if refused {
		t.Fatalf("connection to %s: got a reset", address)
	}
	return c
}

// tryDial dials an address. It returns true for refused if the peer reset the connection. Any other
// error ends the test.
func tryDial(t testing.TB, address string) (c client, refused bool) {
	t.Helper()
	nc, err := net.DialTimeout("tcp", address, testTimeout)
	if isReset(err) {
		return c, true
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return client{nc.(*net.TCPConn), t}, false
}

// line reads a line and returns it without its newline.
func (c client) line() string {
	c.t.Helper()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b...) {
		if _, err := io.ReadFull(c, b); err != nil {
			c.t.Fatalf("read after %q: got error %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
	}
}

func (c client) checkEcho() {
	c.t.Helper()
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		c.t.Fatal(err)
	}
	if got := c.line(); got != "ping" {
		c.t.Fatalf("got echo %q, want ping", got)
	}
}

// wasReset reads until the connection ends, and checks that it ends with a reset.
func (c client) wasReset() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c); !isReset(err) {
		c.t.Fatalf("read: got error %v, want a reset", err)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// ask connects, sends "ping", and returns the answer. If the connection was reset, refused is true.
func ask(t testing.TB, address string) (word string, refused bool) {
	t.Helper()
	c, refused := tryDial(t, address)
	if refused {
		return "", true
	}
	defer c.Close()
	var all []byte
	_, err := io.WriteString(c, "ping\n") // only the first call after a reset returns an error
	if err == nil {
		err = c.CloseWrite()
	}
	if err == nil {
		all, err = io.ReadAll(c)
	}
	if isReset(err) {
		return "", true
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(all)), false
}

func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil || isReset(err)
}
