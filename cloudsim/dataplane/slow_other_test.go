//go:build !linux || portable

package dataplane_test

const seesUnsent = false
