package servecli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestEnsureSecretIsWhole proves that concurrent calls of ensureSecret never read an incomplete
// secret. All calls return the same secret, and no temporary file remains.
func TestEnsureSecretIsWhole(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "token")
		var wg sync.WaitGroup
		secrets := make([]string, 8)
		for n := range secrets {
			wg.Go(func() {
				var err error
				if secrets[n], err = ensureSecret(path); err != nil || len(secrets[n]) < 32 {
					t.Errorf("ensureSecret: got %q, error %v; want a secret of at least 32 characters", secrets[n], err)
				}
			})
		}
		wg.Wait()
		for _, s := range secrets {
			if s != secrets[0] {
				t.Fatalf("two calls got the tokens %q and %q from one file", s, secrets[0])
			}
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".secret-*")); len(left) > 0 {
			t.Errorf("remaining files: %v", left)
		}
	}
}

// TestReadSecret proves that readSecret accepts a file that the group can read, as in a pod. If
// other users can read the file, readSecret returns an error.
func TestReadSecret(t *testing.T) {
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o440: true, 0o444: false, 0o620: false} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(path); (err == nil) != ok {
			t.Errorf("readSecret of a file with mode %o: got error %v, want an error: %t", mode, err, !ok)
		}
	}
}
