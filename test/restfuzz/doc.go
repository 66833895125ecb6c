// Package restfuzz contains only a test. The test generates random requests from
// docs/reference/openapi.json, and sends them to a real cloud. It checks that no request causes an
// internal error or takes long, and that the requests do not leak memory.
package restfuzz
