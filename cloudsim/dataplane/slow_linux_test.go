//go:build !portable

package dataplane_test

// On Linux, the data plane detects bytes that wait for a slow reader. A connection with such bytes
// is not idle.
const seesUnsent = true
