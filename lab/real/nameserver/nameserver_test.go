package nameserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// resolver starts a resolver at port 53 of a loopback address. Only root may use this port.
func resolver(t *testing.T, address string, answer func(network string, q *dns.Msg) *dns.Msg) {
	t.Helper()
	for _, network := range []string{"udp", "tcp"} {
		up := make(chan struct{})
		s := &dns.Server{Addr: address + ":53", Net: network, NotifyStartedFunc: func() { close(up) }}
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if a := answer(network, q); a != nil {
				_ = w.WriteMsg(a)
			}
		})
		failed := make(chan error, 1)
		go func() { failed <- s.ListenAndServe() }()
		select {
		case <-up:
		case err := <-failed:
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown(); <-failed })
	}
}

func namedAnswer(q *dns.Msg, text string) *dns.Msg {
	a := new(dns.Msg).SetReply(q)
	a.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1}, Txt: []string{text}}}
	return a
}

func newServer(t *testing.T, conf string) (address, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Server{Log: slog.New(slog.DiscardHandler), File: file, UDP: udp, TCP: tcp}.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return tcp.Addr().String(), file
}

// If a socket is closed before the server starts, Run returns an error and closes the other socket.
func TestRunWithClosedSocket(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := udp.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Server{Log: slog.New(slog.DiscardHandler), UDP: udp, TCP: tcp}.Run(t.Context()) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Run with a closed socket: got no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run with a closed socket does not return")
	}
	if err := tcp.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("TCP socket after Run: SetDeadline returned %v, want the error of a closed socket", err)
	}
}

func ask(t *testing.T, network, server string) *dns.Msg {
	t.Helper()
	q := new(dns.Msg).SetQuestion("name.example.", dns.TypeTXT)
	a, _, err := (&dns.Client{Net: network, Timeout: 10 * time.Second}).Exchange(q, server)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func text(a *dns.Msg) string {
	for _, r := range a.Answer {
		if r, ok := r.(*dns.TXT); ok {
			return strings.Join(r.Txt, "")
		}
	}
	return dns.RcodeToString[a.Rcode]
}

// The server forwards queries with the client's protocol, which is UDP or TCP. If a resolver fails,
// the server asks the next resolver. The server uses a changed resolv.conf at once.
func TestForward(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root, for port 53 of loopback addresses")
	}
	resolver(t, "127.53.0.1", func(network string, q *dns.Msg) *dns.Msg { return namedAnswer(q, "first "+network) })
	resolver(t, "127.53.0.2", func(network string, q *dns.Msg) *dns.Msg { return namedAnswer(q, "second "+network) })
	resolver(t, "127.53.0.3", func(_ string, q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure) })
	server, file := newServer(t, "nameserver 127.53.0.1\n")
	for _, step := range []struct{ conf, network, want string }{
		{"nameserver 127.53.0.1\n", "udp", "first udp"},
		{"nameserver 127.53.0.1\n", "tcp", "first tcp"},
		{"nameserver 127.53.0.2\nnameserver 127.53.0.1\n", "udp", "second udp"},
		{"nameserver 127.53.0.3\nnameserver 127.53.0.2\n", "udp", "second udp"},
		{"nameserver 127.53.0.9\nnameserver 127.53.0.2\n", "tcp", "second tcp"},
		{"nameserver 127.53.0.3\n", "udp", "SERVFAIL"},
		{"nameserver 127.53.0.9\n", "udp", "SERVFAIL"},
		{"search example\n", "udp", "SERVFAIL"},
	} {
		if err := os.WriteFile(file, []byte(step.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := text(ask(t, step.network, server)); got != step.want {
			t.Errorf("%q over %s: got %s, want %s", step.conf, step.network, got, step.want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := text(ask(t, "udp", server)); got != "SERVFAIL" {
		t.Errorf("without a file: got %s", got)
	}
}

// Queries beyond the limit get SERVFAIL at once, while all other queries still wait for an
// answer.
func TestQueryLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root, for port 53 of loopback addresses")
	}
	release := make(chan struct{})
	resolver(t, "127.53.0.4", func(_ string, q *dns.Msg) *dns.Msg {
		<-release
		return namedAnswer(q, "late")
	})
	server, _ := newServer(t, "nameserver 127.53.0.4\n")
	c, err := net.Dial("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := new(dns.Msg).SetQuestion("name.example.", dns.TypeTXT).Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn := &dns.Conn{Conn: c, UDPSize: dns.MaxMsgSize}
	refused := make(chan error, 1)
	go func() {
		a, err := conn.ReadMsg() // all resolvers wait, so the first answer is a refusal
		if err == nil && a.Rcode != dns.RcodeServerFailure {
			t.Errorf("answer beyond the limit: %v", a)
		}
		refused <- err
	}()
	for begin := time.Now(); ; {
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if err != nil || time.Since(begin) > askTimeout {
				t.Errorf("refusal of a query beyond the limit: got error %v after %s, want none and at most %s", err, time.Since(begin), askTimeout)
			}
			close(release)
			return
		default:
		}
	}
}

// TestLoadBalancers proves that the server itself answers queries for the host names of load
// balancers, and asks no resolver.
func TestLoadBalancers(t *testing.T) {
	server, _ := newServer(t, "")
	for _, tc := range []struct {
		name  string
		kind  uint16
		rcode int
		want  string
	}{
		{"shop-1.127-65-0-1.elb.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "127.65.0.1"},
		{"internal-Shop-1.10-0-0-9.ELB.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "10.0.0.9"},
		{"10-0-0-9.elb.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "10.0.0.9"},
		{"shop-1.127-65-0-1.elb.amazonaws.com.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"shop-1.elb.127-65-0-1.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "127.65.0.1"},
		{"shop-1.elb.127-65-0-1.amazonaws.com.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		// The following names are not host names of load balancers, so the server forwards the
		// queries. This test has no resolver, so the answer is an error.
		{"shop-1.127-65-0-256.elb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"127-65-0-1.shop-1.elb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"shop-1.us-east-1.elb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"shop-1.elb.us-east-1.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"elb.127-65-0-1.shop-1.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"shop-1.127-65-0-1.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"elb.elb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"elb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
		{"127-65-0-1.belb.amazonaws.com.", dns.TypeA, dns.RcodeServerFailure, ""},
	} {
		for _, network := range []string{"udp", "tcp"} {
			a, _, err := (&dns.Client{Net: network, Timeout: 10 * time.Second}).Exchange(new(dns.Msg).SetQuestion(tc.name, tc.kind), server)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(a.Answer) == 1 {
				got = a.Answer[0].(*dns.A).A.String()
			}
			if a.Rcode != tc.rcode || got != tc.want || len(a.Answer) > 1 {
				t.Errorf("%s %s over %s: got %s with answer %q, want %s with %q", dns.TypeToString[tc.kind], tc.name, network, dns.RcodeToString[a.Rcode], got, dns.RcodeToString[tc.rcode], tc.want)
			}
		}
	}
}
