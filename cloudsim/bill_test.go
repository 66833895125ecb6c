package cloudsim

import "testing"

// TestRateLimitsErrorOrder proves that an error about several invalid fields always names these
// fields in the same order.
func TestRateLimitsErrorOrder(t *testing.T) {
	limits := RateLimits{Read: Rate{Burst: -1}, Write: Rate{Burst: -1}}
	const want = "read.burst must be between 0 and a million, got -1; write.burst must be between 0 and a million, got -1"
	for range 50 {
		if err := limits.Validate(); err == nil || err.Error() != want {
			t.Fatalf("got error %v, want %q", err, want)
		}
	}
}
