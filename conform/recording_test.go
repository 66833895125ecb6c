package conform_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/conform"
)

// TestRedact proves that Redact replaces secrets in headers, queries, JSON and log lines, and does
// not change other text.
func TestRedact(t *testing.T) {
	for _, text := range []string{
		"Authorization: Bearer S3CRET", "authorization=S3CRET", `"Authorization":["Bearer S3CRET"]`, "X-Auth-Token: S3CRET", "Set-Cookie: a=S3CRET; Path=/", "Cookie: S3CRET",
		"bearer S3CRET.S3CRET", "/v1?X-Amz-Signature=S3CRET&a=b", "/v1?a=b&sig=S3CRET", "/v1?access_token=S3CRET", `{"password":"S3CRET"}`, `{"adminPassword": "S3CRET\" S3CRET"}`,
		"--cloud-token=S3CRET", `{"user_data":"S3CRET`, "X-Subject-Token: S3CRET",
		`"Read the configuration" password="S3CRET" user="a"`, `"login" api_token="S3\"S3CRET"`, `"call" body="{\"password\":\"S3CRET\"}"`, `{"body":"{\"token\": \"S3CRET`,
		`{"body":"{\"secret\":\"a\\\"S3CRET\"}"}`,
	} {
		if got := conform.Redact(text); strings.Contains(got, "S3CRET") || !strings.Contains(got, "REDACTED") {
			t.Errorf("%s: got %s, which contains the secret or no REDACTED", text, got)
		}
	}
	for _, text := range []string{"node/a: providerID=\"fake://1\"", "GET /v1/servers?name=a&page=2", `{"name":"a","targets":[1]}`, "the token is not valid", `"call" body="{\"name\":\"a\"}" zone="b"`} {
		if got := conform.Redact(text); got != text {
			t.Errorf("%s: got %s, want no change", text, got)
		}
	}
}
