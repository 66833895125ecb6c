package cloudsim_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// FuzzFault calls the methods of valid faults with arbitrary calls and times. It proves
// that the delay of a call never exceeds the sum of latency and jitter, and that a fault is
// inactive after its last hit.
func FuzzFault(f *testing.F) {
	for _, s := range []string{
		`{"name":"f","match":{"operation":"instances.*"},"effect":{"type":"loseReply"}}`,
		`{"name":"f","match":{"operation":"*"},"when":{"probability":0.3,"seed":7,"skip":2,"max":3,"afterSeconds":5,"forSeconds":9},"effect":{"type":"latency","latencyMillis":600000,"jitterMillis":600000}}`,
		`{"name":"f","match":{"operation":"a.[","labels":{"":"x"}},"effect":{"type":"error","kind":"gone","status":599}}`,
		`{"name":"f","match":{"operation":"*.create"},"when":{"probability":1e-320,"from":"9999-12-31T23:59:59Z","until":"0001-01-01T00:00:00Z"},"effect":{"type":"throttle","retryAfterSeconds":-1}}`,
	} {
		f.Add([]byte(s), uint64(3), "instances.create", int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, raw []byte, n uint64, operation string, at int64) {
		var req cloudsim.CreateFault
		check[cloudsim.CreateFault](t, raw)
		if json.Unmarshal(raw, &req) != nil || req.Validate() != nil {
			return
		}
		v := cloudsim.Fault{ID: "fault-000001", FaultSpec: req.FaultSpec}
		_ = v.Match.Covers(operation)
		if hit := v.Strikes(n); hit != v.Strikes(n) {
			t.Errorf("fault %s: Strikes(%d) returned true and false", raw, n)
		}
		if d, most := v.Latency(n), time.Duration(v.Effect.LatencyMillis+v.Effect.JitterMillis)*time.Millisecond; d < 0 || d > most {
			t.Errorf("fault %s: got delay %s, want 0s to %s", raw, d, most)
		}
		if v.Hits = v.When.Max; v.When.Max != 0 && v.ActiveAt(time.Unix(at%(1<<40), 0)) {
			t.Errorf("fault %s: active after its last hit", raw)
		}
	})
}
