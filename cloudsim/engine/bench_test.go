package engine_test

import (
	"bytes"
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

// BenchmarkDurableCreates creates instances with 64 concurrent writers. Each writer waits for its
// commit. For comparison, the benchmark also writes the same keys and values directly with bbolt,
// the database of the store. It writes them to another file, in the same number of transactions.
// Rounds with the engine and rounds with bbolt alternate, so that other load on the disk affects
// both rates equally.
//
// The metric "of-bbolt" is the rate of the engine divided by the rate of bbolt. This metric should
// be 0.6 or more.
func BenchmarkDurableCreates(b *testing.B) {
	const rounds = 10
	dir := b.TempDir()
	limitDB, err := bolt.Open(filepath.Join(dir, "limit.db"), 0o600, &bolt.Options{FreelistType: bolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer limitDB.Close()
	path := filepath.Join(dir, "cloud.db")
	timeCreates(b, path, 0, 0) // the first call creates the file
	seen, commits := content(b, path)
	var engineTime, limit time.Duration
	made, transactions := 0, 0
	for r := range rounds {
		n := b.N/rounds + 1
		engineTime += timeCreates(b, path, r*n, n)
		made += n
		now, c := content(b, path)
		limit += replay(b, limitDB, addedKeys(now, seen), c-commits-1) // minus 1, because timeCreates makes one commit when it opens the file
		transactions += c - commits - 1
		seen, commits = now, c
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(made)/engineTime.Seconds(), "creates/s")
	b.ReportMetric(float64(made)/float64(transactions), "creates/commit")
	b.ReportMetric(limit.Seconds()/engineTime.Seconds(), "of-bbolt")
}

// timeCreates opens a cloud and creates n instances. It returns the time that
// the creations took.
func timeCreates(b *testing.B, path string, first, n int) time.Duration {
	b.Helper()
	st, err := store.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	cfg := engine.Default()
	cfg.Instances = netip.MustParsePrefix("10.0.0.0/8")
	e := engine.New(slog.New(slog.DiscardHandler), st, cfg) // the benchmark does not call Run, so the engine completes no operations
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		b.Fatal(err)
	}
	ctx, err := e.Authorize(b.Context(), engine.Request{Secret: "secret", Project: engine.DefaultProject, Access: engine.Write})
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				req := cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", first+int(i)), Zone: "sim-1a", Type: "small"}
				if _, err := e.CreateInstance(ctx, req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

type kv struct{ key, value []byte }

// content returns all keys and values of a bbolt file, and the number of committed transactions in
// the file.
func content(b *testing.B, path string) (buckets map[string][]kv, commits int) {
	b.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	buckets = map[string][]kv{}
	if err := db.View(func(tx *bolt.Tx) error {
		commits = tx.ID()
		return tx.ForEach(func(name []byte, bk *bolt.Bucket) error {
			return bk.ForEach(func(k, v []byte) error {
				buckets[string(name)] = append(buckets[string(name)], kv{bytes.Clone(k), bytes.Clone(v)})
				return nil
			})
		})
	}); err != nil {
		b.Fatal(err)
	}
	return buckets, commits
}

func addedKeys(newContent, oldContent map[string][]kv) map[string][]kv {
	out := map[string][]kv{}
	for bucket, pairs := range newContent {
		old := map[string]bool{}
		for _, p := range oldContent[bucket] {
			old[string(p.key)] = true
		}
		for _, p := range pairs {
			if !old[string(p.key)] {
				out[bucket] = append(out[bucket], p)
			}
		}
	}
	return out
}

// replay writes all keys and values of the map content to the database db. It uses n transactions,
// and returns the time that they took.
func replay(b *testing.B, db *bolt.DB, content map[string][]kv, n int) time.Duration {
	b.Helper()
	begin := time.Now()
	for i := range n {
		if err := db.Update(func(tx *bolt.Tx) error {
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
