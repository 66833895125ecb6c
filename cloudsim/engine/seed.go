package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
)

// requestIDs counts the requests of this process. begin is the revision of the
// journal when the process began. It makes the ids of a later process on the
// same file different.
type requestIDs struct {
	begin uint64
	made  atomic.Uint64
}

// NewRequestID generates the id of a request without an id. With a seed the
// n-th id is always the same. Each use of the seed hashes it with its own
// purpose, so that one use does not change the results of another.
func (e *Engine) NewRequestID() string {
	var b [8]byte
	if e.cfg.Seed == 0 {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		return "req-" + hex.EncodeToString(b[:])
	}
	seed := []byte("request")
	for _, n := range []uint64{e.cfg.Seed, e.requests.begin, e.requests.made.Add(1)} {
		seed = binary.BigEndian.AppendUint64(seed, n)
	}
	sum := sha256.Sum256(seed)
	return "req-" + hex.EncodeToString(sum[:8])
}
