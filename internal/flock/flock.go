// Package flock locks open files and folders with flock(2), so that only one process at a time uses
// them. The package imports only the standard library, so that the credential provider plugin stays
// small.
package flock
