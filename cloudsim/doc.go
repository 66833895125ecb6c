// Package cloudsim defines the types of the simulated cloud: resources, their
// state transitions, errors and events. The package does no I/O and imports
// only the standard library. A client of the cloud therefore links no server
// code.
//
// The packages httpapi, engine and store handle a request, in this order. The
// store writes a changed object and its event in one commit. Then it notifies
// the watchers. Each watcher reads the events from the journal and stores its
// own position. See docs/architecture.md.
//
// The API and the store use the same JSON form of these types. A change of a
// JSON tag therefore needs a migration of the stored data.
package cloudsim
