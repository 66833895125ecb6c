package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	// The environment can contain variables that select a lab of the user. Delete these variables.
	// Otherwise the tests would run programs that use the user's lab.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CLOUDSIM_") || name == "KUBECONFIG" {
			_ = os.Unsetenv(name)
		}
	}
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

var programDir string

// program builds allinone once and returns the path of the binary. Tests that need no other program
// from the folder bin use this binary instead of bin/allinone. If the tests run with the race
// detector, the binary has the race detector, too.
var program = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "e2e"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "allinone")
	args := []string{"build", "-o", path, "../../cmd/allinone"}
	if raceDetector {
		args = append([]string{"build", "-race"}, args[1:]...)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building allinone: %w\n%s", err, out)
	}
	return path, nil
})
