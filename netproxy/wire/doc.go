// Package wire is how the parts of a network proxy (KEP-1281, Konnectivity)
// speak: upstream's packets, as sigs.k8s.io/apiserver-network-proxy v0.36 sends
// and takes them, and one extension that two of our own ends negotiate. It
// opens no connection.
//
// # Upstream's wire
//
// Frontend to server is /ProxyService/Proxy, a stream for each connection.
// Agent to server is /AgentService/Connect, one stream for everything: packets
// of all connections follow each other, and nothing says how much the other
// end can take. So whoever reads it must never wait long for one connection:
// see Queue.
//
// # The extension: a stream for each connection
//
// An agent that can do it sends the metadata x-tunnel-streams: 1 with Connect.
// A server that can answers with the same and with x-tunnel-session, a secret
// of this stream. From then on the Connect stream carries dials only:
//
//	server → agent   DIAL_REQ{protocol, address, random} on Connect
//	agent → server   DIAL_RSP{random, error} on Connect if the dial failed, or
//	                 the call /cloudsim.netproxy.v1.Tunnel/Open with the metadata
//	                 x-tunnel-session and x-tunnel-dial: random
//	server → agent   DIAL_CLS{random} on Connect: nobody waits for it any more
//
// A message of Open is a kind, one byte, and bytes: see Chunk. HTTP/2 gives
// each such stream a window of its own, so a connection whose reader stands
// still holds up nothing but itself. The call ends when both sides have sent
// EOF, or when either gives up.
//
// Either end that does not know the extension sees metadata that it ignores,
// and speaks upstream's wire.
package wire
