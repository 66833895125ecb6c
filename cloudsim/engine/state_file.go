package engine

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// An exported state is a gzip stream: one line of JSON that says what it is,
// and the file of the store.
const (
	exportFormat  = "cloudsim-state"
	exportVersion = 1
	maxImport     = 4 << 30 // bytes of the store's file
)

type exportHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func pack(w io.Writer, name string, file io.Reader) error {
	z := gzip.NewWriter(w)
	err := json.NewEncoder(z).Encode(exportHead{exportFormat, exportVersion, name}) // ends the line
	if err == nil {
		_, err = io.Copy(z, file)
	}
	return errors.Join(err, z.Close())
}

func unpack(w io.Writer, r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "this is no exported state: %w", err)
	}
	in := bufio.NewReaderSize(z, 64<<10)
	line, err := in.ReadSlice('\n')
	var head exportHead
	if err != nil || json.Unmarshal(line, &head) != nil || head.Format != exportFormat {
		return cloudsim.Errorf(cloudsim.Invalid, "this is no exported state: it does not begin with what it is")
	}
	if head.Version != exportVersion {
		return cloudsim.Errorf(cloudsim.Invalid, "the exported state has version %d; this program reads version %d", head.Version, exportVersion)
	}
	n, err := io.Copy(w, io.LimitReader(in, maxImport+1))
	switch {
	case err != nil:
		return cloudsim.Errorf(cloudsim.Invalid, "the exported state is cut off or damaged: %w", err)
	case n > maxImport:
		return cloudsim.Errorf(cloudsim.Invalid, "the exported state is larger than %d bytes", int64(maxImport))
	}
	return nil
}
