package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestCompression proves that the API compresses large lists for callers that accept gzip. The API
// does not compress small answers. It also does not compress watches, so that each line of a watch
// arrives at once.
func TestCompression(t *testing.T) {
	c := cloudtest.Start(t)
	long := strings.Repeat("x", 60)
	for n := range 100 {
		in := cloudsim.CreateAddress{Name: fmt.Sprint("a-", n), Labels: map[string]string{}}
		for l := range 30 {
			in.Labels[fmt.Sprint(l)] = long
		}
		if _, err := c.CreateAddress(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	encoding := func(path, accept string) (string, []byte) {
		t.Helper()
		resp, raw := sendRequest(t, c, http.MethodGet, path, "", "Accept-Encoding", accept)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s: %s", path, resp.Status, raw)
		}
		return resp.Header.Get("Content-Encoding"), raw
	}
	const list = "/v1/addresses"
	plainAs, plain := encoding(list, "identity")
	zippedAs, zipped := encoding(list, "gzip")
	if plainAs != "" || zippedAs != "gzip" || len(zipped) > len(plain)/10 {
		t.Fatalf("list without compression: got encoding %q and %d bytes; with gzip: got encoding %q and %d bytes; want gzip with at most a tenth of the bytes", plainAs, len(plain), zippedAs, len(zipped))
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("the decompressed list differs from the plain list (error %v)", err)
	}
	for _, small := range []string{list + "?limit=1", "/v1/zones"} {
		if as, _ := encoding(small, "gzip"); as != "" {
			t.Errorf("%s: encoding %q of a small answer, want none", small, as)
		}
	}
	if l, err := c.ListAddresses(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) != 100 {
		t.Errorf("the client reads %d addresses (error %v), want 100", len(l.Items), err)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := c.Token()
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || resp.Header.Get("Content-Encoding") != "" || !strings.HasPrefix(line, `{"rev":`) {
		t.Errorf("watch with gzip: got encoding %q, first line %q, error %v; want no encoding and an event", resp.Header.Get("Content-Encoding"), line, err)
	}
}
