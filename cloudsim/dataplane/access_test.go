package dataplane_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// If a client's address is in no source range, the data plane refuses the client at once and
// counts the refusal. A change of the source ranges cuts only the connections of clients that
// the new ranges exclude.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	udpStop, at := udpServer(t, f.servers[0].ip, 0, "u")
	defer udpStop()
	f.lb.Listeners = append(f.lb.Listeners, cloudsim.Listener{Protocol: cloudsim.UDP, Port: port, TargetPort: at})
	f.lb.SourceRanges = []string{"127.0.0.9/32", "fd00::/8", "127.0.1.7/24"} // host bits do not matter
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	from := func(ip string) *net.Dialer { return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}} }
	talk := func(ip string) bool {
		c, err := from(ip).Dial("tcp", f.address())
		if err != nil {
			if isReset(err) {
				return false
			}
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		if _, err = io.WriteString(c, "x"); err == nil { // only the first call after a reset returns an error
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil && !isReset(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	for ip, in := range map[string]bool{"127.0.0.9": true, "127.0.0.8": false, "127.0.1.200": true, "127.0.2.1": false} {
		if talk(ip) != in {
			t.Errorf("client %s accepted: %v, want %v", ip, !in, in)
		}
	}
	if answer := dialUDP(t, f.address()).tryAsk("x"); answer != "" {
		t.Error("a datagram of the excluded client 127.0.0.1 got an answer")
	}
	s, _ := counters.LoadBalancerStats(lbID)
	if s.Listeners[0].Refused.SourceRange != 2 || s.Listeners[1].Refused.SourceRange != 1 {
		t.Errorf("refused clients: got %+v, want 2 and 1", s.Listeners)
	}
	enter := func(ip string) (client, udpClient) {
		tcp, err := from(ip).Dial("tcp", f.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tcp.Close() })
		_ = tcp.SetDeadline(time.Now().Add(testTimeout))
		udp, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(ip)}}).Dial("udp", f.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { udp.Close() })
		c, flow := client{tcp.(*net.TCPConn), t}, udpClient{udp.(*net.UDPConn), t}
		c.checkEcho()
		flow.ask("x")
		return c, flow
	}
	expelled, expelledFlow := enter("127.0.0.9")
	kept, keptFlow := enter("127.0.1.7")
	f.lb.SourceRanges = []string{"127.0.2.0/24", "127.0.1.7/32"}
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		if talk("127.0.0.9") || !talk("127.0.2.1") {
			return "the new ranges are not in force"
		}
		return ""
	})
	expelled.wasReset()
	if answer := expelledFlow.tryAsk("y"); answer != "" {
		t.Errorf("flow of an excluded client: got an answer of %s, want none", answer)
	}
	kept.checkEcho()
	keptFlow.ask("y")
	s, _ = counters.LoadBalancerStats(lbID)
	if n := s.Listeners[1].Accepted - s.Listeners[1].Refused.SourceRange; n != 2 {
		t.Errorf("got %d accepted flows, want 2", n)
	}
	f.lb.SourceRanges = nil
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		if !talk("127.0.0.9") {
			return "a client was refused although the load balancer has no source ranges"
		}
		return ""
	})
}

// An invalid source range contains no clients. If all source ranges are invalid, the data plane
// refuses each client.
func TestInvalidSourceRanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, sayName)
	f.lb.SourceRanges = []string{"127.0.0.1"}
	f.start(t, dataplane.Config{})
	if word, refused := ask(t, f.address()); !refused {
		t.Errorf("got answer %q, want a refusal", word)
	}
}

// Targets get the PROXY header before the client's first byte. The header
// contains the address of the client and the address to which the client
// connected. Probes send no header.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	for _, version := range []cloudsim.ProxyProtocol{cloudsim.ProxyV1, cloudsim.ProxyV2} {
		headers := make(chan []byte, 100)
		f := newFleet(t, 1, each(func(c *net.TCPConn) {
			b := make([]byte, 28)
			n, _ := io.ReadFull(c, b[:16])
			if n < 16 {
				return // a probe
			}
			if bytes.HasPrefix(b, []byte("PROXY")) {
				line, _ := bufio.NewReader(io.MultiReader(bytes.NewReader(b[:16]), c)).ReadBytes('\n')
				headers <- line
			} else if _, err := io.ReadFull(c, b[16:]); err == nil {
				headers <- b
			}
			echo(c)
		}))
		f.lb.Listeners[0].ProxyProtocol = version
		f.start(t, dataplane.Config{})
		c := dial(t, f.address())
		me := c.LocalAddr().(*net.TCPAddr).AddrPort()
		want := fmt.Appendf(nil, "PROXY TCP4 %s %s %d %d\r\n", me.Addr(), f.lb.IP, me.Port(), port)
		if version == cloudsim.ProxyV2 {
			want = []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c")
			want = append(append(want, me.Addr().AsSlice()...), netip.MustParseAddr(f.lb.IP).AsSlice()...)
			want = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(want, me.Port()), port)
		}
		if d := cmp.Diff(want, <-headers); d != "" {
			t.Errorf("addresses of %s differ: %s", version, d)
		}
		if version == cloudsim.ProxyV2 {
			c.checkEcho()
		}
	}
}

