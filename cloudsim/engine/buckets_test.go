package engine

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestFullBucketsOfOneClock adds a rate limit bucket when the number of buckets is at its maximum.
// It proves that takeToken then deletes only full buckets that use the same clock as the new
// bucket. Buckets of projects use the machine's clock, and all other buckets use the cloud's clock.
// The cloud's clock can be years ahead of the machine's clock. If takeToken used the cloud's clock
// for the bucket of a project, even an empty bucket would count as full.
func TestFullBucketsOfOneClock(t *testing.T) {
	machine := time.Now()
	cloud := machine.AddDate(10, 0, 0)
	limit := cloudsim.Rate{PerSecond: 1, Burst: 1}
	r := rates{buckets: map[bucketKey]*rate.Limiter{}}
	project := bucketKey{project: "prj-000001", limit: limit}
	if wait := r.takeToken(&Call{At: cloud}, project, machine); wait != 0 {
		t.Fatalf("first call of a project: got wait %s, want none", wait)
	}
	for n := len(r.buckets); n < maxBuckets; n++ {
		r.takeToken(&Call{At: cloud}, bucketKey{caller: fmt.Sprint(n), limit: limit}, cloud.Add(-time.Hour))
	}
	r.takeToken(&Call{At: cloud}, bucketKey{caller: "new", limit: limit}, cloud)
	if n := len(r.buckets); n != 2 {
		t.Errorf("got %d buckets, want 2: that of the project and the new one", n)
	}
	if wait := r.takeToken(&Call{At: cloud}, project, machine); wait != time.Second {
		t.Errorf("second call of the project: got wait %s, want 1 s", wait)
	}
}
