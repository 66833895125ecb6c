package main

import (
	"path/filepath"
	"sync"
	"testing"
)

// TestEnsureSecretIsWhole proves that concurrent starts, and a start after a killed start, read
// a complete token. They never read a part of a token.
func TestEnsureSecretIsWhole(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "token")
		var wg sync.WaitGroup
		secrets := make([]string, 8)
		for n := range secrets {
			wg.Go(func() {
				var err error
				if secrets[n], err = ensureSecret(path); err != nil || len(secrets[n]) < 32 {
					t.Errorf("%q, %v", secrets[n], err)
				}
			})
		}
		wg.Wait()
		for _, s := range secrets {
			if s != secrets[0] {
				t.Fatalf("two tokens of one file: %q, %q", s, secrets[0])
			}
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".secret-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
