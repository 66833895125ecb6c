package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

func sendRequest(t *testing.T, c *client.Client, method, path, body string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := c.Token()
	req.Header.Set("Authorization", "Bearer "+secret)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, raw
}

// TestBadInput proves that the answer to an invalid request is a 4xx problem document. The document
// names the field and the reason. The request changes nothing.
func TestBadInput(t *testing.T) {
	c := cloudtest.Start(t)
	const inst = `"name":"a","zone":"sim-1a","type":"small"`
	const spec = `"listeners":[{"protocol":"tcp","port":80,"targetPort":30080}],"healthCheck":{"protocol":"tcp"}`
	lb, err := c.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{Name: "there", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
		Listeners: []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}}, HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rev := func() uint64 {
		l, err := c.ListEvents(t.Context(), cloudsim.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Revision
	}
	for name, tc := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		kind               cloudsim.Kind
		says               string // text that the answer must contain
	}{
		"events of one resource":        {"GET", "/v1/events?kind=instances", "", nil, 400, cloudsim.Invalid, `kind`},
		"watch of one resource":         {"GET", "/v1/watch?kind=instances", "", nil, 400, cloudsim.Invalid, `kind`},
		"body that is not JSON":         {"POST", "/v1/instances", `{`, nil, 400, cloudsim.Invalid, "body"},
		"no body":                       {"POST", "/v1/instances", ``, nil, 400, cloudsim.Invalid, "body"},
		"null":                          {"POST", "/v1/instances", `null`, nil, 400, cloudsim.Invalid, "object"},
		"body that is a JSON list":      {"POST", "/v1/instances", `[]`, nil, 400, cloudsim.Invalid, "object"},
		"trailing":                      {"POST", "/v1/instances", `{` + inst + `} x`, nil, 400, cloudsim.Invalid, "body"},
		"unknown field":                 {"POST", "/v1/instances", `{` + inst + `,"size":1}`, nil, 400, cloudsim.Invalid, "size"},
		"field name in another case":    {"POST", "/v1/instances", `{"NAME":"a","zone":"sim-1a","type":"small"}`, nil, 400, cloudsim.Invalid, `"NAME","reason":"unexpected`},
		"wrong type":                    {"POST", "/v1/instances", `{"name":1,"zone":"sim-1a","type":"small"}`, nil, 400, cloudsim.Invalid, "name"},
		"missing field":                 {"POST", "/v1/instances", `{"name":"a"}`, nil, 400, cloudsim.Invalid, `{"field":"zone","reason":"is required"}`},
		"missing nested field":          {"POST", "/v1/load-balancers", `{"name":"a","region":"sim-1","listeners":[{"protocol":"tcp","targetPort":1}],"healthCheck":{"protocol":"tcp"}}`, nil, 400, cloudsim.Invalid, `"listeners[0].port"`},
		"bad name":                      {"POST", "/v1/instances", `{"name":"A b","zone":"sim-1a","type":"small"}`, nil, 400, cloudsim.Invalid, "name"},
		"several invalid fields":        {"POST", "/v1/instances", `{"name":"A b","zone":"sim-1a","type":"small","address":"a"}`, nil, 400, cloudsim.Invalid, `"field":"address"`},
		"number too big":                {"POST", "/v1/disks", `{"name":"a","zone":"sim-1a","type":"balanced","sizeGiB":1e30}`, nil, 400, cloudsim.Invalid, `"field":"sizeGiB"`},
		"number below zero":             {"POST", "/v1/faults", `{"name":"a","match":{"operation":"*"},"effect":{"type":"error"},"when":{"skip":-1}}`, nil, 400, cloudsim.Invalid, `"field":"when.skip"`},
		"unknown error kind":            {"POST", "/v1/faults", `{"name":"a","match":{"operation":"*"},"effect":{"type":"error","kind":"other"}}`, nil, 400, cloudsim.Invalid, `"field":"effect.kind"`},
		"deleted parent":                {"POST", "/v1/instances", `{"name":"a","zone":"sim-9","type":"small"}`, nil, 400, cloudsim.Invalid, "zone"},
		"huge body":                     {"POST", "/v1/instances", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, nil, 413, cloudsim.Invalid, "limit"},
		"content type that is not JSON": {"POST", "/v1/instances", `name=a`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, cloudsim.Invalid, "content type"},
		"port too big":                  {"POST", "/v1/load-balancers", `{"name":"a","region":"sim-1","listeners":[{"protocol":"tcp","port":99999,"targetPort":1}],"healthCheck":{"protocol":"tcp"}}`, nil, 400, cloudsim.Invalid, "listeners[0].port"},
		"port overflows":                {"POST", "/v1/load-balancers", `{"name":"a","region":"sim-1","listeners":[{"protocol":"tcp","port":1e30,"targetPort":1}],"healthCheck":{"protocol":"tcp"}}`, nil, 400, cloudsim.Invalid, "port"},
		"same port twice":               {"POST", "/v1/load-balancers", `{"name":"a","region":"sim-1","listeners":[{"protocol":"tcp","port":1,"targetPort":1},{"protocol":"tcp","port":1,"targetPort":2}],"healthCheck":{"protocol":"tcp"}}`, nil, 400, cloudsim.Invalid, "listeners[1].port"},
		"unknown target":                {"POST", "/v1/load-balancers", `{"name":"a","region":"sim-1","targets":[{"instance":"i-zzz"}],` + spec + `}`, nil, 400, cloudsim.Invalid, "targets[0].instance"},
		"bad id":                        {"GET", "/v1/instances/..%2f..%2fetc", "", nil, 404, cloudsim.NotFound, ""},
		"NUL in an id":                  {"GET", "/v1/instances/%00", "", nil, 404, cloudsim.NotFound, ""},
		"long id":                       {"GET", "/v1/instances/" + strings.Repeat("x", 200), "", nil, 400, cloudsim.Invalid, "id"},
		"empty id":                      {"DELETE", "/v1/instances/", "", nil, 404, cloudsim.NotFound, ""},
		"unknown instance":              {"POST", "/v1/instances/i-0000ff/stop", "", nil, 404, cloudsim.NotFound, "i-0000ff"},
		"unknown path":                  {"GET", "/v1/pets", "", nil, 404, cloudsim.NotFound, "/v1/pets"},
		"wrong method":                  {"PATCH", "/v1/instances", "{}", nil, 405, cloudsim.Invalid, "PATCH"},
		"bad limit":                     {"GET", "/v1/instances?limit=many", "", nil, 400, cloudsim.Invalid, "limit"},
		"negative limit":                {"GET", "/v1/instances?limit=-1", "", nil, 400, cloudsim.Invalid, "limit"},
		"unknown query":                 {"GET", "/v1/instances?filter=x", "", nil, 400, cloudsim.Invalid, "filter"},
		"bad label":                     {"GET", "/v1/instances?label=x", "", nil, 400, cloudsim.Invalid, "label"},
		"two values for one label":      {"GET", "/v1/instances?label=app=a&label=app=b", "", nil, 400, cloudsim.Invalid, `two values for the key \"app\"`},
		"bad since":                     {"GET", "/v1/events?since=-1", "", nil, 400, cloudsim.Invalid, "since"},
		"since a future revision":       {"GET", "/v1/watch?since=999999", "", nil, 410, cloudsim.Gone, "999999"},
		"bad If-Match":                  {"PUT", "/v1/load-balancers/lb-000001", `{` + spec + `}`, []string{"If-Match", "yesterday"}, 400, cloudsim.Invalid, "If-Match"},
		"If-Match of no use":            {"DELETE", "/v1/instances/i-000001", "", []string{"If-Match", `"1"`}, 400, cloudsim.Invalid, "If-Match"},
		"targets with an old revision":  {"PUT", "/v1/load-balancers/" + string(lb.ID) + "/targets", `{"targets":[]}`, []string{"If-Match", `"1"`}, 412, cloudsim.Stale, string(lb.ID)},
		"long idempotency key":          {"POST", "/v1/instances", `{` + inst + `}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, cloudsim.Invalid, "Idempotency-Key"},
		"idempotency key with invalid characters": {"POST", "/v1/instances", `{` + inst + `}`, []string{"Idempotency-Key", "caf\xe9"}, 400, cloudsim.Invalid, "ASCII"},
		"wrong token":           {"GET", "/v1/instances", "", []string{"Authorization", "Bearer guess"}, 401, cloudsim.Unauthenticated, "token"},
		"another scheme":        {"GET", "/v1/instances", "", []string{"Authorization", "Basic YTpi"}, 401, cloudsim.Unauthenticated, "Bearer"},
		"wrong token, bad body": {"POST", "/v1/instances", "{", []string{"Authorization", "Bearer guess"}, 401, cloudsim.Unauthenticated, "token"},
		"unknown project":       {"GET", "/v1/instances", "", []string{"Cloud-Project", "nope"}, 404, cloudsim.NotFound, "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			before := rev()
			resp, raw := sendRequest(t, c, tc.method, tc.path, tc.body, tc.headers...)
			var p cloudsim.Problem
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatalf("%s: the body is no problem document: %.300s", resp.Status, raw)
			}
			if resp.StatusCode != tc.status || p.Status != tc.status || p.Kind != tc.kind {
				t.Errorf("got status %s, kind %s: %s; want %d, %s", resp.Status, p.Kind, p.Detail, tc.status, tc.kind)
			}
			if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("got Content-Type %s, want application/problem+json", ct)
			}
			if p.RequestID == "" || p.RequestID != resp.Header.Get("X-Request-Id") {
				t.Errorf("got request ID %q in the body and %q in the header, want equal IDs", p.RequestID, resp.Header.Get("X-Request-Id"))
			}
			if !bytes.Contains(raw, []byte(tc.says)) {
				t.Errorf("the error does not contain %q: %s", tc.says, raw)
			}
			if len(raw) > 4096 {
				t.Errorf("got an error of %d bytes, want at most 4096", len(raw))
			}
			if after := rev(); after != before {
				t.Errorf("the invalid call changed the cloud: got revision %d, want %d", after, before)
			}
		})
	}
}

// TestAuditedTargetIsShort proves that the audit trail stores only the beginning of a long
// id. This limits the size of an entry.
func TestAuditedTargetIsShort(t *testing.T) {
	c := cloudtest.Start(t)
	sendRequest(t, c, "GET", "/v1/instances/"+strings.Repeat("x", 60_000), "")
	trail, err := c.Audit(t.Context(), cloudsim.AuditOptions{})
	if err != nil || len(trail.Items) == 0 {
		t.Fatalf("audit trail: got %+v, error %v; want entries", trail, err)
	}
	for _, e := range trail.Items {
		if len(e.Target) > 128 {
			t.Errorf("the entry of %s has a target of %d bytes, want at most 128", e.Operation, len(e.Target))
		}
	}
}

func TestHeaders(t *testing.T) {
	c := cloudtest.Start(t)
	resp, raw := sendRequest(t, c, "POST", "/v1/instances", `{"name":"a","zone":"sim-1a","type":"small"}`, "X-Request-Id", "mine-1")
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("X-Request-Id") != "mine-1" {
		t.Fatalf("creation with a request ID: got %s %v: %s; want 201 and the same ID", resp.Status, resp.Header, raw)
	}
	var i cloudsim.Instance
	if err := json.Unmarshal(raw, &i); err != nil {
		t.Fatal(err)
	}
	evs, err := c.ListEvents(t.Context(), cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}})
	if err != nil || len(evs.Items) == 0 || evs.Items[0].RequestID != "mine-1" {
		t.Errorf("events of the creation: got %+v, error %v; want request ID mine-1", evs.Items, err)
	}
	resp, _ = sendRequest(t, c, "GET", "/v1/instances/"+string(i.ID), "", "X-Request-Id", "not\tone")
	if id := resp.Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req-") {
		t.Errorf("request ID with a tab: got %q, want a generated ID", id)
	}
	if resp.Header.Get("ETag") == "" {
		t.Error("the reply has no ETag")
	}
	resp, _ = sendRequest(t, c, "PATCH", "/v1/instances", "{}")
	if allow := resp.Header.Get("Allow"); allow != "GET, POST" {
		t.Errorf("reply 405: got Allow %q, want GET, POST", allow)
	}
	resp, _ = sendRequest(t, c, "GET", "/v1/instances", "", "Authorization", "")
	if resp.Header.Get("WWW-Authenticate") == "" {
		t.Error("reply 401 has no WWW-Authenticate header")
	}
}

func TestDocuments(t *testing.T) {
	c := cloudtest.Start(t)
	_, raw := sendRequest(t, c, "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI    string                                `json:"openapi"`
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Paths) < 20 {
		t.Errorf("got OpenAPI %s with %d paths, want 3.1 with at least 20 paths", doc.OpenAPI, len(doc.Paths))
	}
	if p := doc.Components.Schemas["Token"].Properties; p["hash"] != nil || p["secret"] == nil {
		t.Errorf("schema of Token: got properties %v, want secret and not hash", p)
	}
	_, page := sendRequest(t, c, "GET", "/docs", "")
	for path := range doc.Paths {
		if !bytes.Contains(page, []byte(path)) {
			t.Errorf("the reference page does not contain %s", path)
		}
	}
	for _, ref := range []string{"http://", "https://", "<script"} {
		if bytes.Contains(page, []byte(ref)) {
			t.Errorf("the reference page contains %s, want no external references", ref)
		}
	}
	if _, metrics := sendRequest(t, c, "GET", "/metrics", ""); !bytes.Contains(metrics, []byte(`cloudsim_api_requests_total{code="200"`)) {
		t.Errorf("metrics: got %.300s, want cloudsim_api_requests_total", metrics)
	}
}
