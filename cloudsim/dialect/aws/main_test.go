package aws_test

import (
	"context"
	"encoding/xml"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"crypto/sha256"
	"encoding/hex"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// world contains a cloud, the URL of a dialect for this cloud, and an access key of a service
// account with the role writer.
type world struct {
	cloud  *client.Client
	url    string
	key    cloudsim.AccessKey
	region string // region of the signatures
}

// start runs a cloud and a dialect until the test ends.
func start(tb testing.TB, opts ...cloudtest.Option) *world {
	tb.Helper()
	w := &world{cloud: cloudtest.Start(tb, opts...), region: "sim-1"}
	ctx := context.Background()
	if _, err := w.cloud.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "aws"}); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.cloud.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: "aws", Role: cloudsim.RoleWriter, ServiceAccount: "aws"}); err != nil {
		tb.Fatal(err)
	}
	var err error
	if w.key, err = w.cloud.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: "aws"}); err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), aws.New(), dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport}))
	tb.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

// request returns a signed request with the given parameters. If the parameters do not include
// Version, the request is for EC2.
func (w *world) request(tb testing.TB, at time.Time, form url.Values) *http.Request {
	tb.Helper()
	if !form.Has("Version") {
		form.Set("Version", "2016-11-15")
	}
	service := "ec2"
	switch form.Get("Version") {
	case "2011-06-15":
		service = "sts"
	case "2012-06-01", "2015-12-01":
		service = "elasticloadbalancing"
	}
	r := w.sign(tb, at, service, form.Encode(), nil)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	return r
}

// sign returns a signed request with the given body. The signature also covers the headers in the
// map amz.
func (w *world) sign(tb testing.TB, at time.Time, service, body string, amz map[string]string) *http.Request {
	tb.Helper()
	r, err := http.NewRequest(http.MethodPost, w.url+"/", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	s := cloudsim.Signature{AccessKey: w.key.ID, Time: at.UTC().Truncate(time.Second), Region: w.region, Service: service}
	date := s.Time.Format(cloudsim.SignatureTime)
	signed := map[string]string{"host": r.Host, "x-amz-date": date}
	maps.Copy(signed, amz)
	names := slices.Sorted(maps.Keys(signed))
	canonical := "POST\n/\n\n"
	for _, name := range names {
		canonical += name + ":" + signed[name] + "\n"
		r.Header.Set(name, signed[name])
	}
	sum := sha256.Sum256([]byte(body))
	sum = sha256.Sum256([]byte(canonical + "\n" + strings.Join(names, ";") + "\n" + hex.EncodeToString(sum[:])))
	s.Hash = hex.EncodeToString(sum[:])
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+string(s.AccessKey)+"/"+date[:8]+"/"+s.Region+"/"+s.Service+"/aws4_request, SignedHeaders="+strings.Join(names, ";")+", Signature="+s.Sign(w.key.Secret))
	return r
}

func send(tb testing.TB, r *http.Request) (*http.Response, []byte) {
	tb.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, raw
}

// do sends a request, and ends the test if the answer is not XML. It returns the status, the error
// code and the body of the answer. If there is no error, the code is "".
func do(tb testing.TB, r *http.Request) (status int, code, body string) {
	tb.Helper()
	resp, raw := send(tb, r)
	var e struct {
		EC2   string `xml:"Errors>Error>Code"`
		Query string `xml:"Error>Code"`
		ID    string `xml:"RequestID"`
		ID2   string `xml:"RequestId"`
	}
	if err := xml.Unmarshal(raw, &e); err != nil {
		tb.Fatalf("answer %s: %v", raw, err)
	}
	if code = e.EC2 + e.Query; code != "" && e.ID+e.ID2 != resp.Header.Get("X-Amzn-Requestid") {
		tb.Errorf("error %s: got request id %q, want %q of the header", code, e.ID+e.ID2, resp.Header.Get("X-Amzn-Requestid"))
	}
	return resp.StatusCode, code, string(raw)
}

func (w *world) call(tb testing.TB, form url.Values) (status int, code, body string) {
	tb.Helper()
	return do(tb, w.request(tb, time.Now(), form))
}

// query sends a signed request for the given region. The argument named query contains the
// URL-encoded parameters of the request.
func (w *world) query(tb testing.TB, region, query string) (status int, code, body string) {
	tb.Helper()
	form, err := url.ParseQuery(query)
	if err != nil {
		tb.Fatal(err)
	}
	other := *w
	other.region = region
	return other.call(tb, form)
}

// succeed sends the same request as the method query. It ends the test if the answer is an error.
func (w *world) succeed(tb testing.TB, region, query string) (body string) {
	tb.Helper()
	status, _, body := w.query(tb, region, query)
	if status != http.StatusOK {
		tb.Fatalf("%.200s: got %d %s", query, status, body)
	}
	return body
}

// abandon sends a signed request, and disconnects when the fault with the given id has hit a call
// of the request. The argument named query contains the URL-encoded parameters of the request. The
// dialect closes the returned channel when it has handled the request.
func (w *world) abandon(tb testing.TB, query string, fault cloudsim.FaultID) (handled <-chan struct{}) {
	tb.Helper()
	form, err := url.ParseQuery(query)
	if err != nil {
		tb.Fatal(err)
	}
	h := dialect.New(slog.New(slog.DiscardHandler), aws.New(), dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport})
	ctx, disconnect := context.WithCancel(tb.Context())
	defer disconnect()
	r, over := w.request(tb, time.Now(), form).WithContext(ctx), make(chan struct{})
	go func() { defer close(over); h.ServeHTTP(httptest.NewRecorder(), r) }()
	eventually.True(tb, "the fault hits a call", func() bool {
		f, err := w.cloud.GetFault(tb.Context(), fault)
		return err == nil && f.Hits > 0
	})
	return over
}

// breakCall creates a fault with the given effect for all calls of an operation of the cloud's API.
// It returns the id of the fault.
func (w *world) breakCall(tb testing.TB, operation string, effect cloudsim.FaultEffectType) cloudsim.FaultID {
	tb.Helper()
	return w.breakCalls(tb, operation, cloudsim.FaultWhen{}, cloudsim.FaultEffect{Type: effect})
}

// breakCalls is like breakCall, but changes only some of the calls.
func (w *world) breakCalls(tb testing.TB, operation string, when cloudsim.FaultWhen, effect cloudsim.FaultEffect) cloudsim.FaultID {
	tb.Helper()
	name := strings.ToLower(strings.ReplaceAll(operation, ".", "-"))
	f, err := w.cloud.CreateFault(context.Background(), cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: operation}, When: when, Effect: effect,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return f.ID
}
