//go:build !linux

package dataplane

import (
	"log/slog"
	"net/netip"
	"syscall"
)

// claimRanges logs a warning for each range that is not a loopback range. It cannot
// claim a range, because on this system an address is local only if an
// interface has this address.
func claimRanges(log *slog.Logger, ranges []netip.Prefix) (release func(), err error) {
	for _, p := range ranges {
		if !p.Addr().IsLoopback() {
			log.Warn("ranges of addresses can be claimed on Linux only", "range", p.String())
		}
	}
	return func() {}, nil
}

func isLocal(string) bool { return false }

func freebind(string, string, syscall.RawConn) error { return nil }
