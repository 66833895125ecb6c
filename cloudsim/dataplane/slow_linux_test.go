//go:build !portable

package dataplane_test

// seesUnsent: bytes that wait for a slow reader can be told from silence.
const seesUnsent = true
