package store

import (
	"math"
	"time"
)

// Clock says how the time of transactions follows the machine's: when the
// machine's clock showed Machine it was Cloud here, and since then time here
// passes Rate times as fast. The zero Clock is the machine's own time.
//
// It is in the file and read in every transaction, so there is no copy to keep
// up to date: a restart, and whatever replaces the file's contents, has the
// clock that belongs to it.
type Clock struct {
	Machine, Cloud time.Time
	Rate           float64 // 0 stands still
}

// lastTime is where every clock stops: the due list counts nanoseconds.
var lastTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Real reports whether c is the machine's own time.
func (c Clock) Real() bool { return c == Clock{} }

// At is the time here when the machine's clock shows machine.
func (c Clock) At(machine time.Time) time.Time {
	if c.Real() {
		return machine
	}
	passed := machine.Sub(c.Machine)
	if c.Rate != 1 { // one is exact, and long
		passed = time.Duration(max(min(float64(passed)*c.Rate, math.MaxInt64/2), math.MinInt64/2))
	}
	if at := c.Cloud.Add(passed); at.Before(lastTime) {
		return at
	}
	return lastTime
}

// Takes is how long the machine waits for d to pass here; for ever, on a clock
// that stands still, is MaxInt64.
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

// Clock is how time passes here.
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

// SetClock changes how time passes from this transaction on: its Now, too.
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

// Time is the time of a transaction that would begin now. It costs one.
func (s *Store) Time() time.Time {
	at := s.Now().UTC().Round(0)
	_ = s.View(func(tx *Tx) error { at = tx.Now; return nil }) // fails on a closed file only
	return at
}
