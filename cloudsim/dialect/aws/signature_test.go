package aws_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestSignature proves that the dialect accepts only a valid signature that covers the whole
// request. A request with another signature gets AWS's error.
func TestSignature(t *testing.T) {
	w := start(t)
	auth := func(old, new string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, new, 1))
		}
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, tc := range map[string]struct {
		change func(*http.Request)
		status int
		code   string
	}{
		"valid":                   {func(*http.Request) {}, 200, ""},
		"unsigned":                {func(r *http.Request) { r.Header.Del("Authorization") }, 403, "MissingAuthenticationToken"},
		"bearer token":            {set("Authorization", "Bearer "+w.key.Secret), 400, "IncompleteSignature"},
		"other algorithm":         {auth("SHA256", "SHA1"), 400, "IncompleteSignature"},
		"no signed headers":       {auth("host;x-amz-date", ""), 400, "IncompleteSignature"},
		"host is not signed":      {auth("host;x-amz-date", "x-amz-date"), 400, "IncompleteSignature"},
		"date is not signed":      {auth("host;x-amz-date", "host"), 400, "IncompleteSignature"},
		"other header not signed": {set("X-Amz-Extra", "x"), 400, "IncompleteSignature"},
		"two signatures":          {auth("Signature=", "Signature=00, Signature="), 400, "IncompleteSignature"},
		"short signature":         {auth("Signature=", "Signature=0"), 400, "IncompleteSignature"},
		"short scope":             {auth("/aws4_request", ""), 400, "IncompleteSignature"},
		"date without format":     {set("X-Amz-Date", "today"), 400, "IncompleteSignature"},
		"other host":              {func(r *http.Request) { r.Host = "ec2.example" }, 403, "SignatureDoesNotMatch"},
		"other region":            {auth("/sim-1/", "/sim-2/"), 403, "SignatureDoesNotMatch"},
		"other service":           {auth("/ec2/", "/sts/"), 403, "SignatureDoesNotMatch"},
		"other key":               {auth("Credential=ak-000001", "Credential=ak-000009"), 403, "InvalidClientTokenId"},
		"key of AWS":              {auth("Credential=ak-000001", "Credential=AKIAIOSFODNN7EXAMPLE"), 400, "IncompleteSignature"},
		"session token":           {set("X-Amz-Security-Token", "x"), 400, "IncompleteSignature"},
		"other body": {func(r *http.Request) {
			*r = *must(http.NewRequest(r.Method, r.URL.String(), strings.NewReader("Action=DescribeInstances&Version=2016-11-15&MaxResults=5")))(t, r.Header)
		}, 403, "SignatureDoesNotMatch"},
		"hash of another body": {set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"), 400, "IncompleteSignature"},
		"query":                {func(r *http.Request) { r.URL.RawQuery = "X-Amz-Signature=0" }, 400, "InvalidAction"},
		"other path":           {func(r *http.Request) { r.URL.Path = "/x" }, 400, "InvalidAction"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request(t, time.Now(), url.Values{"Action": {"DescribeInstances"}})
			tc.change(r)
			if status, code, body := do(t, r); status != tc.status || code != tc.code {
				t.Errorf("got %d %q, want %d %q: %s", status, code, tc.status, tc.code, body)
			}
		})
	}
	other := *w
	other.key.Secret += "x"
	if status, code, _ := do(t, other.request(t, time.Now(), url.Values{"Action": {"DescribeInstances"}})); status != 403 || code != "SignatureDoesNotMatch" {
		t.Errorf("wrong secret: got %d %q, want 403 SignatureDoesNotMatch", status, code)
	}
}

func must(r *http.Request, err error) func(*testing.T, http.Header) *http.Request {
	return func(t *testing.T, h http.Header) *http.Request {
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		return r
	}
}

// TestClock proves that the cloud compares the time of a signature with its own clock, and that the
// header Date of an answer contains the cloud's time.
func TestClock(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := start(t, cloudtest.WithFrozenClock(at))
	for _, tc := range []struct {
		skew time.Duration
		code string
	}{{0, ""}, {15 * time.Minute, ""}, {-15 * time.Minute, ""}, {15*time.Minute + time.Second, "RequestExpired"}, {-15*time.Minute - time.Second, "RequestExpired"}} {
		r := w.request(t, at.Add(tc.skew), url.Values{"Action": {"DescribeRegions"}})
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Date"); got != at.Format(http.TimeFormat) {
			t.Errorf("skew %s: got header Date %q, want the cloud's time", tc.skew, got)
		}
		if _, code, _ := do(t, w.request(t, at.Add(tc.skew), url.Values{"Action": {"DescribeRegions"}})); code != tc.code {
			t.Errorf("skew %s: got code %q, want %q", tc.skew, code, tc.code)
		}
	}
}

// TestPermissions proves that a call has only the permissions of the service account to which the
// access key of the signature belongs.
func TestPermissions(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	bindings, err := w.cloud.ListRoleBindings(ctx, cloudsim.ListOptions{Name: "aws"})
	if err != nil || len(bindings.Items) != 1 {
		t.Fatalf("role bindings: %+v, %v", bindings, err)
	}
	if err := w.cloud.DeleteRoleBinding(ctx, bindings.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	if status, code, _ := w.call(t, url.Values{"Action": {"DescribeInstances"}}); status != 403 || code != "UnauthorizedOperation" {
		t.Errorf("account without a role: got %d %q, want 403 UnauthorizedOperation", status, code)
	}
	if err := w.cloud.DeleteAccessKey(ctx, w.key.ID); err != nil {
		t.Fatal(err)
	}
	if status, code, _ := w.call(t, url.Values{"Action": {"DescribeInstances"}}); status != 403 || code != "InvalidClientTokenId" {
		t.Errorf("deleted access key: got %d %q, want 403 InvalidClientTokenId", status, code)
	}
}
