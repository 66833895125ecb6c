//go:build !linux

package store

import (
	"errors"
	"os"
	"time"
)

// Without a way to tell whether the machine was down there is no redo log.

var bootID = func() string { return "" }

type fileID struct{}

func idOf(*os.File) (fileID, error) { return fileID{}, errors.ErrUnsupported }

func lock(*os.File, time.Duration) error { return errors.ErrUnsupported }

func fdatasync(f *os.File) error { return f.Sync() }

func syncNew(f *os.File) error { return f.Sync() }
