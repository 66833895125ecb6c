// Package dataplane forwards the traffic of load balancers. It implements listeners, targets
// and health checks of the cloud's records with real sockets.
//
// It lists and watches load balancers, instances and zones. A load balancer that is active or
// updating has a TCP or UDP socket for each listener on each of its addresses. It also has a
// socket at each published port of the host. A new connection goes to the healthy target with
// the fewest connections for its weight. Among equal targets it goes to the target that
// waited longest, so sequential requests spread by weight. With affinity, a client gets the
// same target again. The package reports the addresses of the listeners and the probed health
// of each target.
//
// Guarantees for clients:
//
//   - The data plane accepts and immediately resets a connection in four cases. The client is
//     in no source range, no target is healthy, there are too many connections, or no target
//     answers. (A closed port would refuse as fast. But opening and closing ports with the
//     health of targets would lose connections in between.)
//   - Either side may close its half of a connection. The other half goes on until its own end.
//     An end is forwarded as an end, a reset as a reset.
//   - A target that turns unhealthy takes no new connections. Its open connections go on.
//   - A target or listener that was removed takes no new connections, and neither does an
//     instance that is shutting down. Open connections may finish for Config.DrainTimeout. Then
//     they are reset.
//   - If an instance is off, rebooting or gone, its connections are reset at once, because the
//     machine has lost them. If a load balancer is deleted, its connections are reset at once,
//     too.
//   - A connection without traffic for Config.IdleTimeout is reset.
//   - A UDP flow is the traffic of one client port, in both directions. Each flow has its own
//     socket. A flow ends if its target turns unhealthy, refuses datagrams or was removed. The
//     next datagram of the client then begins a new flow to another target.
//   - A PROXY header names the client and the address that the client connected to. Probes send
//     no PROXY header, because they go to health ports, which do not expect it.
//   - If new source ranges exclude a client, its connections are reset and its flows end at
//     once.
//   - An update affects only the listeners and connections that it makes invalid.
//
// On Linux one loop per processor carries the connections. The loop waits for all of them at
// once with epoll. It copies small amounts of data, and lets the kernel splice large amounts.
// An idle connection costs two sockets and less than a kilobyte. On other systems each
// connection has two goroutines with buffers. The build tag portable selects this version on
// Linux, too, for tests.
package dataplane
