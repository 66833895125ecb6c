package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Replayed is the result of a replay.
type Replayed struct {
	Head  cloudsim.TranscriptHead
	Calls int  // number of calls with the same answer as in the transcript
	Full  bool // the recording stopped at its size limit, so later calls are missing
}

// Replay makes the calls of a transcript one by one, and compares each answer with the recorded
// answer. At the start, the cloud must be in the same state as the recorded cloud at the start of
// the recording. Otherwise Replay returns Conflict.
//
// If a recorded call created a token, the repeated call creates a new token. Replay uses the new
// token for the calls that used the recorded token. All other authenticated calls use the token of
// c, which must be the token of the admin.
//
// Replay stops at the first difference and returns a Conflict that names the difference. The cloud
// keeps the changes of all repeated calls. Replay returns Unavailable if the cloud does not answer
// a call that has a recorded answer. It returns Invalid for a damaged transcript. It also returns
// Invalid if the transcript omits the body of a call, e.g. because the body contains a secret.
// Replay ignores an incomplete last line, because a killed cloud can leave an incomplete line.
func (c *Client) Replay(ctx context.Context, r io.Reader) (result Replayed, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, cloudsim.MaxTranscriptLine)
	lines.Split(wholeLines)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &result.Head) != nil || result.Head.Format != cloudsim.TranscriptFormat {
		return result, cloudsim.Errorf(cloudsim.Invalid, "not a transcript: the header is missing")
	}
	if result.Head.Version != cloudsim.TranscriptVersion {
		return result, cloudsim.Errorf(cloudsim.Invalid, "the transcript has version %d; this program reads version %d", result.Head.Version, cloudsim.TranscriptVersion)
	}
	if err := c.checkStart(ctx, result.Head); err != nil {
		return result, err
	}
	p := player{c: c, head: result.Head, secrets: map[cloudsim.TokenID]string{}}
	p.http = &http.Client{
		Timeout: c.HTTP.Timeout, Transport: withoutReuse(c.HTTP.Transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the transcript contains the call to the new path
	}
	defer p.http.CloseIdleConnections()
	for n := 2; lines.Scan(); n++ {
		var line struct {
			cloudsim.TranscriptCall
			cloudsim.TranscriptFull
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return result, cloudsim.Errorf(cloudsim.Invalid, "line %d is damaged: %w", n, err)
		}
		if result.Full = line.Full; result.Full {
			break
		}
		if err := p.play(ctx, line.TranscriptCall); err != nil {
			if ctx.Err() != nil {
				return result, context.Cause(ctx)
			}
			return result, fmt.Errorf("line %d, %s %s of %s: %w", n, line.Method, line.Path, cmp.Or(line.Caller, "an unknown caller"), err)
		}
		result.Calls++
	}
	if err := lines.Err(); err != nil {
		return result, cloudsim.Errorf(cloudsim.Invalid, "reading the transcript: %w", err)
	}
	return result, nil
}

// wholeLines splits data at newlines, and ignores an incomplete last line.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// withoutReuse returns a copy of the http.Transport in rt that does not reuse connections. If the
// cloud closes a reused connection during a call, a transport can send the call twice. If rt is
// another type of round tripper, withoutReuse returns rt itself.
func withoutReuse(rt http.RoundTripper) http.RoundTripper {
	if rt == nil {
		rt = http.DefaultTransport
	}
	if t, ok := rt.(*http.Transport); ok {
		t = t.Clone()
		t.DisableKeepAlives = true
		return t
	}
	return rt
}

