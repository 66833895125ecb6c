package hollow

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// After a port fails, the responder notifies the proxy, and the next sync opens the port
// again.
func TestDeadPortIsOpenedAgain(t *testing.T) {
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	broke := 0
	r := &responder{
		log: slog.New(slog.DiscardHandler), ip: "127.0.0.1", broke: func() { broke++ },
		open: map[socketKey]*socket{}, failed: map[socketKey]string{},
	}
	defer r.closePorts()
	key := socketKey{proxyHealthz, int32(port)}
	want := map[socketKey]*view{key: {eligible: true}}
	if !r.syncPorts(context.Background(), want) {
		t.Fatal("syncPorts did not open the port")
	}
	first := r.open[key]
	r.markFailed(key, first, errors.New("accept: no buffer space available"))
	if broke != 1 {
		t.Errorf("got %d reports, want 1", broke)
	}
	if !r.syncPorts(context.Background(), want) || r.open[key] == first {
		t.Error("the responder did not open the dead port again")
	}
	resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
