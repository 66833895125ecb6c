package engine

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// rateNotes keeps the limits that a person set, under one key.
var rateNotes = store.Notes[cloudsim.RateLimits]{Name: "rateLimits"}

const rateKey = "all"

// rates are the limits in force and what each caller has left.
type rates struct {
	limits atomic.Pointer[cloudsim.RateLimits] // nil for none: no call pays for what is off

	loading sync.Mutex

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

type bucketKey struct {
	token  cloudsim.TokenID
	caller string
	write  bool
}

// bucket is a token bucket: left tokens at a time.
type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets bounds the memory of callers; then those that rested are dropped.
const maxBuckets = 10_000

func (e *Engine) loadRates() error {
	e.rates.loading.Lock() // what is read last is what holds
	defer e.rates.loading.Unlock()
	limits := e.cfg.RateLimits
	if err := limits.Validate(); err != nil {
		return err
	}
	if err := e.store.View(func(tx *store.Tx) error {
		set, ok, err := rateNotes.Get(tx, rateKey)
		if ok {
			limits = set
		}
		return err
	}); err != nil {
		return err
	}
	e.applyRates(limits)
	return nil
}

// applyRates puts limits in force: everybody begins with a full bucket.
func (e *Engine) applyRates(limits cloudsim.RateLimits) {
	e.rates.mu.Lock()
	defer e.rates.mu.Unlock()
	e.rates.buckets = map[bucketKey]*bucket{}
	if limits == (cloudsim.RateLimits{}) {
		e.rates.limits.Store(nil)
		return
	}
	e.rates.limits.Store(&limits)
}

// throttle refuses, as Exhausted with RetryAfter, a call that comes too soon
// after its caller's others. Time is the cloud's: who froze the clock waits
// for somebody to advance it.
func (e *Engine) throttle(c Call, class Access) error {
	limits := e.rates.limits.Load()
	if limits == nil {
		return nil
	}
	if class == Admin {
		return nil // who sets the limits must get through
	}
	write := class != Read && class != Enter
	rate, word := limits.Read, "read"
	if write {
		rate, word = limits.Write, "write"
	}
	if rate.PerSecond == 0 {
		return nil
	}
	wait := e.rates.take(bucketKey{c.tokenOrAccount(), c.Caller, write}, rate, c.At)
	if wait == 0 {
		return nil
	}
	return &cloudsim.Error{
		Kind: cloudsim.Exhausted, RetryAfter: wait,
		Msg: c.who() + " calls more often than its " + word + " rate limit allows; retry after " + wait.String() + ", or raise it: PUT /v1/rate-limits, or 'allinone cloud rate-limits set'",
	}
}

// tokenOrAccount is whose bucket a call draws from: all tokens of a service
// account share one.
func (c Call) tokenOrAccount() cloudsim.TokenID {
	if c.account != "" {
		return cloudsim.TokenID(c.account)
	}
	return c.Token
}

// take takes a token, or says how long until there is one.
func (r *rates) take(key bucketKey, rate cloudsim.Rate, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[key]
	if b == nil {
		if len(r.buckets) >= maxBuckets {
			r.forget(rate, now)
		}
		b = &bucket{left: float64(rate.Burst), at: now}
		r.buckets[key] = b
	}
	b.left = min(float64(rate.Burst), b.left+max(0, now.Sub(b.at).Seconds())*rate.PerSecond)
	b.at = now
	if b.left >= 1 {
		b.left--
		return 0
	}
	return time.Duration(math.Ceil((1 - b.left) / rate.PerSecond * float64(time.Second)))
}

// forget drops the buckets that are full again.
func (r *rates) forget(rate cloudsim.Rate, now time.Time) {
	for key, b := range r.buckets {
		if b.left+now.Sub(b.at).Seconds()*rate.PerSecond >= float64(rate.Burst) {
			delete(r.buckets, key)
		}
	}
}

// GetRateLimits returns the limits in force.
func (e *Engine) GetRateLimits(context.Context) (cloudsim.RateLimits, error) {
	if limits := e.rates.limits.Load(); limits != nil {
		return *limits, nil
	}
	return cloudsim.RateLimits{}, nil
}

// SetRateLimits changes the limits, durably. Everybody begins with a full
// bucket.
func (e *Engine) SetRateLimits(ctx context.Context, req cloudsim.RateLimits) (cloudsim.RateLimits, error) {
	if err := req.Validate(); err != nil {
		return req, err
	}
	if err := e.update(ctx, func(tx *store.Tx, _ Call) error { return rateNotes.Put(tx, rateKey, req) }); err != nil {
		return req, err
	}
	return req, e.loadRates()
}
