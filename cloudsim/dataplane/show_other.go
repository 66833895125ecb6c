//go:build !linux

package dataplane

import (
	"errors"
	"syscall"
)

func foreign(string, string, syscall.RawConn) error { return canShow() }

func canShow() error { return errors.New("showing targets who their clients are is for Linux") }
