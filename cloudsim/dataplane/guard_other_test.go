//go:build !linux

package dataplane

import "testing"

func inOwnNetwork(t *testing.T) { t.Skip("Linux only") }
