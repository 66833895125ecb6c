// Package server is the part of a network proxy (KEP-1281) that runs near kube-apiserver. Clients
// use gRPC or HTTP CONNECT to ask the server's frontends for connections. The server chooses an
// agent, and the agent dials the target. Then the server forwards the bytes between client and
// agent. A link is the connection to one target through an agent.
//
// # Goroutines of a connection
//
// Two goroutines forward a connection, one for each direction. The frontend's goroutine reads from
// the target (link.recv) and writes to the client. The link's goroutine reads from the client and
// sends to the target (link.carry). When the link's goroutine returns, the link ends, and recv
// returns.
//
// With this project's agents a link is a gRPC stream, so a blocked connection does not block
// other connections. With upstream's agents all links share one stream. The bytes of each link
// then wait in a wire.Queue, and the server cuts a link that blocks other links.
//
// The package reads no files and no flags. It calls the Kubernetes API only through the interface
// Authenticator.
package server
