package aws_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const ecrTarget = "AmazonEC2ContainerRegistry_V20150921."

// withRegistry sets the address of the registry in the configuration of the cloud. Without an
// address, the cloud creates no passwords for the registry.
func withRegistry() cloudtest.Option {
	return cloudtest.WithConfig(func(c *engine.Config) { c.Registry = "registry.test:5000" })
}

// ecr returns a signed request that makes a call of ECR.
func (w *world) ecr(tb testing.TB, call, body string) *http.Request {
	tb.Helper()
	r := w.sign(tb, time.Now(), "ecr", body, map[string]string{"x-amz-target": ecrTarget + call})
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	return r
}

// doJSON sends a request of ECR. It returns the status, the code of the error or "", and the body.
func doJSON(tb testing.TB, r *http.Request) (status int, code, body string) {
	tb.Helper()
	resp, raw := send(tb, r)
	var e struct {
		Type    string `json:"__type"`
		Message string
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		tb.Fatalf("answer %s: %v", raw, err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/x-amz-json-1.1" || resp.Header.Get("X-Amzn-Requestid") == "" || (e.Type != "") != (e.Message != "") {
		tb.Errorf("answer %s: got content type %q and request id %q, want application/x-amz-json-1.1, a request id, and __type only with Message", raw, got, resp.Header.Get("X-Amzn-Requestid"))
	}
	return resp.StatusCode, e.Type, string(raw)
}

// TestErrorsOfECR proves that each wrong request in the protocol JSON 1.1 changes nothing and gets
// AWS's error. The error names the wrong part of the request.
func TestErrorsOfECR(t *testing.T) {
	w := start(t, withRegistry())
	if _, err := w.cloud.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	p, err := w.cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	shop := *w.cloud
	shop.Project = p.ID
	if _, err := shop.CreateRepository(t.Context(), cloudsim.CreateRepository{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	wrong := func(old, new string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, new, 1))
		}
	}
	for _, tc := range []struct {
		call, body    string
		change        func(*http.Request)
		status        int
		code, message string
	}{
		{"GetAuthorizationToken", `{}`, func(r *http.Request) { r.Header.Del("Authorization") }, 403, "MissingAuthenticationTokenException", "signature"},
		{"GetAuthorizationToken", `{}`, wrong("Bearer", "Bearer"), 200, "", ""},
		{"GetAuthorizationToken", `{}`, wrong("AWS4", "AWS5"), 400, "IncompleteSignatureException", "AWS4-HMAC-SHA256"},
		{"GetAuthorizationToken", `{}`, wrong(";x-amz-target", ""), 400, "IncompleteSignatureException", "x-amz-target"},
		{"GetAuthorizationToken", `{}`, wrong("/ecr/", "/ec2/"), 403, "InvalidSignatureException", "ecr"},
		{"GetAuthorizationToken", `{}`, wrong("/sim-1/", "/sim-2/"), 403, "InvalidSignatureException", "signature"},
		{"GetAuthorizationToken", `{}`, wrong("ak-000001", "ak-000009"), 403, "UnrecognizedClientException", "ak-000009"},
		{"GetAuthorizationToken", `{}`, header("X-Amz-Target", ecrTarget+"DescribeRepositories"), 403, "InvalidSignatureException", "signature"},
		{"GetAuthorizationToken", `{}`, header("X-Amz-Content-Sha256", strings.Repeat("0", 64)), 400, "IncompleteSignatureException", "x-amz-content-sha256"},
		{"GetAuthorizationToken", `{}`, header("Content-Type", "application/x-www-form-urlencoded"), 400, "SerializationException", "Content-Type"},
		{"GetAuthorizationToken", `{}`, header("Content-Type", "application/x-amz-json-1.0"), 400, "SerializationException", "Content-Type"},
		{"GetAuthorizationToken", `{}`, header("Content-Type", "application/x-amz-json-1.1; charset=utf-8"), 200, "", ""},
		{"GetAuthorizationToken", `{}`, header("X-Amz-Target", "Logs_20140328.PutLogEvents"), 400, "UnknownOperationException", "Logs_20140328"},
		{"GetAuthorizationToken", `{}`, header("X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921"), 400, "UnknownOperationException", "X-Amz-Target"},
		{"GetAuthorizationToken", `{}`, func(r *http.Request) { r.Header.Del("X-Amz-Target") }, 400, "UnknownOperationException", "X-Amz-Target"},
		{"GetAuthorizationToken", `{}`, func(r *http.Request) { r.URL.Path = "/x" }, 400, "UnknownOperationException", "/x"},
		{"PutImage", `{}`, nil, 400, "UnknownOperationException", "ecr.PutImage"},
		{"GetAuthorizationToken", `{"x":1}`, nil, 400, "InvalidParameterException", "x is not known"},
		{"GetAuthorizationToken", `{"registryIds":"a"}`, nil, 400, "InvalidParameterException", "registryIds"},
		{"GetAuthorizationToken", `{"registryIds":["000000000001"]}`, nil, 200, "", ""},
		{"GetAuthorizationToken", `{"registryIds":["000000000002"]}`, nil, 400, "InvalidParameterException", "000000000002"},
		{"GetAuthorizationToken", `{`, nil, 400, "SerializationException", "JSON"},
		{"GetAuthorizationToken", `{`, wrong("/sim-1/", "/sim-2/"), 403, "InvalidSignatureException", "signature"}, // the dialect decodes the body only for known callers
		{"GetAuthorizationToken", `{}{}`, nil, 400, "SerializationException", "JSON"},
		{"GetAuthorizationToken", `[]`, nil, 400, "InvalidParameterException", "body"},
		{"GetAuthorizationToken", strings.Repeat(" ", 257<<10), nil, 400, "InvalidParameterException", "body"},
		{"CreateRepository", `{}`, nil, 400, "InvalidParameterException", "name"},
		{"CreateRepository", `{"repositoryName":"A"}`, nil, 400, "InvalidParameterException", "name"},
		{"CreateRepository", `{"repositoryName":"a"}`, nil, 400, "RepositoryAlreadyExistsException", "repo-000001"},
		{"CreateRepository", `{"repositoryName":"shop"}`, nil, 400, "RepositoryAlreadyExistsException", "another project"},
		{"CreateRepository", `{"repositoryName":"b","registryId":"000000000002"}`, nil, 400, "InvalidParameterException", "000000000002"},
		{"CreateRepository", `{"repositoryName":"b","imageTagMutability":"IMMUTABLE"}`, nil, 400, "InvalidParameterException", "imageTagMutability"},
		{"CreateRepository", `{"repositoryName":"b","tags":[{"Key":"dialect.cloudsim.dev/x","Value":"y"}]}`, nil, 400, "InvalidParameterException", "reserved"},
		{"CreateRepository", `{"repositoryName":"b","encryptionConfiguration":{}}`, nil, 400, "InvalidParameterException", "encryptionConfiguration"},
		{"DeleteRepository", `{"repositoryName":"a"}`, nil, 400, "InvalidParameterException", "force"},
		{"DeleteRepository", `{"force":true}`, nil, 400, "InvalidParameterException", "repositoryName"},
		{"DeleteRepository", `{"repositoryName":"b","force":true}`, nil, 400, "RepositoryNotFoundException", "b"},
		{"DeleteRepository", `{"repositoryName":"shop","force":true}`, nil, 400, "RepositoryNotFoundException", "shop"},
		{"DeleteRepository", `{"repositoryName":"a","force":true,"registryId":"1"}`, nil, 400, "InvalidParameterException", "000000000001"},
		{"DescribeRepositories", `{"repositoryNames":["a","shop"]}`, nil, 400, "RepositoryNotFoundException", "shop"},
		{"DescribeRepositories", `{"repositoryNames":["a"],"maxResults":1}`, nil, 400, "InvalidParameterException", "maxResults"},
		{"DescribeRepositories", `{"maxResults":0}`, nil, 400, "InvalidParameterException", "maxResults"},
		{"DescribeRepositories", `{"nextToken":"*"}`, nil, 400, "InvalidParameterException", "nextToken"},
		{"DescribeRepositories", `{"registryId":"x"}`, nil, 400, "InvalidParameterException", "000000000001"},
	} {
		r := w.ecr(t, tc.call, tc.body)
		if tc.change != nil {
			tc.change(r)
		}
		if status, code, body := doJSON(t, r); status != tc.status || code != tc.code || !strings.Contains(body, tc.message) {
			t.Errorf("%s %.60s: got %d %s %s, want %d %s with %q", tc.call, tc.body, status, code, body, tc.status, tc.code, tc.message)
		}
	}
	l, err := w.cloud.ListRepositories(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Name != "a" {
		t.Errorf("repositories after wrong requests: got %+v, error %v", l.Items, err)
	}
}

// TestRegistryOfECR proves that a cloud without a registry creates no authorization token. It also
// proves that the expiry of an authorization token depends on the cloud's clock.
func TestRegistryOfECR(t *testing.T) {
	if status, code, body := doJSON(t, start(t).ecr(t, "GetAuthorizationToken", `{}`)); status != 503 || code != "ServerException" || !strings.Contains(body, "no registry") {
		t.Errorf("cloud without a registry: got %d %s %s, want 503 ServerException with the text no registry", status, code, body)
	}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := start(t, withRegistry(), cloudtest.WithFrozenClock(at))
	r := w.sign(t, at, "ecr", "{}", map[string]string{"x-amz-target": ecrTarget + "GetAuthorizationToken"})
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	status, _, body := doJSON(t, r)
	var got struct {
		AuthorizationData []struct {
			ExpiresAt     float64
			ProxyEndpoint string
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.AuthorizationData) != 1 {
		t.Fatalf("got %d %s, error %v", status, body, err)
	}
	d := got.AuthorizationData[0]
	if want := at.Add(time.Hour).Unix(); d.ExpiresAt != float64(want) || d.ProxyEndpoint != "https://"+aws.RegistryHost("proj-000001", "sim-1") {
		t.Errorf("got %+v, want the expiry %d", d, want)
	}
}
