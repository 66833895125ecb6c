// Package restfuzz contains only a test. The test sends random requests, generated from
// docs/reference/openapi.json, to a real cloud. It checks that no request causes an internal
// error, takes long, or leaves memory behind.
package restfuzz
