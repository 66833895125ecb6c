package lab

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces a file atomically, with mode 0600. A reader gets either the old or
// the new content, even if this process dies during the write.
func WriteFile(path string, data []byte) error { return replace(path, data, false) }

// WriteDurably is like WriteFile, but also syncs the new file before it replaces the old file. So
// after a power cut, the file has either the old or the new content. A sync takes a few
// milliseconds, so the lab calls WriteDurably only for lab.json, keys and certificates.
func WriteDurably(path string, data []byte) error { return replace(path, data, true) }

func replace(path string, data []byte, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// ReadIfThere returns the content of a file, or nil if the file does not exist.
func ReadIfThere(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
