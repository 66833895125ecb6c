package dataplane

import "sync"

const (
	small       = 32 << 10 // bytes; the data plane copies reads of at most this size, because a splice takes more system calls
	maxDatagram = 64 << 10 // bytes; a little more than the longest datagram
)

// buffers is the pool of buffers. On Linux, a connection uses a buffer only between a read of bytes
// and the write of these bytes.
var buffers = sync.Pool{New: func() any { b := make([]byte, maxDatagram); return &b }}
