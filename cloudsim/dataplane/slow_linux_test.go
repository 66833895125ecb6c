//go:build !portable

package dataplane_test

// seesUnsent is true, because on Linux the data plane detects bytes that wait for a slow reader. A
// connection with waiting bytes is not idle.
const seesUnsent = true
