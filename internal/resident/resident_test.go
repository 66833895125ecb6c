package resident

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// sink keeps what a test allocates from being left out.
var sink []byte

// What a burst leaves is given back once it is calm, though nobody collects.
func TestTrimGivesBackWhatABurstLeft(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	forced := m.NumForcedGC
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Trim(ctx, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for m.NumForcedGC == forced { // that of the start
		time.Sleep(10 * time.Millisecond)
		runtime.ReadMemStats(&m)
	}
	for range 64 {
		sink = make([]byte, 1<<20)
	}
	sink = nil
	deadline := time.Now().Add(30 * time.Second)
	for runtime.ReadMemStats(&m); m.HeapInuse > 32<<20; runtime.ReadMemStats(&m) {
		if time.Now().After(deadline) {
			t.Fatalf("%d MiB are still held", m.HeapInuse>>20)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
