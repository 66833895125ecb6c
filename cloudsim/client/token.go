package client

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const maxTokenFile = 64 << 10

// TokenFile is the token that path holds. It is read for every call, so a
// rotated file is used from the next call on. An error names the file, never
// what is in it.
func TokenFile(path string) TokenSource {
	return func() (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1)) // which may have no end
		if err != nil {
			return "", err
		}
		if len(raw) > maxTokenFile {
			return "", fmt.Errorf("%s does not hold one token: it has more than %d bytes", path, maxTokenFile)
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
