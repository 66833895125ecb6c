package engine_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// BenchmarkDurableCreates makes instances with 64 writers, each waiting for
// its commit. The limit in the same run is bbolt alone: it writes what the
// engine left in its file, the same keys and bytes in the same buckets, in
// transactions of the same number of creates, to a fresh file.
//
// of-bbolt is the engine's rate as a part of bbolt's; it should be 0.7 or more.
func BenchmarkDurableCreates(b *testing.B) {
	const writers = 64
	dir := b.TempDir()
	path := filepath.Join(dir, "cloud.db")
	st, err := store.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Instances = netip.MustParsePrefix("10.0.0.0/8")
	e := engine.New(slog.New(slog.DiscardHandler), st, cfg) // not run: nothing settles meanwhile
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		b.Fatal(err)
	}
	before := commits(b, st.Close, path)
	if st, err = store.Open(path); err != nil {
		b.Fatal(err)
	}
	e = engine.New(slog.New(slog.DiscardHandler), st, cfg)
	ctx, err := e.Admit(b.Context(), engine.Request{Secret: "secret", Project: engine.DefaultProject, Access: engine.Write})
	if err != nil {
		b.Fatal(err)
	}

	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	begin := time.Now()
	for range writers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				req := cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", n), Zone: "sim-1a", Type: "small"}
				if _, err := e.CreateInstance(ctx, req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	ours := time.Since(begin)
	b.StopTimer()

	n := commits(b, st.Close, path) - before
	limit := replay(b, path, filepath.Join(dir, "limit.db"), n)
	b.ReportMetric(float64(b.N)/ours.Seconds(), "creates/s")
	b.ReportMetric(float64(b.N)/float64(n), "creates/commit")
	b.ReportMetric(limit.Seconds()/ours.Seconds(), "of-bbolt")
}

// commits closes a store and returns how many transactions its file has seen.
func commits(b *testing.B, closeStore func() error, path string) int {
	b.Helper()
	if err := closeStore(); err != nil {
		b.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	id := 0
	_ = db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	return id
}

// replay writes the content of one file to another in n transactions and
// returns how long that took.
func replay(b *testing.B, from, to string, n int) time.Duration {
	b.Helper()
	type put struct{ key, value []byte }
	content := map[string][]put{}
	src, err := bolt.Open(from, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	if err := src.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bk *bolt.Bucket) error {
			return bk.ForEach(func(k, v []byte) error {
				content[string(name)] = append(content[string(name)], put{append([]byte{}, k...), append([]byte{}, v...)})
				return nil
			})
		})
	}); err != nil {
		b.Fatal(err)
	}
	if err := src.Close(); err != nil {
		b.Fatal(err)
	}
	dst, err := bolt.Open(to, 0o600, &bolt.Options{FreelistType: bolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer dst.Close()
	begin := time.Now()
	for i := range n {
		if err := dst.Update(func(tx *bolt.Tx) error {
			for name, puts := range content {
				bk, err := tx.CreateBucketIfNotExists([]byte(name))
				if err != nil {
					return err
				}
				for _, p := range puts[len(puts)*i/n : len(puts)*(i+1)/n] {
					if err := bk.Put(p.key, p.value); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
