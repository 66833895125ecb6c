//go:build !portable

package dataplane_test

// seesUnsent is true if the data plane detects bytes that wait for a slow reader. A connection with
// such bytes is then not idle.
const seesUnsent = true
