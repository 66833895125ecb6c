// Package flock locks open files and folders between processes: flock(2). It
// depends on the standard library only, because the credential plugin links it.
package flock
