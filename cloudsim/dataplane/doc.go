// Package dataplane forwards the traffic of load balancers. The cloud's API only stores the
// listeners, targets and health checks of load balancers. This package opens the real sockets and
// probes the targets.
//
// The package lists and watches load balancers, instances and zones. It serves load balancers that
// are active or updating. For each listener, it opens a TCP or UDP socket at each address of the
// load balancer. It also opens a socket for each published port, which is a port of the cloud's
// host that forwards to the listener. A new connection goes to the healthy target with the lowest
// ratio of connections to weight. Each listener counts only its own connections. Targets with the
// same ratio get turns in proportion to their weights. With affinity, a new connection of a client
// goes to the target of the client's previous connection, if this target is still healthy. The
// package reports the addresses of the listeners and the probed health of each target.
//
// Guarantees for clients:
//
//   - The data plane refuses a client in four cases: the client is in no source range, no target is
//     healthy, there are too many connections, or no target answers. To refuse a client, the data
//     plane accepts the connection and then resets the connection. Over UDP, it drops the datagram.
//     The port stays open in these cases, because the closing and opening of a port can lose
//     connections.
//   - The client or the target may close its half of a connection. The other half continues until
//     the peer closes that half, too. If the client or the target resets its connection, the data
//     plane also resets the connection to the peer.
//   - A target that turns unhealthy takes no new connections. Its open connections stay open.
//   - A removed target, a removed listener and an instance that is shutting down take no new
//     connections. Their open connections have Config.DrainTimeout to finish. Then the data plane
//     resets these connections.
//   - An instance loses its connections if it is off, is rebooting, was deleted, or if its zone
//     has an outage. The data plane resets these connections at once. It also resets the
//     connections of a deleted load balancer at once.
//   - The data plane resets a connection that has no traffic for Config.IdleTimeout.
//   - A UDP flow is the traffic of one client port, in both directions. Each flow has its own
//     socket. A flow ends if its target turns unhealthy, refuses datagrams or was removed. The
//     next datagram of the client then begins a new flow to another target.
//   - A PROXY header contains the address of the client and the address to
//     which the client connected. Probes send no PROXY header, because health
//     ports do not expect it.
//   - If new source ranges exclude a client, the data plane resets the client's connections and
//     ends the client's flows at once.
//   - An update of a load balancer does not affect listeners and connections that are still
//     valid.
//
// On Linux, each processor has an event loop that forwards connections. A loop
// waits for all its sockets at once with epoll. It copies small amounts of
// data, and lets the kernel splice large amounts. An idle connection needs two
// sockets and less than a kilobyte of memory. On other systems, each connection
// has two goroutines with buffers. For tests on Linux, the build tag portable
// selects the version with goroutines.
package dataplane
