package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

// Earlier versions of this package kept a redo log in the folder of bbolt's file and synced only
// the log. These versions removed the log at a normal stop. After a crash, the log can contain
// commits that are missing in bbolt's file. Only the version that wrote the log can apply these
// commits. The functions of this file find a log that an earlier version left.
//
// A log begins with two headers of the form
//
//	magic, epoch (8 bytes), ..., logged (1 byte at 80), ..., CRC-32C (4 bytes at 165)
//
// at offset 0 and at offset 4096. The intact header with the higher epoch is valid. If the byte
// "logged" of this header is not 0, commits may be missing in bbolt's file. If this byte is 0, or
// if no header is intact, bbolt's file contains all commits.
const (
	redoMagic  = "cloudsim redo 1\n"
	redoSecond = 4096 // offset of the second header
	redoLogged = 80
	redoSum    = 165
)

func redoPath(path string) string { return path + ".redo" }

// checkRedoLog returns an error if an earlier version left a redo log that may contain commits that
// are missing in the file at path. It changes neither this file nor the log.
func checkRedoLog(path string) error {
	log := redoPath(path)
	logged, err := hasCommits(log)
	if err != nil {
		return fmt.Errorf("read the redo log of %s: %w", path, err)
	}
	if logged {
		return fmt.Errorf("open %s: the redo log %s may contain changes that are missing in the file, because an earlier version of cloudsim did not stop cleanly. "+
			"Start that version once with this data directory, then stop that version: this applies the changes and removes the log", path, log)
	}
	return nil
}

// removeRedoLog removes a redo log if the file at path contains all commits of the log. The caller
// must lock the file at path before the call. removeRedoLog repeats the check of checkRedoLog,
// because a process of an earlier version may have written commits before the caller got the lock.
func removeRedoLog(path string) error {
	if err := checkRedoLog(path); err != nil {
		return err
	}
	if err := os.Remove(redoPath(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hasCommits reports whether the redo log at path may contain commits that are
// missing in bbolt's file.
func hasCommits(path string) (logged bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	var epoch uint64
	for _, at := range []int64{0, redoSecond} {
		h := make([]byte, redoSum+4)
		if _, err := f.ReadAt(h, at); errors.Is(err, io.EOF) {
			continue // the file is too short for this header
		} else if err != nil {
			return false, err
		}
		sum := crc32.Checksum(h[:redoSum], crc32.MakeTable(crc32.Castagnoli))
		if string(h[:len(redoMagic)]) != redoMagic || binary.LittleEndian.Uint32(h[redoSum:]) != sum {
			continue // the header was never written, or a crash interrupted the write
		}
		if e := binary.LittleEndian.Uint64(h[len(redoMagic):]); e > epoch {
			epoch, logged = e, h[redoLogged] != 0
		}
	}
	return logged, nil
}
