package aws

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

var emptyListRE = regexp.MustCompile(`^(InstanceId|ResourceId|Tag|Filter\.[0-9]+\.Value)$`)

// FuzzQuery proves that the decoder either refuses a request, or returns each parameter of the
// request exactly once. It also proves that a filter value without special characters matches
// itself.
func FuzzQuery(f *testing.F) {
	f.Add("Action=DescribeInstances&Version=2016-11-15&InstanceId.1=i-00000000000000001&Filter.1.Name=tag%3Aa&Filter.1.Value.1=b%2A&MaxResults=5&DryRun=false")
	f.Add("ResourceId.1=i-1&Tag.1.Key=a&Tag.1.Value=&Tag.2.Key=b&NextToken=aS0wMDAwMDE&Tag.3.Value=c")
	f.Add("Filter.1.Name=")
	f.Add("InstanceId=&Tag=&Filter.1.Name=x&Filter.1.Value=&Filter.1.Value.1=a&Filter.3.Value=")
	f.Add("Filter.1.Name=x&Filter.1.Value.1=%5C&Filter.1.Value.3=%00&DryRun=1&a=1&a=2")
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			t.Skip()
		}
		q := newQuery(&dialect.Request{Request: &http.Request{Form: form}})
		n := len(q.left)
		for name, v := range q.left {
			if v == "" && emptyListRE.MatchString(name) {
				n-- // q.textList drops the parameter for an empty list
			}
		}
		returned := len(q.textList("InstanceId")) + len(q.textList("ResourceId"))
		for _, flt := range q.decodeFilters() {
			returned += 1 + len(flt.values)
			for n, v := range flt.values {
				if !strings.ContainsAny(v, `*?\`) && !flt.match[n].matches(v) {
					t.Errorf("filter %q does not match its own value", v)
				}
			}
		}
		for _, tag := range q.decodeTags("Tag") {
			returned++
			if tag.hasValue {
				returned++
			}
		}
		for _, name := range []string{"MaxResults", "NextToken", "DryRun"} {
			if _, ok := q.left[name]; ok {
				returned++
			}
		}
		q.decodePage()
		dry := q.flag("DryRun")
		if !dry && q.finish() == nil && returned != n {
			t.Errorf("%d parameters were returned, want all %d", returned, n)
		}
	})
}

// FuzzSignature encodes the signatures of random requests as tokens. It proves that the cloud
// either decodes a token to the same signature, or refuses the token.
func FuzzSignature(f *testing.F) {
	const scope = "AWS4-HMAC-SHA256 Credential=ak-000001/20260101/sim-1/ec2/aws4_request, "
	f.Add(scope+"SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("0", 64), "20260101T000000Z", "", "Action=DescribeInstances&Version=2016-11-15")
	f.Add(scope+"SignedHeaders=content-length;content-type;host;x-amz-date, Signature=0", "20260101T000000Z", "00", "Version=2016-11-15")
	f.Add("AWS4-HMAC-SHA256 Credential=////,SignedHeaders=;,Signature=", "", "", "")
	f.Add("Bearer x", "", "", "")
	f.Fuzz(func(t *testing.T, authorization, date, hash, body string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		for name, value := range map[string]string{"Authorization": authorization, "X-Amz-Date": date, "X-Amz-Content-Sha256": hash} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		s, headers, err := parseAuthorization(r.Header)
		if err != nil {
			return
		}
		if s.Hash, err = canonicalHash(r, headers, []byte(body)); err != nil {
			return
		}
		got, ok := cloudsim.ParseSignature(s.Token())
		if ok && got != s {
			t.Errorf("got signature %+v, want %+v", got, s)
		}
	})
}
