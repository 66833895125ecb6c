package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// hangingServer simulates a cloud that answers a watch with the given lines, and then sends
// no more data. If lines is empty, the cloud does not answer.
type hangingServer struct{ lines string }

func (h hangingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	rest := endless{r}
	if h.lines == "" {
		_, err := rest.Read(nil)
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.MultiReader(bytes.NewBufferString(h.lines), rest)), Request: r}, nil
}

type endless struct{ r *http.Request }

func (e endless) Read([]byte) (int, error) {
	<-e.r.Context().Done()
	return 0, e.r.Context().Err()
}

// TestWatchOfACloudThatHangs proves that a watch ends with Unavailable if the cloud sends no data
// for 90 s. The time in which the caller handles an event does not count toward the 90 s.
func TestWatchOfACloudThatHangs(t *testing.T) {
	for name, lines := range map[string]string{
		"before it answers": "",
		"after two events":  `{"rev":1,"type":"put"}` + "\n" + `{"rev":2,"type":"put"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := client.Client{URL: "http://cloud", HTTP: &http.Client{Transport: hangingServer{lines}}}
				revs, begin := 0, time.Now()
				var last error
				for e, err := range c.Watch(t.Context(), cloudsim.WatchOptions{}) {
					if last = err; err == nil {
						revs += int(e.Rev)
						time.Sleep(time.Hour)
						begin = time.Now()
					}
				}
				if took := time.Since(begin); !errors.Is(last, cloudsim.Unavailable) || !strings.Contains(last.Error(), "nothing") || took != 90*time.Second {
					t.Errorf("after %s: got error %v, want Unavailable after 1m30s", took, last)
				}
				if want := 3; lines != "" && revs != want {
					t.Errorf("sum of the revisions: got %d, want %d", revs, want)
				}
			})
		})
	}
}
