package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	maxProbes    = 256      // at once, of all load balancers together, in fair portions
	maxProbeBody = 64 << 10 // bytes of an answer that are read before it is closed
)

// prober asks targets whether they are well. All load balancers share it.
type prober struct {
	slots ration // one per probe under way
	dials *dialPolicy
	http  *http.Transport
}

func newProber(most int, dials *dialPolicy) *prober {
	return &prober{
		slots: ration{free: most},
		dials: dials,
		http: &http.Transport{
			DialContext: (&net.Dialer{}).DialContext,
			TLSClientConfig: &tls.Config{
				MinVersion:         tls.VersionTLS12,
				InsecureSkipVerify: true, //nolint:gosec // a probe asks whether it answers, as real clouds do; it tells no secret
			},
			DisableKeepAlives:      true, // each probe proves that it can connect
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// run probes ip by check until ctx ends: once now and then on a fixed beat. A
// probe that takes longer than the interval makes the beat skip; probes of one
// target never overlap. It takes its slots from the load balancer's own: who has
// many targets that do not answer probes them late, and not those of others.
func (p *prober) run(ctx context.Context, own *portion, check cloudsim.HealthCheck, ip string, tell func(error)) {
	beat := time.NewTicker(check.Interval())
	defer beat.Stop()
	for {
		if !p.slots.take(ctx, own) {
			return
		}
		err := p.probe(ctx, check, ip)
		p.slots.give(own)
		tell(err)
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
	}
}

// probe asks once. Its error says what was asked and what came back, in the
// same words each time, because a new reason is news to report.
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
			return fmt.Errorf("GET %s: %s", url, why)
		}
		return nil
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("tcp %s: %s", address, why(ctx, err))
	}
	_ = c.Close()
	return nil
}

// get returns "" for an answer that check expects. It follows no redirect: where that
// leads is not the target.
func (p *prober) get(ctx context.Context, url string, check cloudsim.HealthCheck) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "not a URL"
	}
	req.Header.Set("User-Agent", "cloudsim-health-check")
	resp, err := p.http.RoundTrip(req)
	if err != nil {
		return why(ctx, err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxProbeBody) // closing with bytes unread would be a reset
	if !check.Expects(resp.StatusCode) {
		return fmt.Sprintf("answered %d, want %s", resp.StatusCode, check.ExpectedCodes)
	}
	return ""
}

// why is a probe's failure in words that do not change from one to the next.
func why(ctx context.Context, err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	var timeout net.Error
	switch {
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF):
		return "closed without an answer"
	}
	return "answered something other than HTTP"
}
