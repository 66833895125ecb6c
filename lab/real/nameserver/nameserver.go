// Package nameserver is a name server for the machines of a lab. It answers queries for host names
// of load balancers (see Domain). It forwards all other queries to the resolvers of the host and
// returns their answers. It has no cache.
package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Limits of a server. Queries beyond maxQueries get the answer SERVFAIL. TCP connections beyond
// maxConnections wait until other connections end.
const (
	maxQueries     = 512             // queries that wait for a resolver at the same time
	maxConnections = 256             // TCP connections
	maxResolvers   = 3               // resolvers that the server asks, as in resolv.conf(5)
	askTimeout     = 2 * time.Second // time limit for the answer of one resolver
	idleTimeout    = 8 * time.Second // time limit for the next query of a TCP connection
)

// Domain is the domain of the host names of load balancers. Only the server for AWS's API (the
// dialect aws) gives host names to load balancers. Each host name contains an IPv4 address. For
// example, shop-1.127-65-0-1.elb.amazonaws.com and shop-1.elb.127-65-0-1.amazonaws.com have the
// address 127.65.0.1.
const Domain = "amazonaws.com."

// Server forwards queries to the resolvers in a file with the format of resolv.conf(5).
type Server struct {
	Log *slog.Logger
	// File is the path of the file. The server reads it for each query, so a change of the
	// host's resolvers takes effect at once.
	File string
	// UDP and TCP are the sockets of the server. Run closes them.
	UDP net.PacketConn
	TCP net.Listener
}

// Run answers queries until ctx ends. It returns an error only if a socket fails.
func (s Server) Run(ctx context.Context) error {
	defer func() { _ = s.UDP.Close() }() // for a server that does not start
	defer s.TCP.Close()
	slots := make(chan struct{}, maxQueries)
	work, ctx := errgroup.WithContext(ctx)
	for network, server := range map[string]*dns.Server{
		"udp": {PacketConn: s.UDP},
		"tcp": {Listener: netutil.LimitListener(s.TCP, maxConnections)},
	} {
		server.ReadTimeout, server.WriteTimeout = askTimeout, askTimeout
		server.IdleTimeout = func() time.Duration { return idleTimeout }
		server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
			_ = w.WriteMsg(s.answer(ctx, slots, network, query)) // if this write fails, the client gets no answer and repeats the query
		})
		started, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		work.Go(func() error {
			defer close(ended)
			return server.ActivateAndServe()
		})
		work.Go(func() error {
			<-ctx.Done()
			select {
			case <-started:
			case <-ended:
				return nil
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := server.ShutdownContext(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
	}
	return work.Wait()
}

// answer returns the answer to a query. If no resolver answers, or if too many queries wait
// for an answer, it returns SERVFAIL.
func (s Server) answer(ctx context.Context, slots chan struct{}, network string, query *dns.Msg) *dns.Msg {
	if answer := fromName(query); answer != nil {
		return answer
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		answer, err := s.ask(ctx, network, query)
		if err == nil {
			return answer
		}
		s.Log.Debug("name not resolved", "err", err)
	default:
	}
	return new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
}

// fromName returns the answer to a query for the host name of a load balancer. In this host name,
// the last two labels before Domain are an address and the label "elb", in any order. fromName
// returns nil for all other queries. The server forwards these queries, because real load balancers
// of AWS are in the same domain.
func fromName(query *dns.Msg) *dns.Msg {
	if len(query.Question) != 1 {
		return nil
	}
	q := query.Question[0]
	name, ok := strings.CutSuffix(strings.ToLower(q.Name), "."+Domain)
	labels := strings.Split(name, ".")
	if !ok || len(labels) < 2 {
		return nil
	}
	address, last := labels[len(labels)-2], labels[len(labels)-1]
	if address == "elb" { // a network load balancer
		address, last = last, address
	}
	if last != "elb" {
		return nil
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(address, "-", "."))
	if err != nil || !ip.Is4() {
		return nil
	}
	answer := new(dns.Msg).SetReply(query)
	if q.Qtype == dns.TypeA {
		answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: ip.AsSlice()}}
	}
	return answer
}

// ask sends a query to one resolver after another until a resolver answers. It uses the protocol of
// the client (UDP or TCP), so that the answer is not larger than the client can receive.
func (s Server) ask(ctx context.Context, network string, query *dns.Msg) (answer *dns.Msg, err error) {
	conf, err := dns.ClientConfigFromFile(s.File)
	if err != nil {
		return nil, err
	}
	if len(conf.Servers) == 0 {
		return nil, fmt.Errorf("%s contains no name server", s.File)
	}
	client := dns.Client{Net: network, Timeout: askTimeout, UDPSize: dns.MaxMsgSize}
	for _, resolver := range conf.Servers[:min(len(conf.Servers), maxResolvers)] {
		answer, _, err = client.ExchangeContext(ctx, query, net.JoinHostPort(resolver, conf.Port))
		if err == nil && answer.Rcode != dns.RcodeServerFailure {
			return answer, nil
		}
	}
	return answer, err
}
