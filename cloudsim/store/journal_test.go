package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func TestAppendEventIsMarshal(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 678900000, time.UTC)
	for _, e := range []cloudsim.Event{
		{},
		{Rev: 1<<64 - 1, Time: at, Type: cloudsim.EventPut, Kind: cloudsim.KindInstance, ID: "i-000001", Project: "proj-000001", RequestID: "req-1", Caller: "ccm", Cause: "instances.stop i-1", Object: []byte(`{"a":[1,"x"]}`)},
		{Rev: 7, Time: at.Truncate(time.Second), Type: cloudsim.EventDelete, Kind: cloudsim.KindZone, ID: "a\"b\\c<d>&e\n\u2028é\xff"},
	} {
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendEvent(nil, e); string(got) != string(want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
