package disks_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
)

// FuzzUnpack: whatever is sent as the data of a state is refused, or is what it
// says, and leaves nothing outside of its folder.
func FuzzUnpack(f *testing.F) {
	dir := f.TempDir()
	files := disks.NewFiles(filepath.Join(dir, "disks"))
	good := packed(f, files, dir)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), 0))
	for _, list := range []string{
		`{}`, `{"files":null}`, `[]`, `{"files":[{"id":"../disk-000001","sizeBytes":4096}]}`,
		`{"files":[{"id":"disk-000001","sizeBytes":-1}]}`, `{"files":[{"id":"disk-000001","sizeBytes":4096,"blocks":9223372036854775807}]}`,
		`{"files":[{"id":"disk-000001","sizeBytes":1125899906842624,"blocks":0}]}`,
		`{"files":[{"id":"snap-000001","sizeBytes":4096,"blocks":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`,
	} {
		f.Add([]byte(list + "\n"))
	}
	f.Fuzz(func(t *testing.T, pack []byte) {
		parent := t.TempDir()
		to := filepath.Join(parent, "to")
		err := files.Unpack(t.Context(), bytes.NewReader(pack), to)
		there, _ := os.ReadDir(parent)
		if len(there) > 1 || len(there) == 1 && there[0].Name() != "to" {
			t.Fatalf("outside of the folder: %v", there)
		}
		if err != nil {
			var path *os.PathError // a file system may hold less than a disk may say
			if !errors.Is(err, cloudsim.Invalid) && !errors.As(err, &path) {
				t.Errorf("not Invalid: %v", err)
			}
			return
		}
		var again bytes.Buffer
		if err := files.Pack(t.Context(), to, &again); err != nil {
			t.Fatal(err)
		}
		_, was, _ := bytes.Cut(pack, []byte("\n"))
		_, is, _ := bytes.Cut(again.Bytes(), []byte("\n"))
		if !bytes.Equal(was, is) {
			t.Error("there and back it is another")
		}
	})
}

// packed is a pack of two small files, one with a hole in it.
func packed(f *testing.F, files *disks.Files, dir string) []byte {
	f.Helper()
	kept := filepath.Join(dir, "kept")
	data := append(bytes.Repeat([]byte("then"), 1024), make([]byte, 8192)...)
	data = append(data, bytes.Repeat([]byte("late"), 1024)...)
	var out bytes.Buffer
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "disks"), 0o700),
		os.WriteFile(disks.Path(filepath.Join(dir, "disks"), "disk-000001"), data, 0o600),
		os.WriteFile(disks.SnapshotPath(filepath.Join(dir, "disks"), "snap-000001"), data[:4096], 0o600),
		files.Save(f.Context(), kept, map[string]cloudsim.DataSize{"disk-000001": {Bytes: 16384}, "snap-000001": {Bytes: 4096}}),
		files.Pack(f.Context(), kept, &out),
	); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}
