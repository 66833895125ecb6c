// Package agent is the part of a network proxy (KEP-1281) that runs near the targets. It
// connects to one or several servers, and dials targets for them. It listens on no port.
//
// If the server supports the extension of package wire, each connection has its own stream. With
// upstream's server all connections share one stream. The agent then cuts a connection with a
// blocked target, because this connection would block all other connections.
package agent
