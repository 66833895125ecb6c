package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// recordable returns the options for a cloud that records a transcript, and for a cloud that
// replays the transcript.
func recordable(more ...cloudtest.Option) []cloudtest.Option {
	return append(more, cloudtest.WithFrozenClock(time.Time{}), cloudtest.WithSeed(7), cloudtest.WithProfile(engine.Realistic))
}

// tape makes calls to a cloud and records the calls in a transcript. The calls include all
// kinds of calls that are difficult to replay. tape returns the transcript, and a secret
// that must not be in the transcript.
func tape(t *testing.T) (transcript []byte, secret string) {
	t.Helper()
	var out bytes.Buffer
	c, ctx := cloudtest.Start(t, recordable(cloudtest.WithTranscript(&out))...), t.Context()
	must(c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "reader"}))(t)
	must(c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "reads", Role: cloudsim.RoleReader, ServiceAccount: "reader"}))(t)
	token := must(c.CreateToken(ctx, cloudsim.CreateToken{ServiceAccount: "reader"}))(t)
	reader, stranger := *c, *c
	reader.Token, reader.Project = client.StaticToken(token.Secret), ""
	stranger.Token = client.StaticToken(strings.Repeat("x", 40))
	for _, as := range []*client.Client{c, &reader, &stranger} {
		_, err := as.CreateInstance(ctx, instance("a"))
		if as != c && err == nil {
			t.Fatal("a caller without the permission created an instance")
		}
	}
	for _, body := range []string{`{"name":`, `{"nme": "b"}`, "[1] 2"} {
		req := must(http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/instances", strings.NewReader(body)))(t)
		secret := must(c.Token())(t)
		req.Header.Set("Authorization", "Bearer "+secret)
		resp := must(c.HTTP.Do(req))(t)
		_ = resp.Body.Close()
	}
	must(c.CreateFault(ctx, cloudsim.CreateFault{Name: "drop", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "instances.stop"}, When: cloudsim.FaultWhen{Max: 1},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply},
	}}))(t)
	if _, err := c.StopInstance(ctx, "i-000001"); !errors.Is(err, cloudsim.Unavailable) {
		t.Fatalf("call with a dropped reply: got error %v, want Unavailable", err)
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) randomCall {
		return randomCall{rapid.IntRange(0, 14).Draw(t, "call"), rapid.IntRange(1, 8).Draw(t, "which")}
	}), 100, 100).Example(1)
	for _, s := range steps {
		_ = s.take(ctx, c) // a failed call must fail in the same way in the replay
	}
	must(reader.ListInstances(ctx, cloudsim.ListOptions{}))(t)
	return out.Bytes(), token.Secret
}

func replayOnNewCloud(t *testing.T, transcript []byte, opts ...cloudtest.Option) (client.Replayed, error) {
	t.Helper()
	return cloudtest.Start(t, recordable(opts...)...).Replay(context.WithoutCancel(t.Context()), bytes.NewReader(transcript))
}

// TestReplay proves that a new cloud gives the same answers as the recorded cloud. The
// transcript has calls of several callers and calls that failed. The transcript contains no
// secret.
func TestReplay(t *testing.T) {
	transcript, secret := tape(t)
	if bytes.Contains(transcript, []byte(secret)) {
		t.Error("the transcript contains a secret")
	}
	done, err := replayOnNewCloud(t, transcript)
	if err != nil || done.Calls < 110 || done.Full {
		t.Errorf("replay: got %+v, error %v; want at least 110 calls", done, err)
	}
	torn, err := replayOnNewCloud(t, append(bytes.Clone(transcript), `{"requestId": "r`...))
	if err != nil || torn.Calls != done.Calls {
		t.Errorf("replay of a transcript with an incomplete last line: got %+v, error %v; want %d calls", torn, err, done.Calls)
	}
}

// TestReplayFindsDifferences proves that the error of a replay names the line of the transcript,
// the call and the difference.
func TestReplayFindsDifferences(t *testing.T) {
	transcript, _ := tape(t)
	lines := bytes.Split(transcript, []byte("\n"))
	const at = 4 // index of the line that creates the instance: the fifth line
	for name, tc := range map[string]struct {
		change func(*cloudsim.TranscriptCall)
		want   string
	}{
		"body":   {func(c *cloudsim.TranscriptCall) { c.Body = bytes.Replace(c.Body, []byte(`"x"`), []byte(`"y"`), 1) }, "differs from the recorded answer in labels; the new answer is {"},
		"status": {func(c *cloudsim.TranscriptCall) { c.Status = 409 }, "recorded answer has status 409, but the cloud answers 201"},
		"secret": {func(c *cloudsim.TranscriptCall) { c.Withheld = "the body contains a secret" }, "the call cannot be repeated"},
	} {
		t.Run(name, func(t *testing.T) {
			var call cloudsim.TranscriptCall
			if err := json.Unmarshal(lines[at], &call); err != nil {
				t.Fatal(err)
			}
			tc.change(&call)
			changed := append([][]byte(nil), lines...)
			changed[at] = must(json.Marshal(call))(t)
			done, err := replayOnNewCloud(t, bytes.Join(changed, []byte("\n")))
			if want := fmt.Sprintf("line %d, POST /v1/instances of admin: ", at+1); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s…%s", err, want, tc.want)
			}
			if done.Calls != at-1 {
				t.Errorf("replay: got %d calls before the error, want %d", done.Calls, at-1)
			}
		})
	}
}

