// Package server is the side of a network proxy (KEP-1281) that stands beside
// kube-apiserver. Frontends ask it for connections, over gRPC or HTTP CONNECT;
// it chooses an agent that dials, and carries the bytes.
//
// # Who carries what
//
// A connection is carried by two goroutines, one for each direction, and each
// can be ended by what it reads from. The frontend's goroutine takes what the
// target says (link.recv) and writes it to the client. The link's goroutine
// reads the client and sends to the target (link.carry): when it returns, the
// link ends, and with it recv.
//
// With our own agents a link is a gRPC stream, and a connection that stands
// still waits alone. With upstream's, links share a stream: what comes for each
// waits in a wire.Queue, and one that holds up the others is cut off.
//
// It reads no file and no flag, and knows Kubernetes by Authenticator only.
package server
