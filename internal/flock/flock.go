// Package flock locks open files and folders with flock(2), so that only one
// process at a time uses them. It depends only on the standard library, because
// the small credential plugin imports it.
package flock