// TestReplayWantsTheSameCloud proves that a replay fails before its first call if the cloud is in
// a wrong state. The right state is the state of the recorded cloud at the start of the recording.
func TestReplayWantsTheSameCloud(t *testing.T) {
	transcript, _ := tape(t)
	if _, err := replayOnNewCloud(t, transcript, cloudtest.WithConfig(func(c *engine.Config) { c.Catalogue.Zones = c.Catalogue.Zones[:1] })); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("replay in a cloud with other zones: got error %v, want Conflict", err)
	}
	c := cloudtest.Start(t)
	if _, err := c.Replay(t.Context(), bytes.NewReader(transcript)); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "frozen at 2030-01-01T00:00:00Z, but the clock of this cloud has the mode real") {
		t.Errorf("replay in a cloud with another clock: got error %v, want Conflict", err)
	}
	for _, bad := range []string{"", "{}\n", "hello\n", `{"format":"cloudsim-transcript","version":3}` + "\n"} {
		if _, err := c.Replay(t.Context(), strings.NewReader(bad)); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("transcript %q: got error %v, want Invalid", bad, err)
		}
	}
}

// TestReplayWithoutTimes proves that a replay on a running clock ignores times and compares
// all other values.
func TestReplayWithoutTimes(t *testing.T) {
	var out bytes.Buffer
	c, ctx := cloudtest.Start(t, cloudtest.WithTranscript(&out)), t.Context()
	i := must(c.CreateInstance(ctx, instance("a")))(t)
	must(c.StopInstance(ctx, i.ID))(t)
	must(c.GetInstance(ctx, i.ID))(t)
	if done, err := cloudtest.Start(t).Replay(ctx, &out); err != nil || done.Calls != 3 {
		t.Errorf("replay: got %+v, error %v; want 3 calls", done, err)
	}
}

// TestReplayOfADialect proves that a replay repeats a call that came through a dialect. A dialect
// is a server for another cloud's API. The replay must also send the name of the call in this API,
// for example aws.RunInstances, because a fault can match this name. The test also proves that a
// replay repeats a call that a client signed with an access key.
func TestReplayOfADialect(t *testing.T) {
	var out bytes.Buffer
	c, ctx := cloudtest.Start(t, recordable(cloudtest.WithTranscript(&out))...), t.Context()
	must(c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "ccm"}))(t)
	must(c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "writes", Role: cloudsim.RoleWriter, ServiceAccount: "ccm"}))(t)
	must(c.CreateFault(ctx, cloudsim.CreateFault{Name: "outage", FaultSpec: cloudsim.FaultSpec{
		Match:  cloudsim.FaultMatch{Operation: "instances.create", DialectCall: "aws.RunInstances"},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}}))(t)
	key := must(c.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: "ccm"}))(t)
	s := cloudsim.Signature{AccessKey: key.ID, Time: must(c.GetClock(ctx))(t).Now, Region: "sim-1", Service: "ec2", Hash: strings.Repeat("0a", 32)}
	s.Signature = s.Sign(key.Secret)
	signed := *c
	signed.Token = client.StaticToken(s.Token())
	must(signed.CreateInstance(ctx, instance("a")))(t)
	named := *c
	named.HTTP = &http.Client{Transport: withHeader{c.HTTP.Transport, "Dialect-Call", "aws.RunInstances"}}
	if _, err := named.CreateInstance(ctx, instance("b")); !errors.Is(err, cloudsim.Unavailable) {
		t.Fatalf("call with a fault: got error %v, want Unavailable", err)
	}
	if done, err := replayOnNewCloud(t, out.Bytes()); err != nil || done.Calls != 7 {
		t.Errorf("replay: got %+v, error %v; want 7 calls", done, err)
	}
}

type withHeader struct {
	http.RoundTripper
	name, value string
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(w.name, w.value)
	return w.RoundTripper.RoundTrip(r)
}

// TestReplayOfARedirect proves that a replay does not follow a redirect. The replay need not follow
// it, because the transcript also contains the call with which the recorded client followed the
// redirect.
func TestReplayOfARedirect(t *testing.T) {
	var out bytes.Buffer
	c, ctx := cloudtest.Start(t, recordable(cloudtest.WithTranscript(&out))...), t.Context()
	if _, err := c.Do(ctx, http.MethodGet, "/v1//zones", nil); err != nil {
		t.Fatal(err)
	}
	if done, err := replayOnNewCloud(t, out.Bytes()); err != nil || done.Calls != 2 {
		t.Errorf("replay: got %+v, error %v; want 2 calls", done, err)
	}
}
