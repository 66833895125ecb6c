// Package wire contains the protocol of a network proxy (KEP-1281, Konnectivity). The protocol
// consists of upstream's packets, as in sigs.k8s.io/apiserver-network-proxy v0.36, and one
// extension. This project's agent and server negotiate the extension. The package opens no
// connection.
//
// # Upstream's protocol
//
// A client calls the server's method /ProxyService/Proxy, and uses one stream for each connection.
// An agent calls the server's method /AgentService/Connect, and uses one stream for all
// connections. The agent's stream contains the packets of all connections, without flow control for
// each connection. So if one connection blocks the receiver, all connections wait. The type Queue
// limits this wait.
//
// # The extension: a stream for each connection
//
// An agent that supports the extension sends the metadata x-tunnel-streams: 1 with Connect. A
// server that supports the extension answers with the same metadata and with x-tunnel-session. The
// value of x-tunnel-session is a secret. In later calls, the agent sends this secret to identify
// its Connect stream. After this exchange, the Connect stream contains only DRAIN packets and these
// packets for dials:
//
//	server → agent   DIAL_REQ{protocol, address, random} on Connect
//	agent → server   DIAL_RSP{random, error} on Connect if the dial failed, or
//	                 the call /cloudsim.netproxy.v1.Tunnel/Open with the metadata
//	                 x-tunnel-session and x-tunnel-dial: random
//	server → agent   DIAL_CLS{random} on Connect if the dial is canceled, and
//	                 when the connection ends
//
// A message of Open consists of one byte for the kind, and data. See Chunk. HTTP/2 has a flow
// control window for each stream, so a blocked reader blocks only its own connection. The call of
// Open ends when the agent and the server have sent EOF, or when one of them cancels the call. If
// the window is full, gRPC cannot tell the agent that the server has ended the call. So when
// a connection ends, the server also sends a DIAL_CLS on Connect.
//
// An agent or server without the extension ignores the metadata and uses upstream's protocol.
package wire
