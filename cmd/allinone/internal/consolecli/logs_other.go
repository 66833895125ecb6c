//go:build !linux

package consolecli

import (
	"errors"

	"github.com/cloudsim-dev/allinone/console"
)

// logsOf returns an error, because labs run only on Linux.
func logsOf(string) (func() ([]console.Log, error), error) {
	return nil, errors.New("--data-dir: a lab runs only on Linux")
}
