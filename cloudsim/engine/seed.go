package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
)

// requestIDs counts the requests of this process. begin is the journal's
// revision when it began, so that the ids of a process before it, on the same
// file, are others.
type requestIDs struct {
	begin uint64
	made  atomic.Uint64
}

// NewRequestID makes the id of a request that brought none. With a seed the
// n-th is always the same; what is derived from the seed is a hash of it and of
// a purpose, so no use of it moves another.
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
