package store

import (
	"math"
	"time"
)

// Clock converts the machine's time to the cloud's time. When the machine's clock showed Machine,
// the cloud's clock showed Cloud. Since then, the cloud's clock has run Rate times as fast as the
// machine's clock. The zero Clock shows the machine's time.
//
// The store's file contains the clock, and each transaction reads the clock from
// this file. A restart therefore keeps the clock. The load of a saved state replaces
// the clock with the clock of that state.
type Clock struct {
	Machine, Cloud time.Time
	Rate           float64 // 0: the clock stands still
}

// lastTime is the latest time that a clock shows. At this time the clock stops. Without this limit,
// times in the due list would overflow in 2262, because the list stores them in nanoseconds.
var lastTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Real reports whether clock c shows the machine's time.
func (c Clock) Real() bool { return c == Clock{} }

// At converts a time of the machine's clock to the cloud's time.
func (c Clock) At(machine time.Time) time.Time {
	if c.Real() {
		return machine
	}
	passed := machine.Sub(c.Machine)
	if c.Rate != 1 { // rate 1 needs no float64 arithmetic, which would round
		passed = time.Duration(max(min(float64(passed)*c.Rate, math.MaxInt64/2), math.MinInt64/2))
	}
	if at := c.Cloud.Add(passed); at.Before(lastTime) {
		return at
	}
	return lastTime
}

// Takes returns how much time passes on the machine while d passes in the
// cloud. It returns MaxInt64 if the cloud's clock stands still.
func (c Clock) Takes(d time.Duration) time.Duration {
	switch {
	case c.Real() || c.Rate == 1:
		return d
	case c.Rate == 0:
		return math.MaxInt64
	}
	return time.Duration(min(math.Ceil(float64(d)/c.Rate), math.MaxInt64/2))
}

var keyClock = []byte("clock")

// Clock returns the clock that the store's file contains.
func (t *Tx) Clock() Clock {
	raw := t.read(bucketMeta).Get(keyClock)
	if len(raw) != 24 {
		return Clock{}
	}
	return Clock{
		Machine: time.Unix(0, int64(fromU64(raw))).UTC(),
		Cloud:   time.Unix(0, int64(fromU64(raw[8:]))).UTC(),
		Rate:    math.Float64frombits(fromU64(raw[16:])),
	}
}

// SetClock stores the clock in the store's file. It also sets Tx.Now to the time
// of this clock.
func (t *Tx) SetClock(c Clock) error {
	b, err := t.write(bucketMeta)
	if err != nil {
		return err
	}
	t.Now = c.At(t.Machine)
	if c.Real() {
		return b.Delete(keyClock)
	}
	raw := append(u64(uint64(c.Machine.UnixNano())), u64(uint64(c.Cloud.UnixNano()))...)
	return b.Put(keyClock, append(raw, u64(math.Float64bits(c.Rate))...))
}

// Time returns the cloud's time. Each call runs a transaction.
func (s *Store) Time() time.Time {
	now := s.Now().UTC().Round(0)
	_ = s.View(func(tx *Tx) error { now = tx.Now; return nil }) // if View fails, Time returns the machine's time
	return now
}
