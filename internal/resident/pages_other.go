//go:build !linux

package resident

func dropProgramPages() error { return nil }
