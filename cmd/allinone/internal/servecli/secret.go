package servecli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// ensureSecret returns the secret in a file. It returns an error if other users can read or change
// the file, or if the secret is shorter than 32 characters. If the file does not exist,
// ensureSecret creates the file with a new secret.
func ensureSecret(path string) (string, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeSecret(path); err != nil {
			return "", err
		}
	}
	return readSecret(path)
}

// makeSecret creates a file with a new secret. Even if the process dies during the call, the file
// is complete or does not exist. An incomplete file would make every later start fail. If two
// processes create the file concurrently, both processes use the secret of the first process.
func makeSecret(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(engine.NewSecret() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	// The group is allowed to read the file, because in a pod the files of a Secret belong to the
	// group of the pod.
	if info.Mode().Perm()&0o037 != 0 {
		return "", fmt.Errorf("other users can read or change %s (mode %04o): run chmod 600 on this file", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(raw))
	if len(secret) < 32 {
		return "", fmt.Errorf("%s contains no token of at least 32 characters: remove the file, and the next start creates a new token", path)
	}
	return secret, nil
}
