package client

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const maxTokenFile = 64 << 10

// TokenFile returns a TokenSource that reads the token from a file before every call. After a
// rotation, the next call therefore uses the new token. An error contains the name of the file, but
// never the content of the file.
func TokenFile(path string) TokenSource {
	return func() (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1)) // the limit is needed because path can be an endless device
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
			return "", fmt.Errorf("%s does not hold one token: it has blanks or other invalid characters", path)
		}
		return secret, nil
	}
}
