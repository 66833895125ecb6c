package client

import (
	"fmt"
	"os"
	"strings"
)

// TokenFile is the token that path holds. It is read for every call, so a
// rotated file is used from the next call on. An error names the file, never
// what is in it.
func TokenFile(path string) TokenSource {
	return func() (string, error) {
		raw, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		secret := strings.TrimSpace(string(raw))
		if secret == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", fmt.Errorf("%s does not hold one token: it has blanks or other characters that no token has", path)
		}
		return secret, nil
	}
}
