package engine_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// FuzzImportState imports a saved state with one arbitrary record. It proves
// that the cloud refuses this saved state, or loads it and then still answers
// calls.
func FuzzImportState(f *testing.F) {
	for _, s := range [][3]string{
		{"meta", "clock", "012345678901234567890123"}, {"meta", "gaps", "[[1,2,3]]"}, {"meta", "epoch", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"meta", "journalFloor", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"object/instance", "i-000001", "{}"}, {"object/instance", "i-000001", "null"}, {"object/instance", "i-000001", `{"id":"i-000001"}`},
		{"object/disk", "disk-000001", `{"id":"disk-000001","state":"attached"}`}, {"object/fault", "fault-000001", `{"id":"fault-000001","match":{"operation":"["}}`},
		{"object/zone", "sim-1a", "[]"}, {"object/nothing", "x", "y"}, {"index/instance/name", "a\x00b\x00i-1", ""},
		{"due", "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", `{"kind":"instance","id":"i-000001","verb":"settle"}`},
		{"due", "\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00", `{"kind":"x","id":"","verb":""}`},
		{"free/x", "\xff\xff\xff\xff\xff\xff\xff\xff", ""}, {"pool/x", "x", "x"}, {"note/rateLimits", "limits", `{"read":{"perSecond":-1}}`},
		{"journal", "\x00\x00\x00\x00\x00\x00\x00\x02", "\xff"}, {"usage", "proj-000001\x00instances", "01234567"},
	} {
		f.Add(s[0], []byte(s[1]), []byte(s[2]))
	}
	good := savedFile(f)
	f.Fuzz(func(t *testing.T, bucket string, key, value []byte) {
		ctx := engine.AsCloud(t.Context())
		e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
		defer stop() // stop fails the test if the cloud has already stopped, or if its file is damaged
		if _, err := e.ImportState(ctx, "s", bytes.NewReader(withRecord(t, good, bucket, key, value))); err != nil {
			if !errors.Is(err, cloudsim.Invalid) {
				t.Errorf("import: %v", err)
			}
			return
		}
		if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil && cloudsim.KindOf(err) == cloudsim.Internal {
			t.Errorf("load: %v", err)
		}
		if _, err := e.ListInstances(ctx, cloudsim.ListOptions{}); err != nil {
			t.Error(err)
		}
		if err := e.ResetState(ctx); err != nil {
			t.Errorf("reset: %v", err)
		}
		mustCreate(t, e, ctx, "new")
	})
}

// savedFile returns the content of a store's file. The store contains an instance that has a disk.
func savedFile(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "cloud.db")
	st, err := store.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Profile = engine.Instant
	e := engine.New(slog.New(slog.DiscardHandler), st, cfg)
	ctx := engine.AsCloud(f.Context())
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		f.Fatal(err)
	}
	_, err1 := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"})
	d, err2 := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "d", Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
	_, err3 := e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: "i-000001"})
	if err := errors.Join(err1, err2, err3, st.Close()); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return raw
}

// withRecord adds or replaces one record in a store's file, and returns the result as an exported
// state. If the store refuses the record, withRecord skips the test.
func withRecord(t *testing.T, file []byte, bucket string, key, value []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put(key, value)
	})
	if closed := db.Close(); err != nil || closed != nil {
		t.Skip("bbolt accepts no such record")
	}
	st, err := store.Open(path)
	if err != nil {
		t.Skip("the engine refuses this state")
	}
	defer st.Close()
	var out bytes.Buffer
	if err := st.Archive(statefile.NewWriter(&out), nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
