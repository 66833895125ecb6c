// Package restfuzz contains only a test. The test sends random requests, generated from
// docs/reference/openapi.json, to a real cloud. It checks that no request causes an internal error
// or takes long, and that the requests do not leak memory.
package restfuzz