// checkStart compares the state of the cloud with the state of the recorded cloud at the start of
// the recording. It returns Conflict if the journal revisions differ. If the clock of the recorded
// cloud was frozen, it also compares the mode and the time of the clock.
func (c *Client) checkStart(ctx context.Context, head cloudsim.TranscriptHead) error {
	allProjects := *c
	allProjects.Project = "*"
	clock, err := allProjects.GetClock(ctx)
	if err != nil {
		return err
	}
	l, err := allProjects.ListRegions(ctx, cloudsim.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	switch {
	case head.Exact() && (clock.Mode != cloudsim.ClockFrozen || !clock.Now.Equal(head.Time)):
		return cloudsim.Errorf(cloudsim.Conflict, "at the start of the transcript, the clock was frozen at %s, but the clock of this cloud has the mode %s and shows %s: replay the transcript on a cloud in the same state as at the start of the recording",
			rfc3339(head.Time), clock.Mode, rfc3339(clock.Now))
	case l.Revision != head.Revision:
		return cloudsim.Errorf(cloudsim.Conflict, "the transcript begins at revision %d, but this cloud is at revision %d: replay the transcript on a cloud in the same state as at the start of the recording",
			head.Revision, l.Revision)
	}
	return nil
}

func rfc3339(t interface{ Format(string) string }) string {
	return t.Format("2006-01-02T15:04:05.999999999Z07:00")
}

// player is a running replay.
type player struct {
	c       *Client
	http    *http.Client
	head    cloudsim.TranscriptHead
	secrets map[cloudsim.TokenID]string // secrets of the tokens that the replay created
}

func (p *player) play(ctx context.Context, call cloudsim.TranscriptCall) error {
	if call.Withheld != "" {
		return cloudsim.Errorf(cloudsim.Invalid, "the call cannot be repeated, because its body is not in the transcript: %s", call.Withheld)
	}
	req, err := p.request(ctx, call)
	if err != nil {
		return err
	}
	status, raw := 0, []byte(nil)
	resp, err := p.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && call.Status != 0:
		return cloudsim.Errorf(cloudsim.Unavailable, "the cloud does not answer the call, but the recorded answer has status %d: %w", call.Status, errors.Unwrap(err))
	case err == nil:
		defer resp.Body.Close()
		status = resp.StatusCode
		if raw, err = io.ReadAll(io.LimitReader(resp.Body, maxReply)); err != nil {
			status, raw = 0, nil // the connection was closed in the middle of the answer
		}
	}
	if token := (cloudsim.Token{}); status == http.StatusCreated && json.Unmarshal(raw, &token) == nil && token.Secret != "" {
		p.secrets[token.ID] = token.Secret
	}
	return compare(call, status, raw, p.head.Exact())
}

func (p *player) request(ctx context.Context, call cloudsim.TranscriptCall) (*http.Request, error) {
	body := call.Text
	if call.Body != nil {
		body = string(call.Body)
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, p.c.base()+call.Path, strings.NewReader(body))
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	for name, value := range map[string]string{
		"X-Request-Id": call.RequestID, "Cloud-Project": call.Project, "Idempotency-Key": call.IdempotencyKey,
		"If-Match": call.IfMatch, "Dialect-Call": call.DialectCall, "User-Agent": p.c.UserAgent,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if call.Token == "" && call.Caller == "" { // a caller with an access key or a token of a cluster has a name, but no token
		return req, nil // the recorded call had no valid token, and this call has none either
	}
	secret, made := p.secrets[call.Token]
	if !made && p.c.Token != nil {
		if secret, err = p.c.Token(); err != nil {
			return nil, cloudsim.Errorf(cloudsim.Unauthenticated, "cloud token: %w", err)
		}
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	return req, nil
}

// compare returns an error if the status or the hash of an answer differs from the recorded answer.
// If the statuses differ, the error contains both statuses. Otherwise it names the JSON members
// that differ. If withTimes is true, compare also compares the times in the answers.
func compare(call cloudsim.TranscriptCall, status int, raw []byte, withTimes bool) error {
	if status != call.Status {
		return cloudsim.Errorf(cloudsim.Conflict, "the recorded answer has status %d, but the cloud answers %d: %s", call.Status, status, shortAnswer(raw))
	}
	answer, members := cloudsim.Digest(raw, withTimes)
	if call.Answer == "" || answer == "" || answer == call.Answer {
		return nil
	}
	var differ []string
	for k, v := range members {
		if call.Members[k] != v {
			differ = append(differ, k)
		}
	}
	for k := range call.Members {
		if _, ok := members[k]; !ok {
			differ = append(differ, k)
		}
	}
	slices.Sort(differ)
	where := ""
	if len(differ) > 0 {
		where = " in " + strings.Join(differ, ", ")
	}
	return cloudsim.Errorf(cloudsim.Conflict, "the answer differs from the recorded answer%s; the new answer is %s", where, shortAnswer(raw))
}

// shortAnswer returns the text of an answer of the cloud, for use in an error message. It removes
// secrets, and cuts the text after 500 characters.
func shortAnswer(raw []byte) string {
	clean, _ := cloudsim.Redact(raw)
	if !utf8.Valid(clean) {
		return fmt.Sprintf("%d bytes of binary data", len(raw))
	}
	return fmt.Sprintf("%.500s", clean)
}
