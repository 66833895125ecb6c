// Package dataplane makes load balancers true: what the cloud's records say of
// listeners, targets and health checks, it does with real sockets.
//
// It lists and watches load balancers and instances. A load balancer that is
// active or updating has a TCP or UDP socket per entry of Listeners, on each of
// its addresses and at the port of the host that it is published at. A
// connection goes to the healthy target with the fewest connections for its
// weight; among equals, to the one whose turn is longest ago, so that requests
// made one after another spread by weight; with affinity, to the one that its
// client had before. What it finds, it reports back: where listeners can be
// reached and what the probes say of each target.
//
// What a client may rely on:
//
//   - A client in none of the source ranges, no healthy target, too many connections, or no target that can be
//     dialled: the connection is accepted and reset at once. (A closed port
//     would refuse as fast, but opening and closing ports with the health of
//     targets would lose the connections of the moment between.)
//   - Either side may close its half; the other half goes on until its own end.
//     An end travels as an end, a reset as a reset.
//   - A target that turns unhealthy takes no new connections; those it has go on.
//   - A target or listener that is taken away, or an instance that is shutting
//     down, takes no new connections; those it has may finish for
//     Config.DrainTimeout and are then reset.
//   - An instance that is off, rebooting or gone, and a load balancer that is
//     deleted, have their connections reset at once: that machine has lost them.
//   - A connection on which nobody says anything for Config.IdleTimeout is reset.
//   - A UDP flow is what one client's port sends and gets back, by a socket of
//     its own. It leaves a target that turned unhealthy, that has nobody there
//     or that was taken away: its next datagram begins a new flow.
//   - A PROXY header names the client and the address that it connected to.
//     Probes send none: they go to health ports, which do not speak it.
//   - A client that new source ranges no longer let in has its connections reset
//     and its flows ended at once.
//   - An update touches only the listeners and connections that it makes invalid.
//
// On Linux a loop per processor carries the connections: it waits for all of
// them at once, copies few bytes and has the kernel splice many. A connection
// that waits costs two sockets and less than a kilobyte. Elsewhere each has two
// goroutines and their buffers; the build tag portable has it so on Linux, too,
// for tests.
package dataplane
