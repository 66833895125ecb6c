package dataplane

import "sync"

const (
	small       = 32 << 10 // bytes that are read and written rather than spliced: up to here that is fewer calls
	maxDatagram = 64 << 10 // bytes of the longest datagram, and a few more
)

// buffers are lent while bytes move, and only then.
var buffers = sync.Pool{New: func() any { b := make([]byte, maxDatagram); return &b }}
