package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

const (
	reportDelay = 20 * time.Millisecond  // time for which a report waits for further changes, so that the first report can show healthy targets
	reportPause = 100 * time.Millisecond // minimum pause between two reports
	reportShare = 9                      // the pause is at least this many times the duration of the last report
)

// report sends the status of b to the cloud until ctx ends. It sends the present status if the
// status differs from the last sent status, or if the status in the cloud is unknown. It pauses
// between two reports. If the status changes several times during a pause, report sends only the
// last of these statuses.
func (b *balancer) report(ctx context.Context) {
	retry := backoff.Backoff{First: reportPause, Most: 5 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		}
		backoff.Sleep(ctx, reportDelay)
		status, known := b.status()
		if known || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		err := b.cloud.ReportLoadBalancer(ctx, b.id, status)
		switch {
		case ctx.Err() != nil:
		case err == nil, errors.Is(err, cloudsim.NotFound): // NotFound: the load balancer was deleted, and the event of the deletion follows
			retry.Reset()
			backoff.Sleep(ctx, max(reportPause, reportShare*time.Since(began)))
		default:
			if retry.Fresh() {
				b.log.Warn("status of the load balancer not reported; retrying", "error", err)
			}
			b.forgetReport()
			b.notifyReporter()
			retry.Wait(ctx)
		}
	}
}

// status returns the status of b. The status has an entry for each socket and each target, in the
// order of the spec. It also has an entry for each draining target. If the second result is true,
// the cloud already has this status. Otherwise the caller must report the status to the cloud. If
// the report fails, the caller must call forgetReport, because the next call of the method status
// assumes that the cloud has the status.
func (b *balancer) status() (s cloudsim.LoadBalancerStatus, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, want := range b.cfg.socketsOf(b.lb) {
		ls := cloudsim.ListenerStatus{Protocol: want.l.protocol, Port: want.l.number, IP: want.key.ip}
		if open := b.sockets[want.key]; open != nil { // nil while an update replaces the socket
			ls.Endpoint, ls.Error = open.endpoint, open.problem
		}
		s.Listeners = append(s.Listeners, ls)
	}
	s.Condition, s.Reason = conditionOf(s.Listeners)
	for _, t := range b.order {
		s.Targets = append(s.Targets, cloudsim.TargetStatus{
			Instance: t.key.Instance, IP: t.key.IP, Listener: t.key.Listener, Health: t.health, Reason: t.reason,
		})
	}
	for _, t := range b.drainingTargets() {
		if t.draining == 0 { // no connection drains: for example, the listener now uses another pool, which contains the same target
			continue
		}
		s.Targets = append(s.Targets, cloudsim.TargetStatus{
			Instance: t.key.Instance, IP: t.key.IP, Listener: t.key.Listener, Health: cloudsim.TargetDraining, Reason: "removed from the load balancer; its open connections may finish within the drain timeout",
		})
	}
	if b.reported != nil && same(*b.reported, s) {
		return s, true
	}
	b.reported = &s
	return s, false
}

// drainingTargets returns the removed targets that still have connections, in a stable order.
func (b *balancer) drainingTargets() []*target {
	var all []*target
	for _, t := range b.targets {
		if !t.listed {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y *target) int { return x.key.Compare(y.key) })
	return all
}

// forgetReport records that the status in the cloud is unknown. The next call of
// the method status then returns false as its second result.
func (b *balancer) forgetReport() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = nil
}

func same(a, b cloudsim.LoadBalancerStatus) bool {
	return a.Condition == b.Condition && a.Reason == b.Reason &&
		slices.Equal(a.Listeners, b.Listeners) && slices.Equal(a.Targets, b.Targets)
}

// conditionOf returns the condition of a load balancer. If there are no sockets, or if the
// data plane has not yet tried to open one of the sockets, the condition is "". If all sockets are
// open at their configured ports, it is "working". If no socket is open, it is "failed". In all
// other cases, it is "degraded". The reason is the error of the first faulty socket.
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
	case len(sockets) == 0, known < len(sockets):
		return "", ""
	case well == len(sockets):
		return cloudsim.LoadBalancerWorking, ""
	case open == 0:
		return cloudsim.LoadBalancerFailed, reason
	}
	return cloudsim.LoadBalancerDegraded, reason
}
