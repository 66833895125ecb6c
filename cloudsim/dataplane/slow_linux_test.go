//go:build !portable

package dataplane_test

// seesUnsent is true if the data plane detects bytes that wait for a slow reader, and does not
// count a connection with such bytes as idle.
const seesUnsent = true
