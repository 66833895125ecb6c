package aws_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestSessions proves that the dialect accepts temporary credentials only with their session token
// and before their expiration on the cloud's clock. In all other cases, the dialect returns AWS's
// errors, both in the query protocol and in the protocol JSON 1.1.
func TestSessions(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := start(t, withRegistry(), cloudtest.WithFrozenClock(at))
	token, err := w.cloud.CreateToken(t.Context(), cloudsim.CreateToken{ServiceAccount: "aws", TTLSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.cloud.CreateToken(t.Context(), cloudsim.CreateToken{ServiceAccount: "aws"})
	if err != nil {
		t.Fatal(err)
	}
	long := w.key
	check := func(name string, key cloudsim.AccessKey, sessionToken, code, codeJSON string) {
		t.Helper()
		w.key = key
		send := func(service, body, contentType string, amz map[string]string) *http.Request {
			if sessionToken != "" {
				amz["x-amz-security-token"] = sessionToken
			}
			r := w.sign(t, at, service, body, amz)
			r.Header.Set("Content-Type", contentType)
			return r
		}
		form := url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}}
		if _, got, body := do(t, send("sts", form.Encode(), "application/x-www-form-urlencoded", map[string]string{})); got != code {
			t.Errorf("%s: got code %q, want %q: %s", name, got, code, body)
		}
		if _, got, body := doJSON(t, send("ecr", "{}", "application/x-amz-json-1.1", map[string]string{"x-amz-target": ecrTarget + "GetAuthorizationToken"})); got != codeJSON {
			t.Errorf("%s in JSON: got code %q, want %q: %s", name, got, codeJSON, body)
		}
	}
	const unknown, unknownJSON = "InvalidClientTokenId", "UnrecognizedClientException"
	key := token.AccessKey()
	check("valid", key, token.Secret, "", "")
	check("missing session token", key, "", unknown, unknownJSON)
	check("altered session token", key, token.Secret+"A", unknown, unknownJSON)
	check("session token of another format", key, "a.b", unknown, unknownJSON)
	check("session token of other credentials", key, other.Secret, unknown, unknownJSON)
	check("session token with an access key of an account", long, token.Secret, unknown, unknownJSON)
	check("other secret", cloudsim.AccessKey{ID: key.ID, Secret: long.Secret}, token.Secret, "SignatureDoesNotMatch", "InvalidSignatureException")
	if _, err := w.cloud.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: 60}); err != nil {
		t.Fatal(err)
	}
	check("expired", key, token.Secret, "ExpiredToken", "ExpiredTokenException")
}
