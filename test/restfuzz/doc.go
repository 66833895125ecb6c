// Package restfuzz has a test only. It sends random requests, generated from
// docs/reference/openapi.json, to a real cloud, and checks that no request ends in
// an internal error, takes long, or leaves memory behind.
package restfuzz
