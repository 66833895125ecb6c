// Package client is a client of the cloud's HTTP API. Its methods and errors match
// the engine's: errors.Is(err, cloudsim.NotFound) works in the same way for both.
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

// TokenSource returns the bearer token for a call. The client calls the TokenSource
// before every call, so that it uses a rotated token without a restart.
type TokenSource func() (string, error)

// StaticToken returns a TokenSource that always returns secret.
func StaticToken(secret string) TokenSource {
	return func() (string, error) { return secret, nil }
}

// Client calls the cloud at URL. It connects at the first call. A Client may be
// copied, and may be used by many goroutines.
type Client struct {
	URL   string       // e.g. http://127.0.0.1:8180, or unix:///run/cloudsim.sock; see Reach
	HTTP  *http.Client // its Timeout limits every call but Watch and calls that can take long
	Token TokenSource  // nil: call without a token
	// Project is the project to work in, for an admin token that belongs to no project.
	Project cloudsim.ProjectID
	// UserAgent names the caller in the cloud's journal and metrics.
	UserAgent string
	// Retries is the number of times that the client repeats a call which the cloud
	// refused with a Retry-After. The client repeats every method except POST. It
	// waits for the Retry-After and up to half as long again, so that many clients
	// do not all return at the same time. It never waits past the deadline of ctx,
	// or for a Retry-After above MaxRetryWait. With 0 retries the call returns an
	// Error with RetryAfter.
	Retries int
}

// MaxRetryWait is the longest Retry-After that a client waits for. If the Retry-After
// is longer, the call returns the refusal.
const MaxRetryWait = 30 * time.Second

// maxReply is the largest reply body that a call reads. It fits a full page of the
// largest objects.
const maxReply = 64 << 20

// call makes one request with in as its JSON body, and decodes the JSON answer. If in is
// nil, the request has no body. A reply with status 204 has no answer. Use seg to escape
// path segments that come from a caller.
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
		// The cloud answered, but the answer is incomplete. The caller cannot know
		// whether the cloud did the work, as after any lost reply.
		return out, cloudsim.Errorf(cloudsim.Unavailable, "%s %s: reading the answer: %w", method, path, err)
	}
	return out, nil
}

// insist calls do, and repeats the call as described at Retries.
func (c *Client) insist(ctx context.Context, method, path string, in any, opts ...func(*http.Request)) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := c.do(ctx, c.HTTP, method, path, in, opts...)
		e, ok := errors.AsType[*cloudsim.Error](err)
		if !ok || e.RetryAfter == 0 || e.RetryAfter > MaxRetryWait || n >= c.Retries || method == http.MethodPost {
			return resp, err
		}
		wait := e.RetryAfter + rand.N(e.RetryAfter/2+1) //nolint:gosec // the random number spreads callers and protects no secret
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

// problem reads an error reply. A reply that is not a problem document comes from a
// proxy or a wrong address. The error is then Unavailable, because the request itself
// may be correct.
func problem(resp *http.Response, method, path string) error {
	var p cloudsim.Problem
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p)
	if err != nil || p.Status == 0 {
		return cloudsim.Errorf(cloudsim.Unavailable, "%s %s: %s answered %s; is it a cloud?", method, path, resp.Request.URL.Host, resp.Status)
	}
	return errorOf(p)
}

// errorOf converts a problem to an error. If the problem has no detail, the message is
// the name of its kind, so that a log line is never empty.
func errorOf(p cloudsim.Problem) error {
	if p.Detail == "" {
		p.Detail = p.Kind.Error()
	}
	return &cloudsim.Error{Kind: p.Kind, Msg: p.Detail, Fields: p.Errors}
}

// retryAfter returns the Retry-After of a reply, or 0 if there is no valid value.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

func seg[S ~string](id S) string { return url.PathEscape(string(id)) }

// ifMatch makes a change conditional on revision rev of the object. With 0 the change
// is unconditional.
func ifMatch(rev uint64) func(*http.Request) {
	return func(r *http.Request) {
		if rev != 0 {
			r.Header.Set("If-Match", strconv.Quote(strconv.FormatUint(rev, 10)))
		}
	}
}

// listQuery encodes o as a query string of the API.
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

// Ready returns nil if the cloud is reachable and ready to serve.
func (c *Client) Ready(ctx context.Context) error {
	resp, err := c.do(ctx, c.HTTP, http.MethodGet, "/readyz", nil)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	return resp.Body.Close()
}
