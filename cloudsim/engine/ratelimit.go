package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// rateNotes stores the rate limits that an administrator has set. It stores all limits as one
// value, under the key rateKey.
var rateNotes = store.Notes[cloudsim.RateLimits]{Name: "rateLimits"}

const rateKey = "all"

// rates contains the limits in force, and the token buckets of callers and projects. The engine
// keeps the buckets only in memory, so after a restart all buckets are full.
type rates struct {
	limits atomic.Pointer[cloudsim.RateLimits] // nil if there are no limits

	loading sync.Mutex

	mu      sync.Mutex
	buckets map[bucketKey]*rate.Limiter
}

type bucketKey struct {
	token  cloudsim.TokenID
	caller string
	write  bool
	limit  cloudsim.Rate // part of the key, so that new limits begin with new buckets

	project cloudsim.ProjectID // only for the bucket of a project, which uses the machine's clock
}

// maxBuckets limits the memory for full buckets. If there are at least maxBuckets buckets,
// takeToken deletes full buckets before it adds a new bucket. The deletion of a full bucket has no
// effect on later calls, because a new bucket is also full. Buckets of callers use the cloud's
// clock, and buckets of projects use the machine's clock. takeToken gets the time of only one of
// these clocks, so it deletes only buckets that use this clock.
const maxBuckets = 10_000

func (ac *access) loadRates() error {
	ac.rates.loading.Lock() // a concurrent load must not put older limits in force
	defer ac.rates.loading.Unlock()
	limits := ac.cfg.RateLimits
	if err := limits.Validate(); err != nil {
		return err
	}
	if err := ac.store.View(func(tx *store.Tx) error {
		set, ok, err := rateNotes.Get(tx, rateKey)
		if ok {
			limits = set
		}
		return err
	}); err != nil {
		return err
	}
	ac.applyRates(limits)
	return nil
}

// applyRates puts limits in force. Each caller and each project begins with a full bucket.
func (ac *access) applyRates(limits cloudsim.RateLimits) {
	ac.rates.mu.Lock()
	defer ac.rates.mu.Unlock()
	ac.rates.buckets = map[bucketKey]*rate.Limiter{}
	if limits == (cloudsim.RateLimits{}) {
		ac.rates.limits.Store(nil)
		return
	}
	ac.rates.limits.Store(&limits)
}

// RateLimit is the state of a token bucket after a call.
type RateLimit struct {
	Limit     int       // size of the bucket in calls; 0 means that no rate limit applies
	Remaining int       // calls that the caller may make at once
	Reset     time.Time // time at which the bucket is full, on the cloud's clock
}

// throttle returns Exhausted with RetryAfter for a call that exceeds the rate limit of its caller
// or of its project. The caller's limit does not apply to calls of class Admin. The cloud's clock
// determines when the caller's bucket gets new tokens. While this clock is stopped, an empty bucket
// of a caller stays empty. If both limits apply, throttle stores in c.RateLimit the limit with
// fewer remaining calls.
func (ac *access) throttle(c *Call, class Access) error {
	if err := ac.throttleProject(c); err != nil {
		return err
	}
	limits := ac.rates.limits.Load()
	if limits == nil {
		return nil
	}
	if class == Admin {
		return nil // a low limit must not prevent the administrator from raising the limit
	}
	write := class != Read && class != Enter
	limit, word := limits.Read, "read"
	if write {
		limit, word = limits.Write, "write"
	}
	if limit.PerSecond == 0 {
		return nil
	}
	wait := ac.rates.takeToken(c, bucketKey{token: c.tokenOrAccount(), caller: c.Caller, write: write, limit: limit}, c.At)
	if wait == 0 {
		return nil
	}
	return &cloudsim.Error{
		Kind: cloudsim.Exhausted, RetryAfter: wait,
		Msg: c.caller() + " calls more often than its " + word + " rate limit allows; retry after " + wait.String() + ", or raise the limit: PUT /v1/rate-limits, or 'allinone cloud rate-limits set'",
	}
}

// throttleProject returns Exhausted with RetryAfter if the callers of a project together exceed the
// rate limit that the configuration sets for each project. This limit protects other projects, so
// it must also work while a user has stopped the cloud's clock. throttleProject therefore uses the
// machine's clock.
func (ac *access) throttleProject(c *Call) error {
	p, bound := c.boundTo()
	limit := ac.cfg.ProjectRate
	if !bound || limit.PerSecond == 0 {
		return nil
	}
	wait := ac.rates.takeToken(c, bucketKey{project: p, limit: limit}, time.Now())
	if wait == 0 {
		return nil
	}
	return &cloudsim.Error{
		Kind: cloudsim.Exhausted, RetryAfter: wait,
		Msg: fmt.Sprintf("the callers of project %s together call more often than the project's rate limit allows (%v calls per second, with bursts of %d calls); retry after %s. The operator can raise the limit: 'allinone cloudsim --project-rate-limit'", p, limit.PerSecond, limit.Burst, wait),
	}
}

// tokenOrAccount returns the id of the service account, or of the token if the caller is not a
// service account. The caller's rate limit applies to this id, so all tokens of a service account
// share one rate limit.
func (c Call) tokenOrAccount() cloudsim.TokenID {
	if c.account != "" {
		return cloudsim.TokenID(c.account)
	}
	return c.Token
}

// takeToken takes a token from a bucket and returns 0. If the bucket is empty, takeToken returns
// the time until the bucket has a token again. If c.RateLimit is empty or has more tokens than this
// bucket, takeToken stores the state of the bucket in c.RateLimit.
func (r *rates) takeToken(c *Call, key bucketKey, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[key]
	if b == nil {
		if len(r.buckets) >= maxBuckets {
			maps.DeleteFunc(r.buckets, func(k bucketKey, b *rate.Limiter) bool {
				return (k.project == "") == (key.project == "") && b.TokensAt(now) >= float64(b.Burst())
			})
		}
		b = rate.NewLimiter(rate.Limit(key.limit.PerSecond), key.limit.Burst)
		r.buckets[key] = b
	}
	taken := b.AllowN(now, 1)
	tokens := b.TokensAt(now)
	if remaining := int(tokens); c.RateLimit.Limit == 0 || remaining < c.RateLimit.Remaining {
		full := timeFor(float64(key.limit.Burst)-tokens, key.limit)
		c.RateLimit = RateLimit{Limit: key.limit.Burst, Remaining: remaining, Reset: c.At.Add(full)}
	}
	if taken {
		return 0
	}
	return timeFor(1-tokens, key.limit)
}

// timeFor returns the time that a bucket needs to get the given number of tokens. The result is at
// most 100 years.
func timeFor(tokens float64, limit cloudsim.Rate) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(math.Ceil(min(tokens/limit.PerSecond*float64(time.Second), float64(most))))
}

// GetRateLimits returns the limits in force.
func (ac *access) GetRateLimits(context.Context) (cloudsim.RateLimits, error) {
	if limits := ac.rates.limits.Load(); limits != nil {
		return *limits, nil
	}
	return cloudsim.RateLimits{}, nil
}

// SetRateLimits stores the limits and puts them in force. Each caller and each project begins with
// a full bucket.
func (ac *access) SetRateLimits(ctx context.Context, req cloudsim.RateLimits) (cloudsim.RateLimits, error) {
	if err := req.Validate(); err != nil {
		return req, err
	}
	if err := ac.update(ctx, func(tx *store.Tx, _ Call) error { return rateNotes.Put(tx, rateKey, req) }); err != nil {
		return req, err
	}
	return req, ac.loadRates()
}
