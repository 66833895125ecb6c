package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

const (
	reportDelay = 20 * time.Millisecond  // to gather what changes together: a new load balancer is healthy in its first report
	reportPause = 100 * time.Millisecond // between two reports, at least
	reportShare = 9                      // and this many times what the last one took, so that reports take a tenth of the time
)

// report tells the cloud what b found, until ctx ends: the first status, and
// each that differs from the last one told.
func (b *balancer) report(ctx context.Context) {
	again := pause.Backoff{First: reportPause, Most: 5 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		}
		pause.For(ctx, reportDelay)
		status, known := b.status()
		if known || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		err := b.cloud.ReportLoadBalancer(ctx, b.id, status)
		switch {
		case ctx.Err() != nil:
		case err == nil, errors.Is(err, cloudsim.NotFound): // deleted meanwhile: its event is on the way
			again.Reset()
			pause.For(ctx, max(reportPause, reportShare*time.Since(began)))
		default:
			if again.Fresh() {
				b.log.Warn("cannot report what the load balancer found; trying again", "error", err)
			}
			b.forgetReport()
			b.news()
			again.Wait(ctx)
		}
	}
}

// status is what b found: a status per socket and per target, in the order of
// the spec, and one per target that drains. known is true if the cloud was told just this; if not, the
// caller must tell, and b takes it as told.
func (b *balancer) status() (s cloudsim.LoadBalancerStatus, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, want := range b.cfg.socketsOf(b.lb) {
		ls := cloudsim.ListenerStatus{Protocol: want.l.protocol, Port: want.l.number, IP: want.key.ip}
		if open := b.sockets[want.key]; open != nil { // nil while an update closes it
			ls.Endpoint, ls.Error = open.endpoint, open.problem
		}
		s.Listeners = append(s.Listeners, ls)
	}
	s.Condition, s.Reason = conditionOf(s.Listeners)
	for _, t := range b.order {
		s.Targets = append(s.Targets, cloudsim.TargetStatus{
			Instance: t.key.Instance, IP: t.key.IP, Health: t.health, Reason: t.reason,
		})
	}
	for _, t := range b.leaving() {
		s.Targets = append(s.Targets, cloudsim.TargetStatus{
			Instance: t.key.Instance, IP: t.key.IP, Health: cloudsim.TargetDraining, Reason: "taken away; the connections that it has may end",
		})
	}
	if b.reported != nil && same(*b.reported, s) {
		return s, true
	}
	b.reported = &s
	return s, false
}

// leaving are the targets that left and still have connections, in an order
// that stays.
func (b *balancer) leaving() []*target {
	var all []*target
	for _, t := range b.targets {
		if !t.listed {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y *target) int { return x.key.Compare(y.key) })
	return all
}

// forgetReport notes that it is not known what the cloud was told.
func (b *balancer) forgetReport() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = nil
}

func same(a, b cloudsim.LoadBalancerStatus) bool {
	return a.Condition == b.Condition && a.Reason == b.Reason &&
		slices.Equal(a.Listeners, b.Listeners) && slices.Equal(a.Targets, b.Targets)
}

// conditionOf sums up sockets: all are where they should be, or some, or none.
// The reason is that of the first that is not. It is "" while none has been
// tried.
func conditionOf(sockets []cloudsim.ListenerStatus) (c cloudsim.LoadBalancerCondition, reason string) {
	open, well, known := 0, 0, 0
	for _, s := range sockets {
		if s.Endpoint != "" || s.Error != "" {
			known++
		}
		if s.Endpoint != "" {
			open++
		}
		if s.Endpoint != "" && s.Error == "" {
			well++
		}
		if s.Error != "" && reason == "" {
			reason = fmt.Sprintf("%s/%d on %s: %s", s.Protocol, s.Port, s.IP, s.Error)
		}
	}
	switch {
	case known < len(sockets):
		return "", ""
	case well == len(sockets):
		return cloudsim.LoadBalancerWorking, ""
	case open == 0:
		return cloudsim.LoadBalancerFailed, reason
	}
	return cloudsim.LoadBalancerDegraded, reason
}
