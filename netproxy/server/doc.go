// Package server is the part of a network proxy (KEP-1281) that runs near kube-apiserver.
// Clients ask its frontends for connections, over gRPC or HTTP CONNECT. The server chooses an
// agent that dials, and forwards the bytes.
//
// # Goroutines of a connection
//
// Two goroutines forward a connection, one for each direction. Each of them ends when its
// source ends. The frontend's goroutine reads from the target (link.recv) and writes to the
// client. The link's goroutine reads from the client and sends to the target (link.carry). When
// the link's goroutine returns, the link ends, and recv returns.
//
// With this project's agents a link is a gRPC stream, so a blocked connection does not block
// others. With upstream's agents all links share one stream. The bytes of each link then wait
// in a wire.Queue, and a link that blocks the others is cut.
//
// The package reads no files and no flags. It uses Kubernetes only through Authenticator.
package server
