package hcloud

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// FuzzService adds a service with a random request, and then changes the service with another
// random request. If the dialect accepts both requests, the interval and the timeout of the health
// check must be at most 60 seconds. Then FuzzService reads the service from the dialect, and sends
// the values of this service in a third request. The third request must not change the service.
func FuzzService(f *testing.F) {
	f.Add([]byte(`{"protocol":"tcp","listen_port":80,"destination_port":30080}`), []byte(`{"listen_port":80,"proxyprotocol":true}`))
	f.Add([]byte(`{"protocol":"tcp","listen_port":80,"destination_port":1,"health_check":{"protocol":"http","port":2,"interval":3,"timeout":1,"retries":2,"http":{"path":"/x","status_codes":["2??","30?","404"],"tls":true}}}`),
		[]byte(`{"listen_port":80,"health_check":{"protocol":"tcp"}}`))
	f.Fuzz(func(t *testing.T, add, update []byte) {
		var a, u serviceRequest
		if dialect.Decode(add, &a) != nil || dialect.Decode(update, &u) != nil {
			return
		}
		l := cloudsim.LoadBalancer{Meta: cloudsim.Meta{Labels: map[string]string{}}}
		if addService(&l, a) != nil || updateService(&l, u) != nil {
			return
		}
		shown := loadBalancerOf(l).Services[0]
		raw, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		var request serviceRequest
		if err := dialect.Decode(raw, &request); err != nil {
			t.Fatalf("decode of the shown service %s: got error %v", raw, err)
		}
		if shown.HealthCheck.Interval > 60 || shown.HealthCheck.Timeout > 60 {
			t.Fatalf("got health check %+v, want at most 60 seconds", shown.HealthCheck)
		}
		if err := updateService(&l, request); err != nil {
			t.Fatalf("update with the shown service %s: got error %v", raw, err)
		}
		if second, _ := json.Marshal(loadBalancerOf(l).Services[0]); string(second) != string(raw) {
			t.Fatalf("service after an update with its own values: got %s, want %s", second, raw)
		}
	})
}

// FuzzStatusCodes converts two patterns in Hetzner's format, e.g. "2??", to status codes and back.
// It proves that the result is equal to the original patterns.
func FuzzStatusCodes(f *testing.F) {
	for _, s := range []string{"200", "2??", "30?", "???", "2", "-1?", ""} {
		f.Add(s, "404")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		codes, err := expectedCodes([]string{a, b})
		if err != nil {
			return
		}
		if got := statusCodes(codes); !slices.Equal(got, []string{a, b}) {
			t.Errorf("%q and %q: got codes %q and then patterns %q", a, b, codes, got)
		}
	})
}

// FuzzSelector proves that parseSelector and the function that it returns do not panic. It also
// proves that no returned label has an empty key.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{"a", "a=b", "a==b,c!=d", "a in (b,c),!d", "a>1", "a=b,a=c", "=", "a in ("} {
		f.Add(s, "a", "b")
	}
	f.Fuzz(func(t *testing.T, s, k, v string) {
		equal, keep, err := parseSelector(s)
		if err != nil {
			return
		}
		for key := range equal {
			if key == "" {
				t.Errorf("selector %q: got an empty key", s)
			}
		}
		if keep != nil {
			keep(map[string]string{k: v})
		}
	})
}

// FuzzReference proves that the decoder of the type idOrName does not panic. It also proves that a
// decoded value never contains both an id and a name.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"1", `"1"`, `"lb11"`, "null", "{}", "1e400", `"99999999999999999999"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var o idOrName
		if err := json.Unmarshal(raw, &o); err == nil && o.id != 0 && o.name != "" {
			t.Errorf("%q: got both the id %d and the name %q", raw, o.id, o.name)
		}
	})
}

// FuzzDecode decodes any body as several kinds of requests. It proves that the error for an invalid
// body has the status 400 or 422.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"x","server_type":"small","image":1,"networks":[1],"ssh_keys":["k",2],"public_net":{"enable_ipv4":true}}`))
	f.Add([]byte(`{"name":"x","load_balancer_type":"lb11","services":[{"protocol":"tcp","listen_port":80}],"targets":[{"type":"server","server":{"id":1}}]}`))
	f.Add([]byte(`{"name":"x","ip_range":"10.0.0.0/8","subnets":[{"type":"cloud"}]}`))
	f.Add([]byte(`{"size":10,"location":null,"labels":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, into := range []any{
			new(createServer), new(createVolume), new(createLoadBalancer), new(newNetwork), new(updateResource), new(serviceRequest), new(targetRequest),
			new(attachRequest), new(attachVolumeRequest), new(changeTypeRequest), new(networkSubnet), new(networkRoute),
		} {
			if err := dialect.Decode(raw, into); err != nil {
				if s := failureOf(err).Status; s != 400 && s != 422 {
					t.Errorf("%q as %T: got error %v with the status %d", raw, into, err, s)
				}
			}
		}
	})
}

// FuzzQuery parses any query. It proves that the selected page of a list is not longer than the
// page size. It also proves that the number of the last page is right.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"page=2&per_page=3", "page=9223372036854775807", "per_page=0", "sort=name:desc&sort=id", "label_selector=a%3Db", "page=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, err := parseQuery(values, "name")
		if err != nil {
			if s := failureOf(err).Status; s != 422 {
				t.Errorf("query %q: got error %v with the status %d", raw, err, s)
			}
			return
		}
		items, m := slicePage([]int{1, 2, 3, 4, 5, 6, 7}, q)
		if p := m.Pagination; len(items) > p.PerPage || p.PerPage > maxPerPage || *p.LastPage != (6+p.PerPage)/p.PerPage {
			t.Errorf("query %q: got items %v, per_page %d, last_page %d; want at most per_page items, per_page at most %d and last_page %d", raw, items, p.PerPage, *p.LastPage, maxPerPage, (6+p.PerPage)/p.PerPage)
		}
	})
}

// TestCallsAreUnique proves that each call has a valid and unique name, and a summary. It also
// proves that no two calls have the same method and path.
func TestCallsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range New().Calls {
		if seen[c.Name] || seen[c.Method+c.Path] || !cloudsim.ValidDialectCall(Name+"."+c.Name) || c.Summary == "" {
			t.Errorf("invalid or duplicate call: %+v", c)
		}
		seen[c.Name], seen[c.Method+c.Path] = true, true
	}
}

func TestErrorKindsHaveStatusAndCode(t *testing.T) {
	for _, k := range cloudsim.Kinds() {
		if f := kindFailures[k]; f.Status < 400 || f.Code == "" {
			t.Errorf("error kind %s has no status or no code", k)
		}
	}
}
