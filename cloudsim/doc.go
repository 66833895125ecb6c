// Package cloudsim defines the types of the simulated cloud: resources, their
// state transitions, errors and events. The package does no I/O and imports
// only the standard library. A client of the cloud therefore links no server
// code.
//
// A request passes httpapi, engine and store, in that order. A commit writes
// the object and its event together and then notifies the watchers. Each
// watcher reads the journal from its own cursor. See docs/architecture.md.
//
// The same types are used on the wire and on disk. A change of a JSON tag
// therefore needs a migration.
package cloudsim
