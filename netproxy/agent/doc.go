// Package agent is the part of a network proxy (KEP-1281) that runs near the targets. The agent
// connects to one or several servers of the proxy, and dials targets for these servers. The agent
// listens on no port.
//
// Package wire extends upstream's protocol. If the server supports this extension, each connection
// has its own stream. Upstream's server (sigs.k8s.io/apiserver-network-proxy) does not support the
// extension. With upstream's server, all connections share one stream, so a target that does not
// read would block all other connections. The agent therefore cuts the connection to this target.
package agent
