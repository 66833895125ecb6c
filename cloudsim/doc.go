// Package cloudsim is the language of the simulated cloud: its resources, the
// moves each may make, its errors and its events. It does no I/O and imports
// the standard library only, so a client of the cloud links nothing of its
// server.
//
// A request passes httpapi, engine and store, in that order. A commit writes the
// object and its event together and then notifies the watchers. Each watcher reads
// the journal from its own cursor. See docs/architecture.md.
//
// What this package refuses to do: there is one set of types, used on the wire
// and on disk. The price is that a change of a JSON tag is a migration.
package cloudsim
