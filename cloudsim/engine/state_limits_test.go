package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// TestImportRefusesWrongNumbers proves that an import refuses a saved state with an impossible
// clock rate, and a saved state with the largest possible revision. With a negative rate, the loop
// in Engine.Run would never wait. After the largest revision, the revisions would begin at 0 again.
// An import also refuses a floor or a gap after the last revision. With such a floor, every watch
// would end with Gone. With such a gap, the journal would keep all events.
func TestImportRefusesWrongNumbers(t *testing.T) {
	clock := func(rate float64) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			now := uint64(time.Now().UnixNano())
			raw := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, now), now)
			return tx.Bucket([]byte("meta")).Put([]byte("clock"), binary.BigEndian.AppendUint64(raw, math.Float64bits(rate)))
		}
	}
	gaps := func(raw string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("gaps"), []byte(raw)) }
	}
	for name, change := range map[string]func(*bolt.Tx) error{
		"negative rate": clock(-1), "rate without a value": clock(math.NaN()), "infinite rate": clock(math.Inf(1)),
		"last revision": func(tx *bolt.Tx) error {
			journal := tx.Bucket([]byte("journal"))
			gap := fmt.Sprintf("[[%d,%d]]", journal.Sequence()+1, uint64(math.MaxUint64))
			return errors.Join(journal.SetSequence(math.MaxUint64), gaps(gap)(tx))
		},
		"floor after the last revision": func(tx *bolt.Tx) error {
			floor := binary.BigEndian.AppendUint64(nil, math.MaxUint64)
			return errors.Join(gaps("[[0,0]]")(tx), tx.Bucket([]byte("meta")).Put([]byte("journalFloor"), floor))
		},
		"gap after the last revision": func(tx *bolt.Tx) error {
			last := tx.Bucket([]byte("journal")).Sequence()
			err := tx.DeleteBucket([]byte("journal"))
			journal, err2 := tx.CreateBucket([]byte("journal"))
			return errors.Join(err, err2, journal.SetSequence(last), gaps(fmt.Sprintf("[[1,%d],[0,%d]]", uint64(math.MaxUint64), last))(tx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
			defer stop()
			_, err := e.ImportState(engine.AsCloud(t.Context()), "s", bytes.NewReader(changedState(t, change)))
			expectError(t, err, cloudsim.Invalid, "damaged")
		})
	}
}

// changedState changes records in the file of a new cloud, and then returns this file as an
// exported state.
func changedState(t *testing.T, change func(*bolt.Tx) error) []byte {
	t.Helper()
	path := file(t)
	_, stop := boot(t, path, instant)
	stop()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var out bytes.Buffer
	if err := st.Archive(statefile.NewWriter(&out), nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
