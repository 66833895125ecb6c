//go:build !linux

package dataplane

import (
	"errors"
	"syscall"
)

func allowForeign(string, string, syscall.RawConn) error { return canShow() }

func canShow() error { return errors.New("--show-clients needs Linux") }