// A load balancer with an IPv4 and an IPv6 address forwards clients of both addresses to a target
// that has only an IPv4 address. If the data plane cannot listen on one of the addresses, the other
// address still works. The status of the load balancer then contains the reason and advice.
func TestDualStack(t *testing.T) {
	t.Parallel()
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("IPv6 is not available: ", err)
	} else {
		ln.Close()
	}
	f := newFleet(t, 1, sayName)
	spare := serve(t, "::1", 0, sayName(9)) // only to find a free port of ::1
	spare.close()
	f.lb.Listeners[0].Port = spare.port
	f.lb.Addresses = []cloudsim.LoadBalancerAddress{{Family: cloudsim.IPv4, IP: f.lb.IP}, {Family: cloudsim.IPv6, IP: "::1"}}
	f.start(t, dataplane.Config{})
	for _, ip := range []string{f.lb.IP, "::1"} {
		if word, refused := ask(t, net.JoinHostPort(ip, fmt.Sprint(spare.port))); word != "i-000001" {
			t.Errorf("address %s: got answer %q, refused %v; want i-000001", ip, word, refused)
		}
	}
	open := dial(t, net.JoinHostPort(f.lb.IP, fmt.Sprint(spare.port)))
	open.line()
	f.lb.Addresses[1].IP = "2001:db8::7"
	f.cloud.putLB(f.lb)
	s := f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		if s.Condition != cloudsim.LoadBalancerDegraded {
			return "want condition degraded"
		}
		return ""
	})
	if s.Listeners[0].Error != "" || !strings.Contains(s.Listeners[1].Error, "ip route add local 2001:db8::7 dev lo") || !strings.Contains(s.Reason, s.Listeners[1].Error) {
		t.Errorf("status: got %+v, want an error with the ip command for the second address and no error for the first", s)
	}
	if _, err := open.Write([]byte("x")); err != nil {
		t.Errorf("connection on the first address: got error %v", err)
	}
}

// A client that connects to a published port reaches the listener of this port. If the data plane
// cannot open the port, the load balancer has the condition "degraded".
func TestPublishedPort(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, sayName)
	host := lbIP()
	taken := serve(t, host, 0, sayName(9))
	f.lb.Published = []cloudsim.PublishedPort{{Protocol: cloudsim.TCP, Port: port, Host: "192.0.2.1", PublishedPort: taken.port}}
	f.cloud.putLB(f.lb)
	runDataplane(t, f.cloud, dataplane.Config{PublishedBind: host})
	condition := func(want cloudsim.LoadBalancerCondition) cloudsim.LoadBalancerStatus {
		return f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
			if s.Condition != want {
				return "want condition " + string(want)
			}
			return ""
		})
	}
	condition(cloudsim.LoadBalancerDegraded)
	taken.close()
	s := condition(cloudsim.LoadBalancerWorking)
	want := cloudsim.ListenerStatus{Protocol: cloudsim.TCP, Port: port, IP: "192.0.2.1", Endpoint: fmt.Sprintf("192.0.2.1:%d", taken.port)}
	if d := cmp.Diff(want, s.Listeners[1]); d != "" {
		t.Error(d)
	}
	f.cloud.await(t, lbID, unreadyReason)
	if word, _ := ask(t, fmt.Sprintf("%s:%d", host, taken.port)); word != "i-000001" {
		t.Errorf("published port: got answer %q, want i-000001", word)
	}
}

// With affinity, a client keeps its target even if another target has fewer connections.
func TestClientAffinity(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, sayName)
	f.lb.Affinity = cloudsim.AffinityClientIP
	f.start(t, dataplane.Config{})
	first := dial(t, f.address())
	answer := first.line()
	for range 5 {
		if word, _ := ask(t, f.address()); word != answer {
			t.Fatalf("got answers of %s and %s, want the same target", answer, word)
		}
	}
	f.lb.Affinity = cloudsim.AffinityNone
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		if word, _ := ask(t, f.address()); word == answer {
			return "all requests go to " + answer
		}
		return ""
	})
}
