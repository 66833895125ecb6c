// Package client is a client of the cloud's HTTP API. The methods of Client have the same
// results and errors as the methods of the package engine. For example, errors.Is(err,
// cloudsim.NotFound) works with both packages.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TokenSource returns the bearer token for a call. The client calls the TokenSource before every
// call. So a program can use a rotated token without a restart.
type TokenSource func() (string, error)

// StaticToken returns a TokenSource that always returns the given secret.
func StaticToken(secret string) TokenSource {
	return func() (string, error) { return secret, nil }
}

// Client calls the cloud at the address in the field URL. It connects at the first call. A caller
// may copy a Client. Many goroutines may use the same Client.
type Client struct {
	URL   string       // e.g. http://127.0.0.1:8180, or unix:///run/cloudsim.sock; see Reach
	HTTP  *http.Client // must not be nil. Its Timeout does not limit watches and other long calls
	Token TokenSource  // nil: call without a token
	// Project is the id or the name of the project of all calls, or "*" for all projects. If it is
	// empty, the cloud uses the project of the token. Some tokens, e.g. the admin token, have no
	// project. With these tokens, an empty Project selects all projects, and new
	// resources belong to the default project.
	Project cloudsim.ProjectID
	// UserAgent names the caller in the cloud's journal and metrics.
	UserAgent string
	// Retries is the maximum number of retries of a call that the cloud refused with a Retry-After
	// header. The client retries every HTTP method except POST. It never retries a watch,
	// ExportState or Ready. Before a retry, the client waits for the time in Retry-After, plus a
	// random time of up to half of the Retry-After. Because of the random time, not all clients
	// retry at the same time. The client does not retry if the wait would exceed the deadline of
	// ctx, or if the Retry-After is above MaxRetryWait. If the client does not retry, the call
	// returns a cloudsim.Error with the field RetryAfter.
	Retries int
}

// MaxRetryWait is the longest Retry-After that a client waits for. If the Retry-After is longer,
// the call returns the cloud's error.
const MaxRetryWait = 30 * time.Second

// maxReply is the largest reply body that a call reads. A call with a longer reply returns
// Unavailable.
const maxReply = 64 << 20

// call sends a request and decodes the JSON answer. The JSON body of the request contains the value
// reqBody. If reqBody is nil, the request has no body. For a reply with status 204, call returns
// the zero value. The caller must escape variable segments of the path with the function seg.
func call[T any](ctx context.Context, c *Client, method, path string, reqBody any, opts ...func(*http.Request)) (out T, err error) {
	resp, err := c.insist(ctx, method, path, reqBody, opts...)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&out); err != nil {
		// The cloud answered, but the answer is incomplete. So the caller does not know whether the
		// cloud did the work.
		return out, cloudsim.Errorf(cloudsim.Unavailable, "%s %s: reading the answer: %w", method, path, err)
	}
	return out, nil
}

// insist sends a request with Client.do. If the cloud refuses the request with a Retry-After
// header, insist repeats the request. The comment of the field Client.Retries contains the rules.
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
	if last := resp.Request; last != nil && last.Method != method { // net/http follows most redirects with GET
		err := cloudsim.Errorf(cloudsim.Unavailable, "%s %s: a redirect to %s changed the method to %s, so the cloud has not done the work: check the URL", method, path, last.URL.Redacted(), last.Method)
		return nil, errors.Join(err, resp.Body.Close())
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

// problem converts an error reply to an error. If the body of the reply is not a cloudsim.Problem,
// the reply comes from a proxy or a wrong address. The error is then Unavailable, because the same
// request may succeed later or at another address.
func problem(resp *http.Response, method, path string) error {
	var p cloudsim.Problem
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p)
	if err != nil || p.Status == 0 {
		return cloudsim.Errorf(cloudsim.Unavailable, "%s %s: %s answered %s, but not in the cloud's error format: check the URL", method, path, resp.Request.URL.Host, resp.Status)
	}
	return errorOf(p)
}

// errorOf converts a problem to an error. If the problem has no detail, the message is the name of
// the problem's kind, so that a log line is never empty.
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
	return time.Duration(min(s, math.MaxInt32)) * time.Second // without an overflow
}

func seg[S ~string](id S) string { return url.PathEscape(string(id)) }

// ifMatch makes a change conditional: the cloud refuses the change if the object does not have the
// revision rev. If rev is 0, the change is unconditional.
func ifMatch(rev uint64) func(*http.Request) {
	return func(r *http.Request) {
		if rev != 0 {
			r.Header.Set("If-Match", strconv.Quote(strconv.FormatUint(rev, 10)))
		}
	}
}

// listQuery returns the query string for o, including the question mark. If o is the zero value, it
// returns "".
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
	set("kind", o.Kind)
	set("target", o.Target)
	set("state", o.State)
	set("after", o.After)
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	for _, id := range o.Instances {
		q.Add("instance", string(id))
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
