package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	maxProbes    = 256      // maximum number of concurrent probes of all load balancers, shared fairly
	maxProbeBody = 64 << 10 // maximum number of bytes that a probe reads from an answer's body
)

// prober runs the health checks of targets. All load balancers share one
// prober.
type prober struct {
	slots probeSlots // one slot per running probe
	dials *dialPolicy
	http  *http.Transport
}

func newProber(most int, dials *dialPolicy) *prober {
	return &prober{
		slots: probeSlots{free: most},
		dials: dials,
		http: &http.Transport{
			DialContext: (&net.Dialer{}).DialContext,
			TLSClientConfig: &tls.Config{
				MinVersion:         tls.VersionTLS12,
				InsecureSkipVerify: true, //nolint:gosec // a probe sends no secret, and real clouds do not verify either
			},
			DisableKeepAlives:      true, // each probe proves that a new connection works
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// repeatCheck repeats the health check of the address ip until ctx ends. It calls tellResult with
// the result of each probe. The first probe starts immediately, and the next probes start at a
// fixed interval. A probe that takes longer than the interval delays the next probe, so probes of
// one target never overlap.
//
// Before each probe, repeatCheck waits for a slot of p.slots. The load balancers share these slots
// fairly. So if many targets of a load balancer do not answer, only the probes of this load
// balancer are late.
func (p *prober) repeatCheck(ctx context.Context, share *probeShare, check cloudsim.HealthCheck, ip string, tellResult func(error)) {
	beat := time.NewTicker(check.Interval())
	defer beat.Stop()
	for {
		if !p.slots.takeSlot(ctx, share) {
			return
		}
		err := p.probe(ctx, check, ip)
		p.slots.giveSlot(share)
		tellResult(err)
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
	}
}

// probe runs the check once. It returns nil if the target is healthy, or if the check has the
// protocol HealthNone. The error contains the request and the reason of the failure. The same
// failure always has the same text. Otherwise the balancer would report each repetition of a
// failure to the cloud.
func (p *prober) probe(ctx context.Context, check cloudsim.HealthCheck, ip string) error {
	if check.Protocol == cloudsim.HealthNone {
		return nil
	}
	to := addrPort(ip, check.Port)
	if err := p.dials.check(to.Addr()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, check.Timeout())
	defer cancel()
	address := to.String()
	if check.Protocol != cloudsim.HealthTCP {
		url := string(check.Protocol) + "://" + address + check.Path
		if why := p.get(ctx, url, check); why != "" {
			return fmt.Errorf("GET %s: %s", clipURL(url), why)
		}
		return nil
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("tcp %s: %s", address, failureReason(ctx, err, check.Protocol))
	}
	_ = c.Close()
	return nil
}

// clipURL shortens a long URL, because the status of each target contains it.
func clipURL(url string) string {
	if len(url) > 200 {
		return strings.ToValidUTF8(url[:200], "") + "…"
	}
	return url
}

// get sends an HTTP request. If the health check accepts the status code of the answer, get returns
// "". Otherwise get returns the reason why the target is not healthy. It follows no redirect,
// because a redirect can lead to another host than the target.
func (p *prober) get(ctx context.Context, url string, check cloudsim.HealthCheck) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "not a URL"
	}
	req.Header.Set("User-Agent", "cloudsim-health-check")
	resp, err := p.http.RoundTrip(req)
	if err != nil {
		return failureReason(ctx, err, check.Protocol)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxProbeBody) // closing with unread bytes would reset the connection
	if !check.Expects(resp.StatusCode) {
		return fmt.Sprintf("answered %d, want %s", resp.StatusCode, check.ExpectedCodes)
	}
	return ""
}

// failureReason returns the reason of a failed probe. It returns the same text for equal
// failures.
func failureReason(ctx context.Context, err error, protocol cloudsim.HealthProtocol) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	var timeout net.Error
	switch {
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF):
		return "connection closed without an answer"
	case protocol == cloudsim.HealthHTTPS:
		return "the TLS handshake failed, or the answer was not HTTP"
	}
	return "answered something other than HTTP"
}
