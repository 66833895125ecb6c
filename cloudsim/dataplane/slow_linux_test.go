//go:build !portable

package dataplane_test

// seesUnsent is true if the data plane can distinguish bytes that wait for a slow reader from
// silence.
const seesUnsent = true
