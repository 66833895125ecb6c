// Package flock locks open files and folders with flock(2), so that only one process at a time uses
// them. It depends only on the standard library, because package credprovider imports it, and this
// plugin must stay small.
package flock
