package disks_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
)

// In a saved state, a part is a range of bytes of a disk's file.
type part struct {
	id     string
	size   uint64
	offset string
	data   string
}

func at(offset uint64) string { return string(binary.BigEndian.AppendUint64(nil, offset)) }

// dataOf returns a reader of disk data. Parts with the same id belong to one file.
func dataOf(t *testing.T, parts ...part) *statefile.Reader {
	t.Helper()
	var out bytes.Buffer
	w := statefile.NewWriter(&out)
	err := errors.Join(w.Begin(statefile.Head{DiskData: true}), w.End())
	w.BeginData()
	for i, p := range parts {
		if i == 0 || parts[i-1].id != p.id {
			err = errors.Join(err, w.Bucket([]byte(p.id), p.size))
		}
		if p.data != "" {
			err = errors.Join(err, w.Put([]byte(p.offset), []byte(p.data)))
		}
	}
	ok(t, err, w.End())
	r, err := statefile.NewReader(&out)
	ok(t, err)
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	ok(t, r.EndSection(true))
	return r
}

// Stage refuses malicious disk data with an Invalid error, and leaves no files from this data
// in the folder.
func TestHostileData(t *testing.T) {
	for name, bad := range map[string][]part{
		"disk id with a path":    {{id: "../disk-000001"}},
		"id of another resource": {{id: "i-000001"}},
		"too large a disk":       {{id: "disk-000001", size: (cloudsim.MaxDiskGiB + 1) << 30}},
		"beyond the end":         {{"disk-000001", 8, at(8), "x"}},
		"across the end":         {{"disk-000001", 8, at(7), "xy"}},
		"a negative offset":      {{"disk-000001", 8, at(1<<64 - 1), "xy"}},
		"no offset":              {{"disk-000001", 8, "0", "x"}},
		"parts that overlap":     {{"disk-000001", 8, at(0), "xy"}, {"disk-000001", 8, at(1), "x"}},
	} {
		dir := t.TempDir()
		if _, err := disks.NewFiles(dir).Stage(t.Context(), dataOf(t, bad...), nil); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("%s: got error %v, want Invalid", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("%s: temporary files exist: %v", name, left)
		}
	}
}
