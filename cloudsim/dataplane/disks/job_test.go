package disks

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// TestReportResult proves that a copy job ends if its source is lost, even if the cloud already
// knows that the copy failed. After any other failure, the job tries again.
func TestReportResult(t *testing.T) {
	failed := errors.New("copy failed")
	k := &manager{log: slog.New(slog.DiscardHandler)}
	for _, test := range []struct {
		isKnown, isLost bool
		want            error
		reports         int
	}{
		{isKnown: false, isLost: false, want: failed, reports: 1},
		{isKnown: false, isLost: true, want: nil, reports: 1},
		{isKnown: true, isLost: false, want: failed, reports: 0},
		{isKnown: true, isLost: true, want: nil, reports: 0},
	} {
		reports := 0
		err := k.reportResult(context.Background(), "disk-000001", failed, test.isKnown, func() error { reports++; return nil }, test.isLost)
		if !errors.Is(err, test.want) || reports != test.reports {
			t.Errorf("known %t, lost %t: got error %v and %d reports, want %v and %d", test.isKnown, test.isLost, err, reports, test.want, test.reports)
		}
	}
}
