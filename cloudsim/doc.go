// Package cloudsim defines the types of the simulated cloud: resources, their state
// transitions, errors and events. The package does no I/O and imports only the standard
// library. Therefore a client program that uses these types contains no code of the cloud's
// server.
//
// The packages httpapi, engine and store handle a request, in this order. The store writes
// a changed object and its event in one commit. After the commit, the store notifies the
// watchers. Each watcher reads the events from the journal, which is the stored list of all
// changes. Each watcher remembers its own position in the journal. See
// docs/architecture.md.
//
// The API and the store use the same JSON form of these types. A change of a JSON tag
// therefore needs a migration of the stored data.
package cloudsim
