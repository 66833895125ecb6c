package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
)

// requestIDs counts the request ids that this process has generated. The field firstRev is the
// revision of the journal at the start of the process. If the cloud has a seed, NewRequestID uses
// firstRev, so the ids after a restart differ from the ids before the restart. But if a process
// writes no event, the next process has the same firstRev and generates the same ids.
type requestIDs struct {
	firstRev uint64
	made     atomic.Uint64
}

// NewRequestID generates an id for a request that came without an id. If the cloud has a seed, the
// n-th id of a process depends only on the seed and on the field requestIDs.firstRev.
//
// NewRequestID hashes the seed together with the word "request", so that the ids are independent of
// other uses of the seed.
func (e *Engine) NewRequestID() string {
	var b [8]byte
	if e.cfg.Seed == 0 {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		return "req-" + hex.EncodeToString(b[:])
	}
	seed := []byte("request")
	for _, n := range []uint64{e.cfg.Seed, e.requests.firstRev, e.requests.made.Add(1)} {
		seed = binary.BigEndian.AppendUint64(seed, n)
	}
	sum := sha256.Sum256(seed)
	return "req-" + hex.EncodeToString(sum[:8])
}
