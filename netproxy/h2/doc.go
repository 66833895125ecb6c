// Package h2 carries gRPC's streams for tunnels: HTTP/2 (RFC 9113) and gRPC's
// framing on the wire, gRPC's own interfaces above it, and nothing that a tunnel
// does not need. A Server takes handlers as grpc.Server
// does, a Client makes streams as grpc.ClientConn does; each can talk to the
// other half of google.golang.org/grpc, which is how it is tested.
//
// # Why not gRPC's transport
//
// A byte of a tunnel passes gRPC's transport through a buffer to read, one to
// write that all streams share, and three goroutines. Here who sends writes:
// its bytes go from the buffer that a socket was read into straight to TLS. And
// what TLS has read is cut into pieces and not copied. A stream that is idle has
// no goroutine of the transport's. That is about a fifth of a proxy's CPU for a
// byte, and half of its memory for an idle connection.
//
// # The order of things
//
// A connection has a goroutine that reads, and it never waits for anything but
// the peer's bytes: it puts messages where RecvMsg finds them or gives them to a
// sink, which may not wait either, gives windows, and leaves what must be
// answered to who writes next, or to a goroutine made for it. So two ends that
// both wait to write still read, and both go on.
//
// Each stream has a window. It is given back when its messages are taken, so it
// bounds what waits in memory for a reader that stands still: that, and one
// message that is longer. The window of the connection is given back as bytes
// arrive, and holds up nobody.
//
// Locks are taken in this order: conn.writing, serverStream.sending, conn.mu; and
// stream.mu by itself.
//
// It compresses nothing, has no unary calls, no deadlines on the wire, no
// priorities and no pushes, and its Server answers a cancelled stream only by
// ending it. It knows nothing of the network proxy.
package h2
