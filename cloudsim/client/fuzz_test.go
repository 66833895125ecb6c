package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

type fixedServer struct {
	status int
	body   []byte
}

func (a fixedServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

func talksTo(a fixedServer) *client.Client {
	return &client.Client{URL: "http://cloud", HTTP: &http.Client{Transport: a}}
}

// FuzzWatch proves that a watch ends with exactly one error for any stream of bytes from the
// server. The error is the last item, and has a kind and a message.
func FuzzWatch(f *testing.F) {
	f.Add([]byte(`{"rev":1,"type":"put","kind":"instance","id":"i-000001","object":{}}` + "\n" + `{"rev":1,"type":"bookmark"}`))
	f.Add([]byte(`{"problem":{"kind":"gone","detail":"list again"}}`))
	f.Add([]byte(`{"problem":{}}`))
	f.Add([]byte(`{"rev":-1}`))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var ended error
		for _, err := range talksTo(fixedServer{http.StatusOK, stream}).Watch(t.Context(), cloudsim.WatchOptions{}) {
			if ended != nil {
				t.Fatalf("the watch continues after error %v", ended)
			}
			ended = err
		}
		checkError(t, ended)
	})
}

// FuzzProblem proves that any error reply of a server or a proxy becomes an error with a
// kind and a message.
func FuzzProblem(f *testing.F) {
	f.Add(404, []byte(`{"status":404,"kind":"not_found","detail":"no instance i-000001"}`))
	f.Add(404, []byte(`{"status":404,"kind":"not_found"}`))
	f.Add(400, []byte(`{"status":400,"kind":"invalid","detail":"x","errors":[{"field":"name","reason":"is required"}]}`))
	f.Add(502, []byte("<html>"))
	f.Add(500, []byte(`{"status":500,"kind":"from a newer cloud"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 400 || status > 599 {
			t.Skip("the status is no error")
		}
		_, err := talksTo(fixedServer{status, body}).GetInstance(t.Context(), "i-000001")
		checkError(t, err)
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*cloudsim.Error](err); !ok || e.Error() == "" {
		t.Fatalf("got %#v, want a cloudsim.Error with a text", err)
	}
}
