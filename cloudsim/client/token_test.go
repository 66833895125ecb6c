package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// TestTokenFile proves that the next call after a token rotation uses the new token. It also
// proves that the error for an invalid token file contains the file's path, but not its content.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	source := client.TokenFile(path)
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: got error %v, want an error that contains the file's path", err)
	}
	for _, want := range []string{"first", "other"} { // the two tokens have the same length
		write(want + "\n")
		if got, err := source(); err != nil || got != want {
			t.Errorf("token: got %q, error %v; want %q", got, err, want)
		}
	}
	for name, content := range map[string]string{"empty": " \n", "two lines": "hush1\nhush2", "binary": "hush\x00"} {
		write(content)
		_, err := source()
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got error %v, want an error with the file's path and without its content", name, err)
		}
	}
}
