package engine_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// bombs contains functions that create a compressed saved state. Each function passes the parameter
// size to largeState.
var bombs = map[string]func(t testing.TB, size int) []byte{
	"large values": func(t testing.TB, size int) []byte {
		value := string(make([]byte, 1<<20))
		return largeState(t, size, "object/instance", func(n int) (string, string) { return fmt.Sprintf("%06d", n), value })
	},
	"below the limit": func(t testing.TB, size int) []byte {
		value, rng := make([]byte, 1<<20), rand.NewChaCha8([32]byte{})
		return largeState(t, size, "object/instance", func(n int) (string, string) {
			_, _ = rng.Read(value[:6<<10])
			return fmt.Sprintf("%06d", n), string(value)
		})
	},
	"small values": func(t testing.TB, size int) []byte {
		return largeState(t, size, "object/fault", func(n int) (string, string) { return fmt.Sprintf("%09d", n), "{}" })
	},
	"index entries": func(t testing.TB, size int) []byte {
		return largeState(t, size, "index/instance/name", func(n int) (string, string) { return fmt.Sprintf("%09d", n), "" })
	},
}

// largeState returns a saved state with records in one bucket. It adds records until all keys and
// values together have at least size bytes, or until the compressed state has 3 MB.
// TestImportStopsEarly needs a state that the reader refuses. statefile.Writer cannot write such a
// state, so largeState writes the records itself.
func largeState(t testing.TB, size int, bucket string, next func(n int) (key, value string)) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	appendString := func(to []byte, s string) []byte { return append(binary.AppendUvarint(to, uint64(len(s))), s...) }
	rec := append([]byte(`{"format":"cloudsim-state","version":3}`), "\n\x01"...)
	rec = append(appendString(rec, bucket), 0) // 0 is the sequence of the bucket
	for n, total := 0, 0; total < size && out.Len() < 3_000_000; n++ {
		key, value := next(n)
		total += len(key) + len(value)
		rec = appendString(appendString(append(rec, 2), key), value)
		if _, err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		rec = rec[:0]
	}
	_, err = w.Write([]byte{0})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// TestImportStopsEarly proves that an import refuses a saved state that expands
// to 256 MiB. The import reads less than half of the state and leaves no file.
func TestImportStopsEarly(t *testing.T) {
	dir := t.TempDir()
	e, stop := boot(t, file(t), instant, withStates(dir))
	defer stop()
	body := bombs["large values"](t, 256<<20)
	in := &counter{Reader: bytes.NewReader(body)}
	_, err := e.ImportState(engine.AsCloud(t.Context()), "bomb", in)
	if !errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), "expands") || in.n > len(body)/2 {
		t.Errorf("import of a state that expands to 256 MiB: got error %v after %d of %d bytes, want Invalid before half of the bytes", err, in.n, len(body))
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("remaining files: %v", left)
	}
}

// BenchmarkImportBomb measures the additional anonymous memory during the import of a malicious
// state of 3 MB. The limit for this memory is 64 MiB. The benchmark reports this limit, but does
// not fail if the memory exceeds it.
func BenchmarkImportBomb(b *testing.B) {
	for name, body := range bombs {
		b.Run(name, func(b *testing.B) {
			body := body(b, 2<<30)
			e, stop := boot(b, filepath.Join(b.TempDir(), "cloud.db"), instant, withStates(b.TempDir()))
			defer stop()
			debug.FreeOSMemory()
			before, peak, done, sampled := rssAnon(b), 0, make(chan bool), make(chan bool)
			go func() {
				defer close(sampled)
				for tick := time.Tick(time.Millisecond); ; <-tick {
					peak = max(peak, rssAnon(b))
					select {
					case <-done:
						return
					default:
					}
				}
			}()
			for b.Loop() {
				if _, err := e.ImportState(engine.AsCloud(b.Context()), "bomb", bytes.NewReader(body)); !errors.Is(err, cloudsim.Invalid) {
					b.Errorf("import: %v; want Invalid", err)
				}
			}
			close(done)
			<-sampled
			b.ReportMetric(float64(len(body))/1e6, "MB-sent")
			b.ReportMetric(float64(peak-before)/1024, "MiB-peak")
			b.ReportMetric(64, "MiB-limit")
		})
	}
}

// rssAnon returns the anonymous memory of this process in KiB.
func rssAnon(b *testing.B) int {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc/self/status")
	}
	_, rest, _ := strings.Cut(string(raw), "RssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Error(err)
	}
	return n
}
