package registry_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/registry"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// memory returns the number of bytes of live objects and of goroutine stacks.
func memory() int64 {
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // both numbers are far below 2^63
}

// TestMemoryOfAnonymousConnections proves that 1,000 connections without
// credentials need less than 200 MiB. Half of the connections use HTTP/1.1 and
// half use HTTP/2. The 200 MiB include the memory of the clients.
func TestMemoryOfAnonymousConnections(t *testing.T) {
	w := start(t, func(c *registry.Config) { c.Limits = run.Limits{Connections: 2000, Anonymous: 1000} })
	before := memory()
	for range 500 {
		if _, err := io.WriteString(w.dial(t, "h2"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			t.Fatal(err)
		}
		conn := w.dial(t, "http/1.1")
		if _, err := io.WriteString(conn, "PUT /v2/team-a/web/manifests/v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 401"))); err != nil {
			t.Fatal(err)
		}
	}
	if cost := memory() - before; cost > 200<<20 {
		t.Errorf("1,000 connections: got %d MiB of memory, want at most 200 MiB", cost>>20)
	}
}
