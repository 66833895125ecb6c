// Package client calls a cloud. Its methods and errors are the engine's:
// errors.Is(err, cloudsim.NotFound) means the same on both sides of the wire.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TokenSource returns the bearer token to call with. It is asked for every
// call, so that a rotated token is used without a restart.
type TokenSource func() (string, error)

// StaticToken is a token that does not change.
func StaticToken(secret string) TokenSource {
	return func() (string, error) { return secret, nil }
}

// Client calls the cloud at URL. It dials when it is first used. A Client may
// be copied, and used by many goroutines.
type Client struct {
	URL   string       // e.g. http://127.0.0.1:8180, or unix:///run/cloudsim.sock; see Reach
	HTTP  *http.Client // bounds every call but Watch by its own Timeout
	Token TokenSource  // nil calls without one
	// Project is the project to work in, for an admin token that is of none.
	Project cloudsim.ProjectID
	// UserAgent names the caller in the cloud's journal and metrics.
	UserAgent string
	// Retries is how often a call that the cloud refused with a Retry-After
	// is repeated, if it may be: one that reads, replaces or deletes. It waits
	// as long as the cloud says, and up to a half more, so that a crowd does
	// not come back at once; never past the end of ctx, and never longer than
	// MaxRetryWait. 0 returns the refusal, an Error with RetryAfter.
	Retries int
}

// MaxRetryWait is the longest that Retries wait for one repetition. Who is told
// to come back later than that gets the refusal.
const MaxRetryWait = 30 * time.Second

// maxReply bounds what a call reads: a full page of the largest objects.
const maxReply = 64 << 20

// call is one request with a JSON body and a JSON answer; either may be nil.
// path segments that come from a caller are escaped by it with seg.
func call[T any](ctx context.Context, c *Client, method, path string, in any, opts ...func(*http.Request)) (out T, err error) {
	resp, err := c.insist(ctx, method, path, in, opts...)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&out); err != nil {
		// The cloud did answer; whether it acted is unknown to the caller,
		// as after any lost reply.
		return out, cloudsim.Errorf(cloudsim.Unavailable, "%s %s: reading the answer: %w", method, path, err)
	}
	return out, nil
}

// insist is do, and again where Retries allows it.
func (c *Client) insist(ctx context.Context, method, path string, in any, opts ...func(*http.Request)) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := c.do(ctx, c.HTTP, method, path, in, opts...)
		e, ok := errors.AsType[*cloudsim.Error](err)
		if !ok || e.RetryAfter == 0 || e.RetryAfter > MaxRetryWait || n >= c.Retries || method == http.MethodPost {
			return resp, err
		}
		wait := e.RetryAfter + rand.N(e.RetryAfter/2+1) //nolint:gosec // it spreads callers, and keeps no secret
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return nil, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

func (c *Client) do(ctx context.Context, hc *http.Client, method, path string, in any, opts ...func(*http.Request)) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base()+path, body)
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "cloud URL %q: %w", c.URL, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.UserAgent != "" {
		req.Header.Set("User-Agent", c.UserAgent)
	}
	if c.Project != "" {
		req.Header.Set("Cloud-Project", string(c.Project))
	}
	if c.Token != nil {
		secret, err := c.Token()
		if err != nil {
			return nil, cloudsim.Errorf(cloudsim.Unauthenticated, "cloud token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	for _, o := range opts {
		o(req)
	}
	resp, err := hc.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, cloudsim.Errorf(cloudsim.Unavailable, "cloud at %s: %w", c.URL, errors.Unwrap(err))
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	err = problem(resp, method, path)
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		e.RetryAfter = retryAfter(resp)
	}
	return nil, err
}

// problem reads an error reply. One that is not the cloud's own, from a proxy
// or a wrong address, is Unavailable: nobody said that the request is wrong.
func problem(resp *http.Response, method, path string) error {
	var p cloudsim.Problem
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p)
	if err != nil || p.Status == 0 {
		return cloudsim.Errorf(cloudsim.Unavailable, "%s %s: %s answered %s; is it a cloud?", method, path, resp.Request.URL.Host, resp.Status)
	}
	return errorOf(p)
}

// errorOf is a problem as an error. One that says nothing says its kind: an
// empty message is no help in a log.
func errorOf(p cloudsim.Problem) error {
	if p.Detail == "" {
		p.Detail = p.Kind.Error()
	}
	return &cloudsim.Error{Kind: p.Kind, Msg: p.Detail, Fields: p.Errors}
}

// retryAfter is what the reply says about asking again, or 0.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

func seg[S ~string](id S) string { return url.PathEscape(string(id)) }

// ifMatch makes a change conditional on the revision it was decided on; 0
// means whatever is there.
func ifMatch(rev uint64) func(*http.Request) {
	return func(r *http.Request) {
		if rev != 0 {
			r.Header.Set("If-Match", strconv.Quote(strconv.FormatUint(rev, 10)))
		}
	}
}

// listQuery is o as the API's query string.
func listQuery(o cloudsim.ListOptions) string {
	q := url.Values{}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	set("name", o.Name)
	set("zone", o.Zone)
	set("source", o.Source)
	set("network", string(o.Network))
	set("after", o.After)
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	for k, v := range o.Labels {
		q.Add("label", k+"="+v)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Ready reports whether the cloud answers and can serve.
func (c *Client) Ready(ctx context.Context) error {
	resp, err := c.do(ctx, c.HTTP, http.MethodGet, "/readyz", nil)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	return resp.Body.Close()
}
